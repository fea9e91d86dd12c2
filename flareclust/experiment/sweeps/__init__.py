"""Studies of many runs: the grid, its trials, where they run, and what they come to."""

__all__ = ["folder", "report", "sweep", "trials"]
