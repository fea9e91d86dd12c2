"""What every other package may use: errors, types, checks of settings, random streams, private files."""

__all__ = [
    "certificates",
    "display",
    "errors",
    "extras",
    "interrupts",
    "machine",
    "options",
    "own_files",
    "published",
    "seeding",
    "settings",
    "settings_file",
    "typing",
    "validation",
    "version",
]
