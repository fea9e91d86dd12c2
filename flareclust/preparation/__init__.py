"""How a job prepares the columns and rows of its sites before an algorithm sees them, and the settings that say so."""

__all__ = ["categories", "different", "names", "rows", "scale", "settings", "spread", "units"]
