"""What a site sends about its columns, and how it finds them again among those of the federation.

Columns are the same where their names are. A name travels beside a code, a hash of it. Sites that share a secret salt
hash with it, and may then hide names: a hidden name's code can be compared with those of other sites, but not be tried
against a list of likely names by somebody without the salt. Letters: d columns of one site, D of the union.
"""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core.disclosure import LEAST_ROWS, describable, describable_where_known
from flareclust.core.scaling import known_spread
from flareclust.data.tables import Table
from flareclust.protocol.columns import FILL
from flareclust.protocol.schema import Schema, counts, real, whole

#: What the names of columns begin with that sites hide, and how long a name may be.
HIDDEN, _LONGEST_NAME = "hidden-", 300

#: The word whose code says which salt a site hashes with.
_SALT_WORD = "flareclust salt"


class _Description(Schema):
    """A schema that also looks into the names, so that a site with a broken list of them is refused by its name."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Check that there is a name or a blank for every code."""
        names = unpacked(message["names"])
        if len(names) != sizes["o"]:
            raise BadMessage("names: expected a name or null for every code")
        if sizes["s"] not in (0, sizes["o"]):
            raise BadMessage("mean: expected one for every column, or none")
        if message["rows"] < (LEAST_ROWS if sizes["s"] else 1):
            raise BadMessage("rows: expected more of them")
        named = [name for name in names if name is not None]
        if len(set(named)) < len(named):
            raise BadMessage("names: hold one more than once")
        pairs = zip(names, message["codes"].tolist(), strict=True)
        unsalted = int(message["salt"]) == _code(_SALT_WORD, "")
        if unsalted and any(name is None or _code(name, "") != number for name, number in pairs):
            raise BadMessage("codes: expected those of the names")
        if len(np.unique(message["codes"])) != sizes["o"]:
            raise BadMessage("codes: hold one more than once")
        if not sizes["o"]:
            raise BadMessage("codes: expected at least one column")

    def at_odds(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Return the sites that hash with another salt than more than half of all do."""
        salts = {site: int(reply["salt"]) for site, reply in replies.items()}
        usual, sharing = max(Counter(salts.values()).items(), key=lambda pair: pair[1], default=(0, 0))
        if 2 * sharing <= len(salts):
            return {}  # nobody can say who is wrong: the job fails
        why = f"hashes the names of its columns with another salt than {sharing} other sites (local/flareclust.yaml)"
        return {site: why for site, salt in salts.items() if salt != usual}


#: What a site answers to the step `describe`. Of each of its o columns: `codes`, and `names` as JSON text, null where it
#: is hidden, four bytes to a number; of its rows their number and, when asked, of each column (s = o, else 0) the mean and the sum of
#: squared deviations from it; which salt it hashes with.
DESCRIPTION = _Description(
    may_be_empty=True,
    codes=whole("o"),
    names=whole("b"),
    rows=counts(""),
    mean="s",
    m2=real("s", minimum=0),
    salt=whole(""),
)


def describe(table: Table, *, sums: bool, min_count: int) -> Message:
    """Return what a site sends about its columns: names, number of rows and, if `sums`, what a mean and variance need.

    The sums are left out where there are fewer than `min_count` or three rows, or where the means are a row of the data.
    """
    mean, m2 = np.empty(0), np.empty(0)
    if sums and len(table) >= LEAST_ROWS:
        # The mean of equal numbers is rounded.
        exact = np.where(np.ptp(table.X, axis=0) == 0, table.X[0], table.X.mean(axis=0))
        if describable(table.X, np.zeros(len(table), np.int64), exact[None], max(min_count, LEAST_ROWS))[0]:
            mean, m2 = exact, ((table.X - exact) ** 2).sum(axis=0)
    visible = [None if name in table.hidden else name for name in names_of(table)]
    about = {"codes": _codes_of(table), "names": _packed(visible), "rows": np.array(len(table))}
    return {**about, "mean": mean, "m2": m2, "salt": _salt_of(table)}


def moments(table: Table, columns: IntArray, min_count: int) -> Message:
    """Return the mean and variance that `describe` sends, each column as a group: for masked sums only.

    Args:
        table: the site's rows.
        columns: codes of the federation's columns (D,).
        min_count: as for `describe`.
    """
    description = describe(table, sums=True, min_count=min_count)
    has, own = places(columns, description["codes"])
    if not len(description["mean"]):
        has = own = np.empty(0, dtype=np.int64)
    return _as_groups(has, np.full(len(has), len(table)), description["mean"][own], description["m2"][own])


def moments_of_known(table: Table, columns: IntArray, min_count: int, repeats: int | None = None) -> Message:
    """Return mean and squared deviations of the known cells of each column, as a group of so many rows.

    Columns with fewer than `min_count` or three known cells are left out; all are where these means would give rows away.

    Args:
        table: the site's rows, NaN where a cell is missing.
        columns: codes of the federation's columns (D,).
        min_count: smallest number of known cells that is described.
        repeats: where they are to be rounded as in `flareclust.core.scaling`, how often the same row may be there; else None.
    """
    has, own = places(columns, _codes_of(table))
    X, least = table.X[:, own], max(min_count, LEAST_ROWS)
    if repeats is not None:
        cells, mean, deviation = known_spread(X, least, repeats)
        return _as_groups(has, cells, mean, cells * deviation**2)
    known = ~np.isnan(X)
    cells = known.sum(axis=0)
    low, high = (edge(X, axis=0, initial=np.nan) for edge in (np.fmin.reduce, np.fmax.reduce))
    mean = np.where(low == high, low, np.where(known, X, 0.0).sum(axis=0) / np.maximum(cells, 1))
    m2, enough = (np.where(known, X - mean, 0.0) ** 2).sum(axis=0), cells >= least
    filled, together = np.where(known, X, mean)[:, enough], np.zeros(len(X), dtype=np.int64)
    if not enough.any() or not describable_where_known(filled, known[:, enough], together, 1, least)[0]:
        enough = np.zeros_like(enough)
    return _as_groups(has, np.where(enough, cells, 0), mean, m2)


def _as_groups(has: IntArray, cells: IntArray, mean: FloatArray, m2: FloatArray) -> Message:
    """Return columns as groups of one column each, those with cells."""
    some = cells > 0
    return {"cluster": has[some], "counts": cells[some], "centroids": mean[some, None], "m2": m2[some, None]}


def names_of(table: Table) -> tuple[str, ...]:
    """Return the names of a site's columns; without names, numbers that only a site with as many columns shares."""
    d = table.X.shape[1]
    return table.columns or tuple(f"column {j + 1} of {d}" for j in range(d))


def _codes_of(table: Table) -> IntArray:
    """Return the codes (d,) of a site's columns."""
    return np.array([_code(name, table.salt) for name in names_of(table)], dtype=np.int64)


def _salt_of(table: Table) -> IntArray:
    """Return a code that says which salt a site hashes with, and nothing of it."""
    return np.array(_code(_SALT_WORD, table.salt))


def _code(name: str, salt: str) -> int:
    """Return 63 bits of a name's hash, HMAC-SHA256 where there is a salt."""
    text = name.encode()
    digest = hmac.digest(_key(salt), text, "sha256") if salt else hashlib.sha256(text).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@lru_cache(maxsize=8)
def _key(salt: str) -> bytes:
    """Return the key of a salt, slow to compute, so that trying salts takes long."""
    return hashlib.pbkdf2_hmac("sha256", salt.encode(), b"flareclust columns", 200_000)


def own_view(table: Table, task: Message) -> tuple[FloatArray, IntArray]:
    """Return a site's rows (n, d) of the columns that the federation knows, in its order, filled and scaled as it says.

    Also the place of each of these columns among the D of the federation (d,). Refusal where the site has none of them.
    """
    has, own = places(task["columns"], _codes_of(table))
    if not len(has):
        if table.columns is None:
            why = ": its columns have no names"
        elif table.salt:
            why = "; perhaps the federation hashes names with another salt, or with none"
        else:
            why = "; if the federation hashes names with a salt, the site needs the same"
        raise Refusal(f"shares no column with the federation{why}")
    X = table.X[:, own]
    if FILL in task:
        X = np.where(np.isnan(X), task[FILL][has], X)
    if "mean" in task:
        X = (X - task["mean"][has]) / task["deviation"][has]
    return np.ascontiguousarray(X), has


def places(columns: IntArray, own: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places among `columns` (D,) of those that a site has, in their order, and their places in its `own` (d,)."""
    position = {number: j for j, number in enumerate(own.tolist())}
    positions = np.array([position.get(number, -1) for number in columns.tolist()], dtype=np.int64)
    return np.flatnonzero(positions >= 0), positions[positions >= 0]


def _packed(names: Sequence[str | None]) -> IntArray:
    text = json.dumps(list(names), ensure_ascii=False).encode()
    return np.frombuffer(text + b"\0" * (-len(text) % 4), dtype="<u4").astype(np.int64)


def unpacked(numbers: IntArray) -> list[str | None]:
    """Return the names that `describe` packed, None for hidden ones, or raise BadMessage."""
    try:
        if numbers.size and numbers.max() >= 2**32:
            raise ValueError
        names = json.loads(numbers.astype("<u4").tobytes().rstrip(b"\0"))
    except (ValueError, RecursionError):
        raise BadMessage("names: expected JSON text, four bytes to a number") from None
    if not isinstance(names, list) or not all(name is None or (isinstance(name, str) and name) for name in names):
        raise BadMessage("names: expected a list of names")
    for name in filter(None, names):
        if len(name) > _LONGEST_NAME or not name.isprintable() or name.startswith(HIDDEN):
            raise BadMessage(
                f"names: expected at most {_LONGEST_NAME} printable characters that do not begin with {HIDDEN!r}"
            )
    return names


# Whether sites that should have the same columns do: compared by hashes of their names, in their order.

#: So many columns are named in a sentence.
_SHOWN = 8


class _Names(Schema):
    """A schema that finds the sites whose columns are not those of most others."""

    def at_odds(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Return what is different about the sites that do not have the columns of most others, in their order.

        Sites whose columns have no names, or that hash with another salt than most, cannot be compared.
        """
        salts = {site: int(reply["salt"]) for site, reply in replies.items() if reply["codes"].any()}
        if not salts:
            return {}
        usual_salt = Counter(salts.values()).most_common(1)[0][0]
        own = {site: tuple(replies[site]["codes"].tolist()) for site, salt in salts.items() if salt == usual_salt}
        usual, sharing = Counter(own.values()).most_common(1)[0]
        if 2 * sharing <= len(own) and len(set(own.values())) > 1:
            why = "has other columns than other sites, or another order, and no list of columns is that of most sites"
            return dict.fromkeys(own, f"{why}; set columns or a schema in local/flareclust.yaml")
        return {site: _difference(codes, usual, sharing) for site, codes in own.items() if codes != usual}


#: What a site answers to the step `names`: a hash of each column's name in their order, 0 for columns without names, and which
#: salt it hashes with.
NAMES_OF_COLUMNS = _Names(codes=whole("d"), salt=whole(""))


def hashed_names(table: Table) -> Message:
    """Return what a site sends of the names of its columns."""
    codes = np.zeros(table.X.shape[1], dtype=np.int64) if table.columns is None else _codes_of(table)
    return {"codes": codes, "salt": _salt_of(table)}


def _difference(own: tuple[int, ...], usual: tuple[int, ...], sharing: int) -> str:
    others = f"{sharing} other sites" if sharing > 1 else "1 other site"
    if sorted(own) == sorted(usual):
        moved = [j for j, code in enumerate(own) if code != usual[j]]
        pairs = ", ".join(f"{j + 1} is their {usual.index(own[j]) + 1}" for j in moved[:_SHOWN])
        more = " and more" if len(moved) > _SHOWN else ""
        what = f"has the columns of {others} in another order: its column {pairs}{more}"
    else:
        odd = [str(j + 1) for j, code in enumerate(own) if code not in usual][:_SHOWN]
        which = f": none of theirs has the name of its column {', '.join(odd)}" if odd else ""
        what = f"has other columns than {others}{which}"
    return f"{what}; set columns or a schema in local/flareclust.yaml"
