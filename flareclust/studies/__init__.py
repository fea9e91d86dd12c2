"""Several federations in one call: a range of k, a grid of experiments."""

__all__ = ["advice", "personalised", "select", "stability", "sweeps"]
