"""The columns of a federation whose sites need not have the same ones: their union, who has which, their scale.

What the sites send about theirs: `flareclust.preparation.alignment`. Letters: d columns of one site, D of the union, m sites.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core import overlap as overlaps
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.scaling import KnownSpread
from flareclust.preparation.alignment import HIDDEN, places, unpacked
from flareclust.protocol.columns import Columns
from flareclust.protocol.schema import Schema, real

#: A column that varies so many times as much as half of the columns is in another unit than these.
OUTWEIGHS = 30

# In k-prototypes, of numbers beside categories: from there on what was measured loses (docs/algorithms/kprototypes.md).
_OUTWEIGHS_MIXED = 3

#: Sites divide their rows by no smaller standard deviation.
LEAST_DEVIATION = 1e-100

#: What scales rows. The minimum keeps every quotient of finite values finite: an overflow error would show a server that chooses
#: the scale how large the largest value is.
SCALING = Schema(mean="d", deviation=real("d", minimum=LEAST_DEVIATION))

#: Up to so many sites, a sentence says what each two of them share.
_SITES_IN_PAIRS = 5

_SHOWN = 8


def gather(replies: Mapping[str, Message]) -> Columns:
    """Return the union of the columns that the sites described.

    JobFailed where they hash with different salts, or their columns fall into groups that share none.
    """
    sites = sorted(replies)
    _check_salts(replies)
    names: dict[int, str | None] = {}
    spellings: set[str | None] = set()
    for site in sites:
        for number, name in zip(replies[site]["codes"].tolist(), unpacked(replies[site]["names"]), strict=True):
            if name not in spellings:  # with a salt nobody can check that two codes have not the same name
                names[number] = names.get(number) or name
            names.setdefault(number, None)
            spellings.add(names[number])
    codes = np.array(list(names), dtype=np.int64)
    display = tuple(name or f"{HIDDEN}{number:016x}" for number, name in names.items())
    masks = np.stack([np.isin(codes, replies[site]["codes"]) for site in sites])
    columns = Columns(codes=codes, names=display, sites=tuple(sites), masks=masks)
    _check_connected(columns)
    return columns


def common(columns: Columns, sums: KnownSpread | None = None) -> tuple[Columns, KnownSpread | None]:
    """Return the columns that all sites have, with their part of sums of all; raise JobFailed where there are none."""
    chosen: BoolArray = np.asarray(columns.masks.all(axis=0))
    if not chosen.any():
        raise JobFailed(
            f"no column is common to all sites: {_by_site(columns, range(len(columns.sites)))}. masked and proxy need columns "
            "in common between some sites only"
        )
    shared = replace(
        columns,
        codes=columns.codes[chosen],
        names=tuple(np.array(columns.names)[chosen].tolist()),
        masks=columns.masks[:, chosen],
        union=columns.union or len(columns.codes),
    )
    return shared, None if sums is None else KnownSpread(sums.counts[chosen], sums.mean[chosen], sums.deviation[chosen])


def sharing(columns: Columns) -> str:
    """Return in a sentence how many columns all sites share, some, and one alone."""
    holders = columns.masks.sum(axis=0)
    m, D = columns.masks.shape
    if (holders == m).all():
        whole = D if columns.union is None else columns.union
        return f"{_counted(D)}, at every site" if whole == D else f"{D} of {_counted(whole)}: those that every site has"
    everywhere, alone = int((holders == m).sum()), int((holders == 1).sum()) if m > 1 else 0
    return f"{_counted(D)} in all: {everywhere} at every site, {D - everywhere - alone} at several, {alone} at one site only"


def outweighing(names: Sequence[str], spread: FloatArray, mixed: bool = False) -> str | None:
    """Return the name of the column that varies most (spread (D,)), if far more than half of the others that vary; else None."""
    varying = np.sort(spread[spread > 0])
    outweighs = len(varying) > 1 and varying[-1] > (_OUTWEIGHS_MIXED if mixed else OUTWEIGHS) * np.median(varying[:-1])
    return names[int(np.nanargmax(spread))] if outweighs else None


def decides_distances(column: str, setting: str, mixed: bool = False) -> str:
    """Return a sentence about a column of `outweighing`, with the setting that brings columns to one scale."""
    return (
        f"column {column!r} varies more than {_OUTWEIGHS_MIXED if mixed else OUTWEIGHS} times as much as most others and decides the distances; "
        f"set {setting} unless that is meant"
    )


def in_common(columns: Columns) -> str | None:
    """Return in a sentence how many columns each two sites share; None for one site, for many, or where all are shared."""
    if not 1 < len(columns.sites) <= _SITES_IN_PAIRS or columns.masks.all():
        return None
    pairs = combinations(zip(columns.sites, columns.masks, strict=True), 2)
    return f"in common: {', '.join(f'{a} and {b} {int((has & have).sum())}' for (a, has), (b, have) in pairs)}"


def alike(columns: Columns) -> list[tuple[str, str]]:
    """Return pairs of names that differ in capitals, spaces, underscores and the like only."""
    seen: dict[str, str] = {}
    pairs = []
    for name in columns.names:
        first = seen.setdefault(re.sub(r"[\W_]+", "", name).casefold() or name, name)
        if first != name:
            pairs.append((first, name))
    return pairs


def _counted(number: int) -> str:
    return "1 column" if number == 1 else f"{number} columns"


def by_site(columns: Columns) -> dict[str, list[str]]:
    """Return the names of each site's columns."""
    names = np.array(columns.names)
    return {site: names[mask].tolist() for site, mask in zip(columns.sites, columns.masks, strict=True)}


