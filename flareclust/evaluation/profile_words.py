"""Profiles in words: the columns that tell most about a cluster, and the branches of the tree."""

from collections.abc import Sequence
from math import floor, log10
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flareclust._foundation.display import rounded
from flareclust.data.cells import DAYS, iso_date, levels_in, nearest_level, without_age, without_log
from flareclust.evaluation.noisy_profiles import NoisyProfiles
from flareclust.evaluation.profiles import Profiles, categories_among

#: The condition of a tree without a split.
_ALL_ROWS = "all rows"

#: So many columns are named of each cluster.
_MOST_TELLING = 3

#: A mean nearer to that of all rows than so many standard deviations tells nothing, and from how many on words say "much".
_NOTHING, _MUCH = 0.2, 1.0

#: The edge between 0 and 1. Policies put averages of groups in the place of these, which have other edges, too.
_HALF = 0.5

#: So many values of an ordered column have their shares shown.
_MOST_LEVELS = 6

#: Longer names of columns are cut.
_LONGEST = 36

#: A leaf with a smaller share of one cluster says nothing about it.
_PURE = 0.5

#: Numbers are shown with the digits of this part of a standard deviation.
_SHOWN = 0.1

_Described: TypeAlias = Profiles | NoisyProfiles


class _Telling(NamedTuple):
    """One column that tells about a cluster.

    Attributes:
        text: such as "crp much higher: 58 (all 21)", or "sex f higher: 82 % (all 51 %)".
        z: how many standard deviations the mean is from that of all rows, or how much a noisy one says on the same scale.
    """

    text: str
    z: float


class _Branch(NamedTuple):
    """One leaf of the tree.

    Attributes:
        cluster: that it names.
        text: its conditions, such as "age > 61 and crp > 40"; "all rows" where there are none.
        rows: that it has.
        purity: share of these that are of the cluster.
        found: share of the cluster's rows that it has.
    """

    cluster: int
    text: str
    rows: int
    purity: float
    found: float


def number(value: float, deviation: float) -> str:
    """Return a number with the digits that a column of this standard deviation needs."""
    if not np.isfinite(value):
        return "unknown"
    size = deviation * _SHOWN if deviation > 0 else abs(value) * 1e-3
    digits = -floor(log10(size)) if size > 0 else 0
    return f"{value:.3g}" if digits > 6 or abs(value) >= 1e9 else rounded(value, max(digits, 0))


def percent(share: float) -> str:
    """Return a share in per cent; those that are not quite all or nothing say so."""
    share = min(max(share, 0.0), 1.0)  # rounding of sums
    if 1e-9 < share < 0.01:
        return "<1 %"
    return ">99 %" if 0.99 < share < 1 - 1e-9 else f"{rounded(100 * share, 0)} %"


def plain_name(columns: Sequence[str], j: int, unit: str = "") -> str:
    """Return the name of a column, of an age or a logarithm in plain words, with its unit: "crp (mg/l)", "age in years at 2024-12-31".

    Where several columns are ages, the name of that with the dates stands behind.
    """
    if (age := without_age(columns[j])) is None:
        log = without_log(columns[j])
        name = columns[j] if log is None else f"logarithm of {log}"
        return f"{name} ({unit})" if unit else name
    alone = sum(without_age(one) is not None for one in columns) == 1
    return f"age{unit and f' in {unit}'} at {age[1]}{'' if alone else f' ({age[0]})'}"


def plain_names(columns: Sequence[str]) -> list[str]:
    """Return the names of columns as `plain_name` does, the categories of one, such as `sex=f` and `sex=m`, once."""
    of_categories = {j: name for name, places in categories_among(columns, range(len(columns))).items() for j in places}
    return list(dict.fromkeys(of_categories.get(j) or plain_name(columns, j) for j in range(len(columns))))


