"""Numerics for points with unknown entries (NaN)."""

__all__ = ["assessment", "distances", "gaps", "grouping", "profiles", "selection"]
