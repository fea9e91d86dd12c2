"""Checks of single settings, with the messages users see."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from pathlib import Path

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.options import SYNONYMS

#: What NVFlare takes in its command lines and folders.
_SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

#: What a number in a message may be; sums of squares of smaller ones stay finite.
LARGEST = 1e140

#: Between these a site's largest value must lie, unless all are 0. Above, sums of squared distances could go beyond
#: `LARGEST`: twice the value squared, for a million columns and 2**46 rows. Below, squares lose their digits.
LEAST_VALUE, LARGEST_VALUE = 1e-100, 1e59


def check_int(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`, or raise UserError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise UserError(f"{name} must be an integer of at least {minimum}, got {shown(value)}")
    return int(value)


def check_bool(name: str, value: object) -> bool:
    """Return `value` if it is true or false, or raise UserError."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, got {shown(value)}")
    return value


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, or raise UserError with the nearest of them."""
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise UserError(f"{name} must be one of {', '.join(allowed)}; got {shown(value)}{did_you_mean(value, allowed)}")
    return value


def size_problem(largest: float) -> str | None:
    """Return why a site's rows, whose largest absolute value is `largest`, cannot be computed with; None if they can."""
    if largest > LARGEST_VALUE:
        return (
            f"has values beyond {LARGEST_VALUE:g}, whose squares cannot be added up; give the columns in a larger unit"
        )
    if 0 < largest < LEAST_VALUE:
        return f"has no value beyond {LEAST_VALUE:g}, whose squares are too small; give the columns in a smaller unit"
    return None


#: With more names than this, or longer ones, the nearest is not looked for, which takes long.
_MOST_COMPARED, _LONGEST_COMPARED = 10_000, 100


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" with the known word nearest to `word`, or nothing."""
    known = list(known)
    near = [name for names in SYNONYMS if word in names for name in names if name in known]
    if not near and len(known) <= _MOST_COMPARED and len(str(word)) <= _LONGEST_COMPARED:
        compared = [name for name in known if len(name) <= _LONGEST_COMPARED]
        near = get_close_matches(str(word), compared, n=1, cutoff=0.6)
    return f" (did you mean {shown(near[0])}?)" if near else ""


def site_name(name: object) -> str:
    """Return a name that NVFlare takes as a site's; raise UserError for others."""
    if not isinstance(name, str) or not _SITE_NAME.fullmatch(name) or name == "server":
        raise UserError(
            f"{name!r} cannot be a site's name: use letters, digits, - and _, a letter or digit first (and not 'server')"
        )
    return name


def check_path(name: str, value: object, advice: str = "") -> Path:
    """Return a path; raise UserError for anything else than text or a path, with what to do."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise UserError(f"{name}: expected the path of a file, got {type(value).__name__}{advice}")
    return Path(value)


def is_number(text: str) -> bool:
    """Return whether a text is a number as Python reads it, NaN and infinity among them."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def beside_schema(**given: object) -> str:
    """Return what to do where settings are given beside a schema that says the same, by their names; "" where all are None."""
    names = " and ".join(name for name, value in given.items() if value is not None)
    why = "the schema says which columns are features and which are ids"
    return f"{why} (type: ignore is for a column to leave out); leave out {names}" if names else ""
