"""The version, in a module that imports nothing of ours, so that every part can name it."""

import re

__version__ = "0.3.0.dev1"

#: A version, of a release or of the development before it.
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}(\.\d{1,3})?(\.dev\d{1,4})?", re.ASCII)


def fits(needed: str, installed: str) -> bool:
    """Return whether a job that needs one version runs with another: the first two numbers must be the same.

    Versions that differ in the third number only send the same messages and find the same centroids
    (docs/versions.md). Those of development may change in everything, and must be the same.
    """
    if "dev" in needed or "dev" in installed:
        return needed == installed
    return needed.split(".")[:2] == installed.split(".")[:2]


def shown_version(needed: str) -> str:
    """Return the version that a job states, for a text that leaves this machine; other words where it is no version."""
    return needed if _VERSION.fullmatch(needed) else "another version"
