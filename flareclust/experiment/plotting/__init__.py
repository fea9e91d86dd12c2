"""Pictures."""

__all__ = ["personal", "selection", "style"]
