"""Ways to run a federation: every engine drives the same executor and aggregator objects."""

__all__ = ["inprocess", "late_jobs", "late_sites", "options", "other_frameworks", "pooled"]
