"""Many small sites on one machine, here called devices: what each computes is computed for thousands of them in one compiled loop."""

__all__ = ["engine"]
