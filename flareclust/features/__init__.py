"""Sites with different columns: their alignment, and what is special about their results."""

__all__ = ["alignment", "alone", "columns", "placement", "result", "scaling"]
