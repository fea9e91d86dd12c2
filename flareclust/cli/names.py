"""Lists of names on a command line."""


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names in "a, b", None for None."""
    return None if text is None else tuple(name.strip() for name in text.split(","))
