"""The tables and images of an experiment: files, folders, arrays and data frames, and rows that come later."""

__all__ = ["in_memory", "late_rows", "typed_files", "typed_rows"]
