"""Sums that the server learns as totals only."""
