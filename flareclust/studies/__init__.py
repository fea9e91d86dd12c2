"""Several federations in one call: a range of k, a grid of experiments."""

__all__ = ["personalised", "select", "stability", "sweeps"]
