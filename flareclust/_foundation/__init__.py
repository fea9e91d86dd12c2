"""What every other package may use: errors, types, checks of settings, random streams, private files."""
