"""Whether sites mean the same by their columns, and how many of their cells are missing.

A source of a beautiful wrong answer: one site has a column in another unit, and becomes a cluster by itself, with excellent
silhouettes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.scaling import KnownSpread, without
from flareclust.data.cells import DAYS, iso_date, levels_in, nearest_level, odd_cells, unlogged
from flareclust.data.tables import Table
from flareclust.evaluation import units

#: So many columns are named in a sentence.
_SHOWN = 8

#: Up to so many columns that are odd in the same way have a sentence each; of more, the others are named in that of the first.
_ONE_BY_ONE = 3

#: What is said of other sites, and of the rows of a run.
_OF_A_RUN = (
    ("than at other sites", "than in the run"),
    ("at some sites and Celsius at others", "here and Celsius in the run, or the reverse"),
    ("those of other sites", "those of the run"),
    ("elsewhere", "in the run"),
)

#: From so many sites on it is known how much they vary.
_KNOWN_TO_VARY = 4


def unit_warnings(
    sites: Sequence[str],
    cells: FloatArray,
    means: FloatArray,
    deviations: FloatArray,
    names: Sequence[str],
    column_units: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return a sentence for each site and column whose unit, or whose rows, seem to be others than at the other sites.

    NaN stands for what a site does not know of a column.

    Args:
        sites: their names (m,); with fewer than two there is nothing to compare.
        cells, means, deviations: of their columns, of known cells, each (m, d).
        names: of the columns (d,).
        column_units: by name; as schemas write them, none where they are not known.
    """
    found: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for j, name in enumerate(names):
        known = np.flatnonzero(~np.isnan(means[:, j]) & (deviations[:, j] > 0))  # equal cells say nothing of a unit
        columns = [units.Cells(*(float(values[i, j]) for values in (cells, means, deviations))) for i in known]
        for i, (odd, others) in _odd_sites(columns, column_units.get(name, "")).items():
            said = f"column {name!r} {_with_numbers(odd, columns[i], others, column_units.get(name, ''))}"
            found.setdefault((int(known[i]), odd.code), []).append((name, said))
    return [f"{sites[i]}: {said}" for (i, _), odd_ones in sorted(found.items()) for said in _together(odd_ones)]


def unlike_tables(
    tables: Mapping[str, Table], column_units: Mapping[str, str], left_out: Collection[str] = ()
) -> list[str]:
    """Return the same sentences of the sites' own tables, which may lack columns; those `left_out` are not compared.

    Of columns that are mostly 0 and never negative, such as values below detection, the other cells are compared.
    """
    places = {
        site: {name: j for j, name in enumerate(_names_of(table)) if name not in left_out}
        for site, table in tables.items()
    }
    names, zeros = list(dict.fromkeys(name for own in places.values() for name in own)), _mostly_zero(tables)
    cells, means, deviations = np.full((3, len(tables), len(names)), np.nan)
    for i, (site, table) in enumerate(tables.items()):
        for j, name in enumerate(names):
            x = table.X[:, places[site][name]] if name in places[site] else np.empty(0)
            if len(x := x[~np.isnan(x) & ((x > 0) | (name not in zeros))]):
                cells[i, j], means[i, j], deviations[i, j] = len(x), x.mean(), x.std()
    return unit_warnings(list(tables), cells, means, deviations, names, column_units)


def _mostly_zero(tables: Mapping[str, Table]) -> set[str]:
    """Return the columns of which at some site half of the known cells are 0, and none at any is negative."""
    zeros, negative = set[str](), set[str]()
    for table in tables.values():
        for name, x in zip(_names_of(table), table.X.T, strict=True):
            known = x[~np.isnan(x)]
            zeros |= {name} if 2 * np.count_nonzero(known == 0) >= len(known) else set()
            negative |= {name} if (known < 0).any() else set()
    return zeros - negative


