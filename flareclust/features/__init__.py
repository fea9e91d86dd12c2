"""Sites with different columns: their alignment, and what is special about their results."""

__all__ = ["alignment", "columns", "placement", "result", "scaling"]
