"""The tables and images of an experiment: files, folders, arrays and data frames, and rows that come later."""

__all__ = ["late_rows", "typed_files", "typed_rows"]
