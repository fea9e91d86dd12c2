"""Text for terminals and messages: nothing in it that a terminal obeys, and nothing without end."""

import math
import reprlib
from collections.abc import Iterable, Sequence

#: Characters of a value in a message, and of a message about a wrong request.
LONGEST_VALUE, _LONGEST_MESSAGE = 80, 1500

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LONGEST_VALUE


def shown(value: object) -> str:
    """Return a value as Python writes it, cut in the middle where it is long; its control characters are escaped."""
    try:
        return printable(_SHORT.repr(value))
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return f"{type(value).__name__} with thousands of digits"


def printable(text: object, *, lines: bool = False) -> str:
    r"""Return a text with `\x1b` and the like for its control characters; with `lines`, its ends of lines stay."""
    kept = "\n\t" if lines else ""
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode("ascii")
        for letter in str(text)
    )


def shortened(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Return a text without its middle where it is long: what it is about is said first, and what to do last."""
    if len(text) <= longest:
        return text
    end = longest // 3
    return f"{text[: longest - end - 5]} ... {text[-end:]}"


def number_or_dash(value: float) -> str:
    """Return a number with two decimals; a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def some(names: Sequence[str], most: int, others: str = "more") -> str:
    """Return names with commas, of many the first `most` and how many others there are: "a, b and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} {others}" if len(names) > most else "")


def all_of(items: Iterable[object]) -> str:
    """Return items, at least one, as in a sentence: "3", "3 and 4" or "3, 4 and 5"."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
