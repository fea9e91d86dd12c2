"""Pictures."""

__all__ = ["selection", "style"]
