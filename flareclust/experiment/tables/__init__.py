"""The tables and images of an experiment: files, folders, arrays and data frames, and rows that come later."""
