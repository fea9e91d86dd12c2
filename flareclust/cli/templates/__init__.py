"""Files that `flareclust init` writes."""
