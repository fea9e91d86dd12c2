"""Pictures."""

__all__ = ["contact_sheet", "features", "federation", "personal", "selection", "style", "tree"]
