"""Checks of single settings, with the messages users see."""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral

from flareclust._foundation.errors import UserError

#: Larger values than anybody measures; sums of squares of smaller ones stay finite.
LARGEST = 1e140


def check_int(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `least`, or raise UserError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise UserError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return int(value)


def check_bool(name: str, value: object) -> bool:
    """Return `value` if it is true or false, or raise UserError."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, got {value!r}")
    return value


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, or raise UserError with the nearest of them."""
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise UserError(f"{name} must be one of {', '.join(allowed)}; got {value!r}{did_you_mean(value, allowed)}")
    return value


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" with the known word nearest to `word`, or nothing."""
    near = get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""
