"""Numerics of differentially private sums. Nothing here draws noise or sees a policy."""