def _name_of(profiles: _Described, j: int, unit: str = "") -> str:
    """Return `plain_name`, cut where it is long; that of a logarithm without it, since its values are shown so."""
    name = profiles.columns[j]
    if without_age(name) is not None:
        return plain_name(profiles.columns, j, unit)
    if without_log(profiles.unit(j)) is not None:
        name = without_log(name) or name
    return plain_name([name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"], 0, unit)


def with_unit(profiles: _Described, j: int) -> str:
    """Return the name of a column, and its unit where it has one."""
    unit = profiles.unit(j)
    unit = unit if (within := without_log(unit)) is None else within
    return _name_of(profiles, j, "" if unit == DAYS or levels_in(unit) else unit)


def value_of(profiles: _Described, j: int, value: float) -> str:
    """Return a value of a column as `value_text` does; of shares of rows, in per cent."""
    if profiles.shares[j] and not profiles.levels(j):
        return percent(value)
    return value_text(value, float(profiles.overall[1][j]), profiles.unit(j))


def value_text(value: float, deviation: float, unit: str) -> str:
    """Return a value of a column of this deviation with the digits that it needs, in the words of its unit.

    Of dates the ISO date, of ordered values the nearest, of logarithms what they are of: so the mean of log1p(x) is shown as
    expm1 of it, which is near the geometric mean of x where x is well above 1.
    """
    if not np.isfinite(value):
        return number(value, deviation)
    if without_log(unit) is not None:
        return number(float(np.expm1(value)), float(np.exp(value) * deviation))
    if levels := levels_in(unit):
        return levels[nearest_level(levels, value)]
    return iso_date(value) if unit == DAYS else number(value, deviation)


def level_shares(profiles: Profiles, cluster: int, j: int) -> list[str]:
    """Return the share of each value of an ordered column in a cluster, of many values those with most rows; none where they are not known."""
    counts = profiles.level_counts.get(j)
    if counts is None or not (total := counts[cluster].sum()):
        return []
    most = np.sort(np.argsort(-counts[cluster], kind="stable")[:_MOST_LEVELS])
    levels, shares = profiles.levels(j), counts[cluster] / total
    return [f"{levels[at]} {percent(shares[at])}" for at in most if shares[at]]


def telling(profiles: _Described, cluster: int, most: int = _MOST_TELLING) -> list[_Telling]:
    """Return the columns in which a cluster differs most from all rows, the first most; of categories one each."""
    if profiles.undescribed(cluster):
        return []
    z, owner = profiles.apart[cluster], {j: name for name, places in profiles.categories.items() for j in places}
    found: list[_Telling] = []
    seen: set[str] = set()
    # Of two categories as far from all, the one that the cluster has more of says it in fewer words.
    for j in sorted(range(len(z)), key=lambda j: (-round(abs(z[j]), 9), -z[j], j)):
        if abs(z[j]) < _NOTHING or len(found) == most:
            break
        if owner.get(j, "") in seen:
            continue
        seen |= {owner[j]} if j in owner else set()
        found.append(_Telling(_said(profiles, cluster, j), float(z[j])))
    return found


def _said(profiles: _Described, cluster: int, j: int) -> str:
    name, value, center = _name_of(profiles, j), profiles.mean[cluster, j], profiles.overall[0]
    z = profiles.apart[cluster, j]
    how = f"{'much ' if abs(z) >= _MUCH else ''}{'higher' if z > 0 else 'lower'}"
    if profiles.levels(j):
        return f"{name} {how}: {_said_of_levels(profiles, cluster, j, above=bool(z > 0))}"
    if profiles.shares[j]:
        return f"{name.replace('=', ' ', 1)} {how}: {percent(value)} (all {percent(center[j])})"
    return f"{with_unit(profiles, j)} {how}: {value_of(profiles, j, value)} (all {value_of(profiles, j, center[j])})"


def _said_of_levels(profiles: _Described, cluster: int, j: int, *, above: bool) -> str:
    """Return how a cluster differs in an ordered column: by the nearest values, and by the share that tells most where it is known."""
    own, of_all = (value_of(profiles, j, values[j]) for values in (profiles.mean[cluster], profiles.overall[0]))
    nearest = f"{own} (all {of_all})" if own != of_all else ""
    counts = profiles.level_counts.get(j) if isinstance(profiles, Profiles) else None
    if counts is None:
        return nearest or f"nearest to {own}, as all"
    there, everywhere = (np.cumsum(rows)[:-1] / rows.sum() for rows in (counts[cluster], counts.sum(axis=0)))
    at = int(np.abs(there - everywhere).argmax())
    low, high = (at + 1, None) if above else (None, at)
    parts = (percent(1 - up_to[at] if above else up_to[at]) for up_to in (there, everywhere))
    levels = _levels_text(profiles.levels(j), low, high)
    share = "{} {} (all {})".format(levels, *parts)
    return f"{nearest}, {share}" if nearest and levels != own else share


def _levels_text(levels: Sequence[str], low: int | None, high: int | None) -> str:
    """Return ordered values from the place `low` to the place `high` in words; None for no end."""
    low, high = low or None, None if high is None or high >= len(levels) - 1 else high
    if low is None or high is None:
        alone = low == len(levels) - 1 if high is None else high == 0
        end, way = (low or 0, "above") if high is None else (high, "below")
        return levels[end] if alone else f"{levels[end]} or {way}"
    inside = levels[low : high + 1]
    return inside[0] if len(inside) == 1 else f"{inside[0]} {'or' if len(inside) == 2 else 'to'} {inside[-1]}"


def sentence(profiles: _Described, cluster: int) -> str:
    """Return what tells most about a cluster in one line."""
    if why := profiles.undescribed(cluster):
        return why
    found = telling(profiles, cluster)
    return "; ".join(one.text for one in found) if found else profiles.alike


def branches(profiles: Profiles) -> list[_Branch]:
    """Return the leaves of the tree by cluster, the largest part of each first; nothing without a tree."""
    tree = profiles.tree
    if tree is None:
        return []
    in_all, found = tree.rows[tree.leaves()].sum(axis=0), []
    for leaf in tree.leaves():
        cluster, rows = tree.names(leaf), tree.rows[leaf]
        own, total = float(rows[cluster]), int(rows.sum())
        found.append(_Branch(cluster, _conditions(profiles, leaf), total, own / total, own / float(in_all[cluster])))
    return sorted(found, key=lambda one: (one.cluster, -one.found))


def rule_of(profiles: Profiles, cluster: int) -> _Branch | None:
    """Return the leaf that finds most of a cluster; None where none is mostly of it, or the tree has no split."""
    own = (one for one in branches(profiles) if one.cluster == cluster and one.text != _ALL_ROWS)
    return next((one for one in own if one.purity >= _PURE), None)


def tree_table(profiles: Profiles) -> dict[str, list[Any]]:
    """Return a line per leaf of the tree."""
    leaves = branches(profiles)
    return {
        "cluster": [one.cluster for one in leaves],
        "conditions": [one.text for one in leaves],
        "rows": [one.rows for one in leaves],
        "purity": [one.purity for one in leaves],
        "share_of_cluster": [one.found for one in leaves],
    }


def _conditions(profiles: Profiles, leaf: int) -> str:
    """Return what leads to a leaf: for each column on the way the narrowest bounds."""
    tree = profiles.tree
    assert tree is not None
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    order: list[int] = []
    way = []
    while leaf:
        way.append(leaf)
        leaf = (leaf - 1) // 2
    for node in reversed(way):
        above = (node - 1) // 2
        j, edge = int(tree.column[above]), float(profiles.edges[above])
        order += [j] if j not in order else []
        if node == 2 * above + 2:
            low[j] = max(edge, low.get(j, -np.inf))
        else:
            high[j] = min(edge, high.get(j, np.inf))
    return " and ".join(_condition(profiles, j, low.get(j), high.get(j)) for j in order) or _ALL_ROWS


def _condition(profiles: Profiles, j: int, low: float | None, high: float | None) -> str:
    name = _name_of(profiles, j)
    if levels := profiles.levels(j):
        return f"{name}: {_levels_between(levels, low, high)}"
    if profiles.shares[j] and _HALF in (low, high) and (low is None or high is None):
        if "=" in name:
            column, category = name.split("=", 1)
            places = profiles.categories[profiles.columns[j].split("=", 1)[0]]
            if low is None and len(places) == 2:
                other = profiles.columns[places[1 - places.index(j)]]
                return f"{column} is {other.split('=', 1)[1]}"
            return f"{column} is {category}" if low is not None else f"{column} is not {category}"
        return f"{name} is {1 if low is not None else 0}"
    first, second = (None if edge is None else _edge(profiles, j, edge) for edge in (low, high))
    if first is not None and second is not None:
        return f"{first} < {name} ≤ {second}"
    return f"{name} > {first}" if first is not None else f"{name} ≤ {second}"


def _levels_between(levels: Sequence[str], low: float | None, high: float | None) -> str:
    """Return the ordered values above one edge, up to another, in words; an edge that does not bind is none."""
    first = 0 if low is None else min(max(floor(low) + 1, 0), len(levels))
    last = len(levels) - 1 if high is None else min(max(floor(high), -1), len(levels) - 1)
    if first > last:  # only means of groups lie there
        return f"between {levels[max(last, 0)]} and {levels[min(first, len(levels) - 1)]}"
    return _levels_text(levels, first, last)


def _edge(profiles: Profiles, j: int, value: float) -> str:
    """Return an edge with the digits that it was rounded to; of dates the last day below it, of logarithms what they are of."""
    if without_log(profiles.unit(j)) is not None:
        return number(float(np.expm1(value)), abs(float(np.expm1(value))) * _SHOWN)
    if profiles.unit(j) == DAYS:
        return iso_date(floor(value))
    return f"{value + 0.0:.10g}"  # no -0
