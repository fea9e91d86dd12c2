"""What people read of a run: lines in a terminal, and a page."""

__all__ = ["federation", "page", "placed", "summary", "table", "tables", "terminal"]
