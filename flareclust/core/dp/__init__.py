"""Numerics of differentially private sums. Nothing here draws noise or sees a policy."""

__all__ = ["axes", "box", "grid", "lloyd", "mixture_sums", "mixtures", "outcomes", "sums"]
