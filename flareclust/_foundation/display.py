"""Text for terminals and messages: nothing in it that a terminal obeys, and nothing without end."""

import math
import re
import reprlib
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

#: Characters of a value in a message, and of a message about a wrong request.
LONGEST_VALUE, _LONGEST_MESSAGE = 80, 1500

#: The word for rows where it is no part of a setting or a path.
_ROWS = re.compile(r"(?<![-=\"'/.])\brows\b(?![-=\"'/]|\.\w| without clusters)")

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


def rounded(value: float, decimals: int) -> str:
    """Return a number with so many decimals; a half is rounded away from 0, also where sums have put it a rounding error aside.

    So the same number is the same text wherever it is shown, though two sums of it differ in their last bits. Digits beyond the
    fourteenth are none of it. Infinity and NaN are as Python writes them.
    """
    if not math.isfinite(value):
        return str(value)
    digits = Decimal(f"{value:.14g}")
    found = (
        digits.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP) if digits.adjusted() + decimals < 25 else digits
    )
    return f"{found + 0 if found else abs(found):,f}"


def measured(name: str, value: float, decimals: int) -> str:
    """Return the value of a metric as `rounded` does; a number of rows is a whole one."""
    return rounded(value, 0 if name.endswith("_rows") else decimals)


def signed(value: float, decimals: int) -> str:
    """Return a number as `rounded` does, with its sign."""
    text = rounded(value, decimals)
    return text if text.startswith("-") else f"+{text}"


def in_unit(text: str, row_name: str) -> str:
    """Return a text of the product with what a run calls its rows; settings such as drop-rows and seeds=rows keep their names.

    Rows without clusters are nobody's, and keep theirs.
    """
    return _ROWS.sub(lambda _: row_name, text)


def number_or_dash(value: float) -> str:
    """Return a number with two decimals; a dash for NaN."""
    return "-" if math.isnan(value) else rounded(value, 2)


def some(names: Sequence[str], most: int, others: str = "more") -> str:
    """Return names with commas, of many the first `most` and how many others there are: "a, b and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} {others}" if len(names) > most else "")


def all_of(items: Iterable[object]) -> str:
    """Return items, at least one, as in a sentence: "3", "3 and 4" or "3, 4 and 5"."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