def _check_salts(replies: Mapping[str, Message]) -> None:
    salts: dict[int, list[str]] = {}
    for site, reply in sorted(replies.items()):
        salts.setdefault(int(reply["salt"]), []).append(site)
    if len(salts) > 1:
        groups = "; ".join(", ".join(sites) for sites in salts.values())
        raise JobFailed(
            f"the sites hash the names of their columns with different salts: {groups}. Agree on one and the same in every "
            "site's local/flareclust.yaml, or on none"
        )


def _check_connected(columns: Columns) -> None:
    parts = overlaps.components(columns.masks)
    if len(parts) > 1:
        groups = "; ".join(_by_site(columns, part) for part in parts)
        raise JobFailed(
            f"the sites fall into {len(parts)} groups without a column in common: {groups}. {_spelling(columns)}Else cluster each "
            "group by itself"
        )


def _spelling(columns: Columns) -> str:
    pairs = [f"{a!r} and {b!r}" for a, b in alike(columns)[:3]]
    return f"Names that differ in spelling only: {', '.join(pairs)}. " if pairs else "Are the columns named alike? "


def _by_site(columns: Columns, numbers: Iterable[int]) -> str:
    names = by_site(columns)
    parts = [f"{columns.sites[i]} ({some(names[columns.sites[i]], _SHOWN)})" for i in numbers]
    return some(parts, _SHOWN, "more sites")


def sums_of(columns: Columns, replies: Mapping[str, Message]) -> KnownSpread:
    """Return mean and standard deviation of all columns over the sites that gave sums (Chan, Golub, LeVeque 1983).

    JobFailed where no site that has a column could give them.
    """
    D = len(columns.codes)
    rows, mean, m2 = np.zeros(D), np.zeros(D), np.zeros(D)
    for site in columns.sites:
        reply = replies[site]
        if not len(reply["mean"]):
            continue
        has, own = places(columns.codes, reply["codes"])
        n, step = int(reply["rows"]), reply["mean"][own] - mean[has]
        m2[has] += reply["m2"][own] + step**2 * (rows[has] * n / (rows[has] + n))
        mean[has] += step * n / (rows[has] + n)
        rows[has] += n
    spread = KnownSpread(rows.astype(np.int64), mean, np.sqrt(m2 / np.maximum(rows, 1)))
    check_known(columns, spread)
    return spread


def by_column(replies: Mapping[str, Message], D: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return what replies say of columns as groups: rows, means and squared deviations, each (m, D), 0 where they say nothing."""
    rows, mean, m2 = np.zeros((len(replies), D), dtype=np.int64), *np.zeros((2, len(replies), D))
    for i, reply in enumerate(replies.values()):
        has = reply["cluster"]
        rows[i, has], mean[i, has], m2[i, has] = reply["counts"], reply["centroids"][:, 0], reply["m2"][:, 0]
    return rows, mean, m2


def spreads(columns: Columns, replies: Mapping[str, Message]) -> FloatArray:
    """Return the squared deviations of each site's rows from their mean, in scaled units and added over its columns (m,).

    NaN where a site gave no sums.
    """
    found = np.full(len(columns.sites), np.nan)
    if columns.deviation is not None:
        for i, reply in enumerate(replies[site] for site in columns.sites):
            if len(reply["m2"]):
                has, own = places(columns.codes, reply["codes"])
                found[i] = float((reply["m2"][own] / columns.deviation[has] ** 2).sum())
    return found


def check_known(columns: Columns, spread: KnownSpread) -> None:
    """Raise JobFailed where no site gave mean and deviation of a column."""
    if (unknown := np.flatnonzero(spread.counts == 0)).size:
        lacking = ", ".join(columns.names[j] for j in unknown[:_SHOWN])
        holders = ", ".join(np.array(columns.sites)[columns.masks[:, unknown].any(axis=1)][:_SHOWN].tolist())
        raise JobFailed(
            f"no site has enough rows to disclose the mean of {lacking}: only {holders} has it, with fewer than {LEAST_ROWS} rows or "
            "min_count, or rows that their mean would give away. Leave such columns or sites out, or set scale=none"
        )


def check_divisors(columns: Columns, divisor: FloatArray) -> None:
    """Raise JobFailed where rows would be divided by less than `LEAST_DEVIATION`."""
    if (small := np.flatnonzero(divisor < LEAST_DEVIATION)).size:
        raise JobFailed(
            f"the standard deviation of {', '.join(columns.names[j] for j in small[:_SHOWN])} is below {LEAST_DEVIATION:g}; "
            "give such columns in a smaller unit, or leave them out"
        )
