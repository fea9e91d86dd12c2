"""The version, in a module without imports so that every part can name it."""

__version__ = "0.2.0"


def fits(needed: str, installed: str) -> bool:
    """Return whether a job that needs one version runs with another: the first two numbers must be the same.

    Versions that differ in the third number only send the same messages and find the same centroids
    (docs/versions.md).
    """
    return needed.split(".")[:2] == installed.split(".")[:2]
