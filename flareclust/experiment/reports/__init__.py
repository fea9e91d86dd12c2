"""What people read of a run: lines in a terminal, and a page."""

__all__ = ["federation", "page", "summary", "table", "tables", "terminal"]
