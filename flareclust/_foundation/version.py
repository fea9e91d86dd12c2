"""The version, in a module without imports so that every part can name it."""

__version__ = "0.2.0"


def fits(needed: str, installed: str) -> bool:
    """Return whether a job that needs one version runs with another: the first two numbers must be the same.

    Versions that differ in the third number only send the same messages and find the same centroids
    (docs/versions.md).
    """
    return needed.split(".")[:2] == installed.split(".")[:2]


def shown_version(needed: str) -> str:
    """Return the version that a job states, for a text that leaves this machine; other words where it is no version."""
    numbers = needed.split(".")
    known = len(numbers) in (2, 3) and all(one.isascii() and one.isdigit() and len(one) <= 3 for one in numbers)
    return needed if known else "another version"
