"""Sums of which the server learns the total only."""
