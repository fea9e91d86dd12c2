"""The command `flareclust`."""
