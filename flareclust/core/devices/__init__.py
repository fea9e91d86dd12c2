"""What many small sites, here called devices, compute: one compiled loop over all of them in the place of a call for each."""

__all__ = ["ragged", "steps"]
