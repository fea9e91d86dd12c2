"""How a job prepares the columns and rows of its sites: the same columns or different ones, what results say of it, and the settings."""

__all__ = [
    "alignment",
    "alone",
    "assignment",
    "categories",
    "columns",
    "different",
    "names",
    "placement",
    "result",
    "rows",
    "scale",
    "scaling",
    "settings",
    "spread",
    "units",
]
