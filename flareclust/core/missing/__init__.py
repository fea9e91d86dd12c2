"""Numerics for points with unknown entries (NaN)."""
