"""The command `flareclust`."""

__all__ = ["entry", "main", "run", "settings", "site_policy", "sweep"]
