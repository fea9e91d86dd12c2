"""The ids that a site has withdrawn: jobs leave out the rows with them. The list stays in the site's kit, for its own account only."""

import re
import time
from collections.abc import Collection
from pathlib import Path

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings_file import LONGEST_JSON, NotPlain, read_text
from flareclust.data.file_formats import spreadsheet_advice
from flareclust.sites.kit import read_json, write_json

#: In a kit's folder `local`: when each id was withdrawn, in seconds since 1970 UTC.
WITHDRAWN_FILE = "flareclust_withdrawn.json"

_IDS = "ids"

#: An id in quotes, as in a csv file, and what separates the fields of a table.
_QUOTED, _BETWEEN = re.compile(r'"((?:[^"]|"")+)"'), re.compile(r"[;,|\t]")


def withdrawn_ids(local: Path, *, reader_owns_them: bool = False) -> frozenset[str]:
    """Return the ids that the site with the folder `local` has withdrawn.

    Raises:
        Refusal: the list is there and cannot be read, so no job may have rows.
        UserError: the same for those who own the rows, with the reason.
    """
    try:
        return frozenset(_read(local))
    except UserError:
        if reader_owns_them:
            raise
        raise Refusal(
            f"has a local/{WITHDRAWN_FILE} that cannot be read; flareclust site check says why at the site"
        ) from None


def ids_in(file: Path) -> list[str]:
    """Return the ids in an operator's file, one a line, without spaces around them; one in double quotes as it is between them.

    Raises:
        UserError: there is no such file, it is no text (UTF-8), it has no id, or a line has several fields, as in a table.
    """
    try:
        lines = read_text(file, LONGEST_JSON // 8).splitlines()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except NotPlain as reason:
        raise UserError(f"{file} {reason}; expected a text file with one id a line{spreadsheet_advice(file)}") from None
    if not (found := [_id(line, f"{file}: line {number}") for number, line in enumerate(lines, 1) if line.strip()]):
        raise UserError(f"{file} has no ids; expected one a line")
    return found


def _id(line: str, place: str) -> str:
    """Return the id in a line; UserError, without its text, where it may be a line of a table, of which no id is known."""
    text = line.strip()
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1].replace('""', '"').strip()
    if between := _BETWEEN.search(text):
        name = {"\t": "a tab", ",": "a comma", ";": "a semicolon"}.get(between[0], f"'{between[0]}'")
        raise UserError(
            f"{place} has {name}, as between the fields of a table; expected one id a line and nothing else (an id that holds {name} "
            "stands in double quotes)"
        )
    return text


def withdraw(local: Path, ids: Collection[str], *, undo: bool = False) -> list[str]:
    """Add ids to a site's list, or take them off it; return those that were not on it before, or were.

    Raises:
        UserError: the list that is there cannot be read, or the new one not be written.
    """
    listed = _read(local)
    changed, now = [one for one in dict.fromkeys(ids) if (one in listed) == undo], time.time()
    if undo:
        listed = {one: since for one, since in listed.items() if one not in set(changed)}
    else:
        listed = listed | dict.fromkeys(changed, now)
    if changed:
        write_json(local / WITHDRAWN_FILE, {_IDS: listed}, mode=0o600)
    return changed


def _read(local: Path) -> dict[str, float]:
    file = local / WITHDRAWN_FILE
    listed = read_json(file, "write the list anew with flareclust site withdraw").get(_IDS) if file.exists() else {}
    if not isinstance(listed, dict):
        raise UserError(f"{file}: expected an object as {_IDS}, with a time for each id")
    return listed
