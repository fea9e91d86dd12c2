"""Comma-separated files as we write them: no text in them is a formula that a spreadsheet would run."""

import csv
import re
from collections.abc import Iterable
from typing import IO

#: What a spreadsheet begins a formula with, after any number of the quotes that we put in front.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _plain_text(text: str) -> str:
    """Return a text that a spreadsheet shows as it is: with a `'` in front where it would be a formula.

    Numbers stay as they are, so `-5` does. A reader removes one `'` from the front of a text that goes on, after
    it or after further ones, with one of `= + - @`, a tab or a carriage return.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def write_rows(file: IO[str], rows: Iterable[Iterable[object]]) -> None:
    """Write rows as comma-separated lines that end with a line feed, with `_plain_text` for all text."""
    plain = ([_plain_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(_LineFeeds(file), lineterminator="\r\n").writerows(plain)


class _LineFeeds:
    """Takes lines that end with CR LF. Only for such lines Python before 3.13 puts a carriage return within quotes."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, line: str) -> None:
        """Write one line."""
        self._file.write(line.removesuffix("\r\n") + "\n")
