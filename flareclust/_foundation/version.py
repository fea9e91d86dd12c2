"""The version, in a module that imports nothing of ours, so that every part can name it."""

import re

__version__ = "0.3.0.dev10"

#: Rises when sites or server compute other numbers from the same rows, though what they send looks the same.
REVISION = 7

#: A version, of a release or of the development before it, and the digest of a job's messages.
_VERSION = re.compile(r"(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?(?:\.dev\d{1,4})?)(?:\+[0-9a-f]{12})?", re.ASCII)


def fits(needed: str, installed: str) -> bool:
    """Return whether a job that needs one version runs with another (docs/versions.md).

    Args:
        needed: what the job states: a version, and behind a plus the digest of its messages (`flareclust.protocol.digests`).
        installed: what is here, in the same form. Where both state a digest, nothing else counts. Otherwise the first two numbers
            must be the same, and versions of development in everything.
    """
    (number, _, messages), (own, _, own_messages) = needed.partition("+"), installed.partition("+")
    if messages and own_messages:
        return messages == own_messages
    return number == own if "dev" in number or "dev" in own else number.split(".")[:2] == own.split(".")[:2]


def misfit(needed: str, installed: str) -> str:
    """Return why a job does not run here, in words that follow the name of the site or server."""
    stated, own = _VERSION.fullmatch(needed), installed.partition("+")[0]
    number = stated[1] if stated else "another version"  # texts that leave this machine repeat no others
    if number == own:
        return f"has flareclust {own} with other messages than the flareclust {number} of the job's lead"
    return f"has flareclust {own} where the job needs {number}"