def unlike_columns(
    X: FloatArray,
    known: tuple[IntArray, FloatArray, FloatArray],
    names: Sequence[str],
    column_units: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return a sentence for each column of rows that seems to be in another unit than in others, of a run before.

    Args:
        X: the rows (n, d), NaN where a cell is missing.
        known: cells, means and deviations of the columns of the others, each (d,).
        names: of the columns (d,).
        column_units: by name; as schemas write them, none where they are not known.
    """
    found: dict[int, list[tuple[str, str]]] = {}
    for j, name in enumerate(names):
        values = X[:, j][~np.isnan(X[:, j])]
        if not len(values) or not known[0][j]:
            continue
        own = units.Cells(len(values), float(values.mean()), float(values.std()))
        others = units.Cells(*(float(numbers[j]) for numbers in known))
        odd = units.oddity(own, others, unit=column_units.get(name, ""))
        if odd is not None:
            said = _with_numbers(odd, own, others, column_units.get(name, ""))
            for theirs, words in _OF_A_RUN:
                said = said.replace(theirs, words)
            found.setdefault(odd.code, []).append((name, f"column {name!r} {said}"))
    return [said for odd_ones in found.values() for said in _together(odd_ones)]


def _odd_sites(columns: Sequence[units.Cells], unit: str) -> dict[int, tuple[units.Odd, units.Cells]]:
    """Return what is odd about one column by the place of a site, and what it was compared with."""
    if len(columns) < 2:
        return {}
    if len(columns) == 2:  # nobody can say which of the two has another unit, but who has far cells
        first, second = (units.oddity(columns[i], columns[1 - i], unit=unit) for i in (0, 1))
        if first is not None:
            return {0: (first, columns[1])}
        return {1: (second, columns[0])} if second is not None and second.code == units.FAR_CELLS else {}
    usual, varying = units.Cells(*np.median(columns, axis=0).tolist()), _varying(columns)
    odd_ones = [(i, units.oddity(own, usual, varying, unit)) for i, own in enumerate(columns)]
    narrow = min(columns, key=lambda own: own.deviation)  # far cells at several sites are part of what is usual
    if narrow.deviation >= abs(
        narrow.mean
    ):  # few patients have values at all, or very large ones, and at some sites there are none
        return {i: (odd, usual) for i, odd in odd_ones if odd is not None}
    far = {i: (odd, narrow) for i, own in enumerate(columns) if (odd := units.far_cells(own, narrow)) is not None}
    return far | {i: (odd, usual) for i, odd in odd_ones if odd is not None}


def _varying(columns: Sequence[units.Cells]) -> units.Varying:
    """Return how much sites vary: median absolute deviations, so that those in another unit count little."""
    if len(columns) < _KNOWN_TO_VARY:
        return units.Varying()
    table = np.array(columns)
    values = table[:, 1], np.log(table[:, 2])
    return units.Varying(*(1.4826 * float(np.median(np.abs(x - np.median(x)))) for x in values))


def _with_numbers(odd: units.Odd, own: units.Cells, others: units.Cells, unit: str) -> str:
    """Return what is said of an oddity, with the numbers that show it where a ratio does not."""
    if odd.code == units.ELSEWHERE:
        mean, usual = (_mean(x, unit) for x in (own.mean, others.mean))
        where = f"mean {mean}, elsewhere {usual}"
    elif odd.code == units.FAR_CELLS:
        where = f"standard deviation {own.deviation:.4g}, elsewhere {others.deviation:.4g}"
    else:
        return odd.said
    return odd.said.replace(";", f" ({where});", 1)


def _mean(value: float, unit: str) -> str:
    if levels := levels_in(unit):
        return levels[nearest_level(levels, value)]
    return iso_date(value) if unit == DAYS else f"{value:.4g}"


def _together(said: Sequence[tuple[str, str]]) -> list[str]:
    """Return sentences of columns that are odd in the same way: each its own, or that of the first with the names of others."""
    if len(said) <= _ONE_BY_ONE:
        return [text for _, text in said]
    others = [name for name, _ in said[1:]]
    shown = ", ".join(map(repr, others[: _ONE_BY_ONE - 1]))
    left, text = len(others) - _ONE_BY_ONE + 1, said[0][1]
    return [
        f"{text}{'' if text.endswith('?') else '.'} Likewise {shown} and {left} more column{'s' if left > 1 else ''}"
    ]


def own_oddities(pooled: KnownSpread, own: KnownSpread, minimum: int) -> list[units.Odd | None]:
    """Return what is odd about a site's columns (d,) beside those of the other sites together; None for nothing.

    The site's own columns are part of those over all sites. Fewer cells than `minimum`, here or elsewhere, are not compared.
    """
    others = without(pooled, own)
    found: list[units.Odd | None] = [None] * len(own.mean)
    for j in np.flatnonzero(np.minimum(own.counts, others.counts) >= max(minimum, 1)):
        here, there = (units.Cells(*(float(values[j]) for values in part)) for part in (own, others))
        odd = units.oddity(here, there)
        if odd is not None and not (units.says_smaller(odd) and units.may_be_mixed(here, there)):
            found[j] = odd
    return found


def counted_oddities(numbers: IntArray, names: Sequence[str]) -> list[str]:
    """Return a sentence for each column and oddity, where it is known at how many sites it is and not at which.

    `numbers` (d, u) are of sites by column and oddity.
    """
    found: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for j, odd in zip(*np.nonzero(numbers), strict=True):
        n, said = int(numbers[j, odd]), units.ODDITIES[odd]
        who, whose = (
            (f"{n} sites have", "Their logs name them") if n > 1 else ("1 site has", "The log of that site names it")
        )
        text = f"{who} a column {names[j]!r} that {said}{'' if said.endswith('?') else '.'} {whose}"
        found.setdefault((int(odd), n), []).append((names[j], text))
    return [text for odd_ones in found.values() for text in _together(odd_ones)]


def coded_cells(tables: Mapping[str, Table]) -> Iterator[str]:
    """Give a sentence for each column with cells that are no age, or look like a code for missing ones beside those of all sites together.

    Of logarithms (transform: log) the numbers themselves are looked at: a code is far from them only there.

    Args:
        tables: by site, all of them in this process; of a single one the sentences name no site.
    """
    columns: dict[str, dict[str, FloatArray]] = {}
    for site, table in tables.items():
        for name, x in zip(_names_of(table), table.X.T, strict=True):
            columns.setdefault(name, {})[site] = x
    for name, parts in columns.items():
        column, values = unlogged(name, np.concatenate(list(parts.values())))
        odd, what = odd_cells(column, values)
        by_part = np.split(odd, np.cumsum([len(x) for x in parts.values()]))
        numbers = {site: int(cells.sum()) for site, cells in zip(parts, by_part, strict=False)}
        if number := sum(numbers.values()):
            by_site = some([f"{site} {n:,}" for site, n in numbers.items() if n], _SHOWN, "more sites")
            yield (
                f"column {column!r} has {number:,} cell{'' if number == 1 else 's'} {what}"
                f"{f' ({by_site})' if len(tables) > 1 else ''}; errors, or a code for missing ones, such as 9999? Correct them, list the "
                "code under missing: in the mapping, or leave these cells empty"
            )


def _names_of(table: Table) -> Sequence[str]:
    return table.columns or tuple(f"column {j + 1}" for j in range(table.X.shape[1]))


def missing_cells(names: Sequence[str], missing: IntArray, rows: IntArray, *, left_open: bool = False) -> str:
    """Return a sentence with the number of missing cells of each column (d,), the most first; empty where there are none.

    The rows are those of all sites (), or of those that have the column (d,). Cells that are not left open were filled.
    """
    order = [j for j in np.argsort(-missing, kind="stable") if missing[j]]
    if not order:
        return ""
    shares = 100 * missing / np.maximum(rows, 1)
    shown = [f"{names[j]!r} {missing[j]:,} ({shares[j]:.2g} %)" for j in order[:_SHOWN]]
    more = f" and of {len(order) - _SHOWN} more columns" if len(order) > _SHOWN else ""
    how = "count neither in distances nor in means" if left_open else "were filled with the means of their columns"
    return f"missing cells {how}: {', '.join(shown)}{more}"
