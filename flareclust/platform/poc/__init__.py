"""The processes of a federation on one machine: found, started, ended."""

__all__ = ["federation", "kits", "processes", "state"]
