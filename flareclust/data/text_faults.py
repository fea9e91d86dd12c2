"""What is wrong with a text that is no table of numbers: its encoding, or the commas in its numbers. No cell is shown."""

import re
from pathlib import Path

from flareclust._foundation.errors import UserError

#: A number with a decimal comma.
_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?\s*")

#: So many bytes at the beginning of a file show that every second one is 0, and a line has at most so many.
_HEAD, _LINE = 4096, 1 << 20

#: What to do with a table whose numbers have decimal commas.
COMMA_ADVICE = "read numbers with a decimal comma by a schema (flareclust schema draft FILE --decimal ,)"

#: What to do with a text in another encoding.
UTF8_ADVICE = "save it as UTF-8"


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma."""
    return _COMMA.fullmatch(cell) is not None


def not_text(file: Path, encoding: str, place: str) -> UserError:
    """Return the error of a csv file that is no text in this encoding."""
    unmarked = encoding.startswith("utf-16") and _is_wide(file)
    wide = not encoding.startswith("utf-16") and _is_wide(file)
    likely = "utf-16" if wide else "utf-16-le" if unmarked else "utf-8" if encoding != "utf-8" else "latin-1"
    what = f"is UTF-16 text where {encoding} is expected" if wide else f"is no {encoding} text{_first(file, encoding)}"
    others = {"latin-1": " or cp1252", "utf-16-le": " or utf-16-be"}.get(likely, "")
    return UserError(
        f"{place} {what}; {UTF8_ADVICE}, or read it by a schema, with `encoding: {likely}`{others} in the mapping "
        f"(NAME.mapping.yaml beside it); for a first schema: flareclust schema draft FILE --encoding {likely}"
    )


def _is_wide(file: Path) -> bool:
    with file.open("rb") as stream:
        return b"\0" in stream.read(_HEAD)


def _first(file: Path, encoding: str) -> str:
    """Return in which line the first bytes are that are no UTF-8."""
    if encoding != "utf-8":
        return ""
    number = 1
    with file.open("rb") as stream:
        while line := stream.readline(_LINE):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", first in line {number}"
            number += line.endswith(b"\n")
    return ""
