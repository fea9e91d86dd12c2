"""Ways to run a federation: every engine drives the same executor and aggregator objects."""

__all__ = [
    "admission",
    "devices",
    "inprocess",
    "job",
    "late_jobs",
    "late_sites",
    "log_streaming",
    "options",
    "poc",
    "pooled",
    "process_tree",
    "provisioned",
    "recipe",
    "scratch",
    "simulator",
    "simulator_watch",
]
