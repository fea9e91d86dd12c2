"""Tables, data sets, labels and partitions: rows on their way to a site."""

__all__ = [
    "cells",
    "csv_files",
    "datasets",
    "devices",
    "digest",
    "feature_partition",
    "file_formats",
    "frames",
    "ids",
    "image_files",
    "labels",
    "memory",
    "npy_files",
    "partition",
    "partition_specs",
    "published",
    "schema",
    "sql_tables",
    "tables",
]
