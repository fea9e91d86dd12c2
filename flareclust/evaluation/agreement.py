"""Whether sites mean the same by their columns, and whether a cluster is a group of rows or a site.

Sources of a beautiful wrong answer: one site has a column in another unit, or its rows differ for reasons of the site's own,
such as another device (a batch effect). Either makes that site a cluster by itself, with excellent silhouettes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.scaling import KnownSpread, without

#: Factors between units that sites mix up, and what is said of them.
UNITS: Mapping[float, str] = {
    **{10.0**power: f"{10**power:,}" for power in (1, 2, 3, 6)},
    25.4: "25.4 (inches)",
    2.54: "2.54 (inches)",
    1 / 0.45359237: "2.2 (pounds)",
    365.25: "365 (years)",
}

#: What can be odd about a column, in words that follow its name: a unit factor, larger or smaller, and two more.
ODDITIES: Sequence[str] = (
    *(
        f"is about {word} times {how} than at other sites; is it in another unit?"
        for word in UNITS.values()
        for how in ("larger", "smaller")
    ),
    "looks like Fahrenheit at some sites and Celsius at others",
    "has values apart from those of other sites; does it mean the same?",
)
_FAHRENHEIT, _ELSEWHERE = len(ODDITIES) - 2, len(ODDITIES) - 1

#: Means and deviations agree with a factor where their logarithms are so near to its own.
_NEAR = 0.2

#: From this factor on they may be farther from it, since patients differ from site to site, but not by so much.
_LARGE, _NEAR_MEAN, _NEAR_DEVIATION = 10.0, 0.6, 0.3

#: Where other sites' deviation, over their mean, is so many times a site's own, their values are in several units.
_MIXED = 1.25

#: Columns lie apart where means differ by more than so many deviations of both sites together.
_APART = 4.0

#: A cluster may be a batch effect where it is this share of a site's rows, and the site has this share of its own.
_ALONE = 0.95

#: So many columns are named in a sentence.
_SHOWN = 8

#: Smaller clusters are not looked at.
_LEAST = 10


def unit_warnings(sites: Sequence[str], means: FloatArray, deviations: FloatArray, names: Sequence[str]) -> list[str]:
    """Return a sentence for each site and column whose unit, or whose rows, seem to be others than at the other sites.

    NaN stands for what a site does not know of a column.

    Args:
        sites: their names (m,); with fewer than two there is nothing to compare.
        means: of their columns (m, d).
        deviations: of their columns (m, d).
        names: of the columns (d,).
    """
    found = []
    for j, name in enumerate(names):
        known = np.flatnonzero(~(np.isnan(means[:, j]) | np.isnan(deviations[:, j])))
        if len(known) < 2:
            continue
        pair = len(known) == 2  # nobody can say which of the two is right
        usual, spread = (np.median(values[known[1:] if pair else known, j]) for values in (means, deviations))
        for i in known[:1] if pair else known:
            odd = _oddity(means[i, j], deviations[i, j], usual, spread)
            if odd is not None:
                where = f" (mean {means[i, j]:.4g}, elsewhere {usual:.4g})" if odd == _ELSEWHERE else ""
                found.append((i, f"{sites[i]}: column {name!r} {ODDITIES[odd].replace(';', where + ';', 1)}"))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def own_oddities(pooled: KnownSpread, own: KnownSpread, minimum: int) -> IntArray:
    """Return what is odd about a site's columns beside those of the other sites together: which of `ODDITIES` (d,), -1 for nothing.

    Args:
        pooled: the columns over all sites.
        own: those of the site, as they are part of that.
        minimum: smallest number of cells, here and elsewhere, that are compared.
    """
    others = without(pooled, own)
    found = np.full(len(own.mean), -1, dtype=np.int64)
    for j in np.flatnonzero(np.minimum(own.counts, others.counts) >= max(minimum, 1)):
        mean, deviation, usual, spread = own.mean[j], own.deviation[j], others.mean[j], others.deviation[j]
        odd = _oddity(mean, deviation, usual, spread)
        if odd is not None and not (_says_smaller(odd) and _may_be_mixed(mean, deviation, usual, spread)):
            found[j] = odd
    return found


def counted_oddities(numbers: IntArray, names: Sequence[str]) -> list[str]:
    """Return a sentence for each column and oddity, where it is known at how many sites it is and not at which.

    Args:
        numbers: of sites by column and oddity (d, u).
        names: of the columns (d,).
    """
    found = []
    for j, odd in zip(*np.nonzero(numbers), strict=True):
        n, said = int(numbers[j, odd]), ODDITIES[odd]
        who, whose = (
            ("1 site has", "The log of that site names it") if n == 1 else (f"{n} sites have", "Their logs name them")
        )
        found.append(f"{who} a column {names[j]!r} that {said}{'' if said.endswith('?') else '.'} {whose}")
    return found


def missing_cells(names: Sequence[str], missing: IntArray, rows: IntArray, *, left_open: bool = False) -> str:
    """Return a sentence with the number of missing cells of each column, the most first; empty where there are none.

    Args:
        names: of the columns (d,).
        missing: their missing cells at all sites together (d,).
        rows: of all sites (), or of those that have the column (d,).
        left_open: whether they count nowhere; else they were filled.
    """
    order = [j for j in np.argsort(-missing, kind="stable") if missing[j]]
    if not order:
        return ""
    shares = 100 * missing / np.maximum(rows, 1)
    shown = [f"{names[j]!r} {missing[j]:,} ({shares[j]:.2g} %)" for j in order[:_SHOWN]]
    more = f" and of {len(order) - _SHOWN} more columns" if len(order) > _SHOWN else ""
    how = "count neither in distances nor in means" if left_open else "were filled with the means of their columns"
    return f"missing cells {how}: {', '.join(shown)}{more}"


def _oddity(mean: float, deviation: float, usual: float, spread: float) -> int | None:
    """Return which of `ODDITIES` is that of a column; None for none."""
    if not deviation > 0 or not spread > 0:
        return None
    for i, factor in enumerate(UNITS):
        within, around = (_NEAR_DEVIATION, _NEAR_MEAN) if factor >= _LARGE else (_NEAR, _NEAR)
        for smaller, ratio in enumerate((factor, 1 / factor)):
            if _near(deviation / spread, ratio, within) and (
                _near(mean, ratio * usual, around) or _flat(mean, deviation, usual, spread)
            ):
                return 2 * i + smaller
    fahrenheit = _near(deviation / spread, 1.8) and abs((mean - 32) / 1.8 - usual) < 0.5 * spread
    if fahrenheit or (_near(spread / deviation, 1.8) and abs((usual - 32) / 1.8 - mean) < 0.5 * deviation):
        return _FAHRENHEIT
    if abs(mean - usual) > _APART * (deviation + spread):
        return _ELSEWHERE
    return None


def _says_smaller(odd: int) -> bool:
    return odd < _FAHRENHEIT and odd % 2 == 1


def _may_be_mixed(mean: float, deviation: float, usual: float, spread: float) -> bool:
    """Return whether the values of other sites together may be large because those of one of them are in another unit.

    Their deviation then grows more than their mean does; of columns about 0 nobody can say it.
    """
    return _flat(mean, deviation, usual, spread) or spread * abs(mean) > _MIXED * deviation * abs(usual)


def _near(value: float, expected: float, within: float = _NEAR) -> bool:
    return value * expected > 0 and abs(np.log(value / expected)) < within


def _flat(mean: float, deviation: float, usual: float, spread: float) -> bool:
    """Return whether both means are 0 within what deviates, so that they say nothing about a unit."""
    return abs(mean) < 0.5 * deviation and abs(usual) < 0.5 * spread


def batch_effects(counts: Mapping[str, IntArray]) -> list[str]:
    """Return a sentence for each cluster that is nearly one site's rows, and nearly all of them.

    Args:
        counts: rows of each cluster (k,) by site.
    """
    if len(counts) < 2:
        return []
    table = np.array(list(counts.values()), dtype=np.float64)
    found = []
    for c in np.flatnonzero(table.sum(axis=0) >= _LEAST):
        i = int(table[:, c].argmax())
        own = table[i, c]
        if table.shape[1] > 1 and own >= _ALONE * table[:, c].sum() and own >= _ALONE * table[i].sum():
            site = list(counts)[i]
            found.append(
                f"cluster {c} may be a batch effect: {100 * own / table[:, c].sum():.0f} % of its rows are those of {site}, and they "
                f"are {100 * own / table[i].sum():.0f} % of that site's"
            )
    return found
