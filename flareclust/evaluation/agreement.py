"""Whether sites mean the same by their columns, and whether a cluster is a group of rows or a site.

Sources of a beautiful wrong answer: one site has a column in another unit, or its rows differ for reasons of the site's own,
such as another device (a batch effect). Either makes that site a cluster by itself, with excellent silhouettes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: Factors between units that sites mix up, and what is said of them.
UNITS: Mapping[float, str] = {
    **{10.0**power: f"{10**power:,}" for power in (1, 2, 3, 6)},
    25.4: "25.4 (inches)",
    2.54: "2.54 (inches)",
    1 / 0.45359237: "2.2 (pounds)",
    365.25: "365 (years)",
}

#: Means and deviations agree with a factor where their logarithms are so near to its own.
_NEAR = 0.2

#: From this factor on they may be farther from it, since patients differ from site to site, but not by so much.
_LARGE, _NEAR_MEAN, _NEAR_DEVIATION = 10.0, 0.6, 0.3

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
    if len(sites) < 2:
        return []
    if len(sites) == 2:  # nobody can say which of the two is right
        usual, spread = means[1], deviations[1]
        sites, means, deviations = sites[:1], means[:1], deviations[:1]
    else:
        usual, spread = _medians(means), _medians(deviations)
    found = []
    for site, own_mean, own_deviation in zip(sites, means, deviations, strict=True):
        for j, name in enumerate(names):
            said = _said(own_mean[j], own_deviation[j], usual[j], spread[j])
            if said is not None:
                found.append(f"{site}: column {name!r} {said}")
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


def _said(mean: float, deviation: float, usual: float, spread: float) -> str | None:
    """Return what is odd about a column in words that follow its name; None for nothing."""
    if not deviation > 0 or not spread > 0:
        return None
    for factor, word in UNITS.items():
        within, around = (_NEAR_DEVIATION, _NEAR_MEAN) if factor >= _LARGE else (_NEAR, _NEAR)
        for ratio, how in ((factor, "larger"), (1 / factor, "smaller")):
            if _near(deviation / spread, ratio, within) and (
                _near(mean, ratio * usual, around) or _flat(mean, deviation, usual, spread)
            ):
                return f"is about {word} times {how} than at other sites; is it in another unit?"
    fahrenheit = _near(deviation / spread, 1.8) and abs((mean - 32) / 1.8 - usual) < 0.5 * spread
    if fahrenheit or (_near(spread / deviation, 1.8) and abs((usual - 32) / 1.8 - mean) < 0.5 * deviation):
        return "looks like Fahrenheit at some sites and Celsius at others"
    if abs(mean - usual) > _APART * (deviation + spread):
        return f"has values apart from those of other sites (mean {mean:.4g}, elsewhere {usual:.4g}); does it mean the same?"
    return None


def _medians(values: FloatArray) -> FloatArray:
    """Return the median of each column (d,) over the sites (m, d) that know it; NaN where none does."""
    known = [column[~np.isnan(column)] for column in values.T]
    return np.array([np.median(column) if len(column) else np.nan for column in known])


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
