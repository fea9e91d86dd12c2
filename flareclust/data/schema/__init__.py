"""The schema of a federation's tables: what every column holds, how a site's own file maps to it, and reading by it."""

__all__ = ["cells", "columns", "draft", "mapping", "reading"]
