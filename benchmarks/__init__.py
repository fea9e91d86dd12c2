"""Measurements of flareclust; none of it is installed. Run its modules from the repository's folder."""
