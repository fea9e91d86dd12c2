"""Numerics for points of which not all entries are known (NaN)."""
