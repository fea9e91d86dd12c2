"""What a run found: its evaluation, the result that a user gets, and the files that it is saved in."""

__all__ = ["artifacts", "disclosure", "evaluate", "fetched", "picture", "profiled", "result", "saved", "start"]
