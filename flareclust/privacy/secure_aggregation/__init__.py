"""Sums that the server learns as totals only."""

__all__ = ["client", "fixed_point", "identity", "masking", "own_identity", "server", "totals"]
