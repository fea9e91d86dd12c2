"""The ids of a site's rows: text that goes into the site's own labels file, and says which rows belong together; it does not leave."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Literal

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, BoolArray

#: What becomes of rows with the id of another: an error, the first or the last of each id is kept, or all of them are.
Duplicates = Literal["refuse", "first", "last", "keep"]

#: Integers below this are different numbers as floats, too.
_EXACT = 2.0**53


class Ids:
    """The ids of n rows, in about 8 bytes and the text for each; `repr` shows none of them."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("q")

    def extend(self, ids: Iterable[str]) -> None:
        """Add the ids of further rows."""
        for text in ids:
            self._text += text.encode()
            self._ends.append(len(self._text))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        """Give the ids in the order of the rows."""
        start = 0
        for end in self._ends:
            yield self._text[start:end].decode()
            start = end

    def __getitem__(self, row: int) -> str:
        """Return the id of a row; negative numbers count from the end."""
        row = range(len(self))[row]
        start = self._ends[row - 1] if row else 0
        return self._text[start : self._ends[row]].decode()

    def repeated(self) -> int:
        """Return how many rows have the id of an earlier row."""
        return int(repeats(hashes_of(self)).sum())

    def first(self, most: int) -> BoolArray:
        """Return which rows (n,) are among the first `most` of their id."""
        seen: Counter[str] = Counter()
        used = np.zeros(len(self), dtype=np.bool_)
        for row, text in enumerate(self):
            seen[text] += 1
            used[row] = seen[text] <= most
        return used


class Withdrawn:
    """The ids whose rows a site leaves out, and those of them that its rows have; `repr` shows none of them.

    Rows with a missing cell that a schema drops are `dropped` before anything looks for ids.

    Args:
        ids: whose rows are left out.
        marked: whether these rows stay in the table and are marked there, for groups that are made of all rows.
    """

    def __init__(self, ids: frozenset[str] = frozenset(), *, marked: bool = False) -> None:
        self.ids, self.marked = ids, marked
        self.dropped_rows = 0
        self._found: set[str] = set()
        self._dropped: set[str] = set()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.ids)

    def look(self, ids: Ids) -> BoolArray:
        """Return which of the rows with these ids (n,) are left out; UserError where rows have no ids, or all are."""
        if not len(ids):
            raise UserError(
                "the site leaves out rows by their ids, and its rows have none; name the column with ids in its configuration (id)"
            )
        found = np.fromiter((text in self.ids for text in ids), np.bool_, len(ids))
        if found.all():
            raise UserError(
                "all rows, or all of a part on a cluster, are left out, since their ids are withdrawn; leave the site out of the job, "
                "or write the parts anew without these rows"
            )
        self._found.update(compress(ids, found))
        return found

    def drop(self, ids: Iterable[str]) -> None:
        """Note the ids of rows that are left out for another reason, and count in `dropped_rows` those that are withdrawn."""
        own = [one for one in ids if one in self.ids]
        self._dropped.update(own)
        self.dropped_rows += len(own)

    @property
    def dropped(self) -> frozenset[str]:
        """Return the ids that no row has but those that are left out for another reason."""
        return frozenset(self._dropped - self._found)

    @property
    def not_found(self) -> frozenset[str]:
        """Return the ids that no row has."""
        return self.ids - self._found - self._dropped


def hashes_of(ids: Iterable[str]) -> Array:
    """Return 64 bits (n,) for each id, equal for equal ones in this process; in a million others once in 40 million times."""
    return np.fromiter(map(hash, ids), np.int64)


def repeats(hashes: Array, *, later: bool = False) -> BoolArray:
    """Return which rows (n,) have the id of an earlier row, or of a later one, by the hashes (n,) of their ids."""
    found = np.ones(len(hashes), dtype=np.bool_)
    in_turn = hashes[::-1] if later else hashes
    found[np.unique(in_turn, return_index=True)[1]] = False
    return found[::-1] if later else found


def as_texts(values: Array, place: str, first: int) -> list[str]:
    """Return ids (n,), text or integers, as text without spaces around them; `first` is the number of the first row, from 1.

    UserError where they are something else, or one is missing; its text has no id and not the column's name.
    """
    kind = values.dtype.kind
    if kind == "f":
        _refuse_missing(np.isnan(values), place, first)
        if not (np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < _EXACT)).all():
            raise UserError(
                f"{place}: the id column holds numbers that are not whole, or too large to tell apart; ids are text or integers"
            )
        return [str(int(value)) for value in values.tolist()]
    if kind in "iu":
        return list(map(str, values.tolist()))
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
    except UnicodeDecodeError:  # two such ids must not become one
        raise UserError(f"{place}: the id column holds bytes that are no text (UTF-8)") from None
    if kind not in "USTO" or not all(isinstance(text, str | None) for text in texts):
        raise UserError(f"{place}: the id column is neither text nor integers")
    _refuse_missing(np.array([text is None or not text.strip() for text in texts], dtype=bool), place, first)
    return [text.strip() for text in texts]


def _refuse_missing(missing: Array, place: str, first: int) -> None:
    if missing.any():
        raise UserError(
            f"{place}: an id is missing, first in row {first + int(missing.argmax())}; give every row one, or leave out "
            "`id` in the site's configuration"
        )
