"""The server's side of comparing columns: what it keeps of the sites' means and deviations, and warnings of odd columns.

Where it knows these of each site it compares them itself. With secure sums it knows how many sites found a column of their own
odd (`flareclust.executors.odd_columns`).
"""

import logging
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core.scaling import Spread, rounded
from flareclust.evaluation import agreement
from flareclust.features import alignment
from flareclust.features.columns import Columns, by_column

_log = logging.getLogger(__name__)

#: What is kept of the sites' own columns, where their replies come one by one: names (m,); numbers of known cells, means and
#: deviations (m, d), the latter two NaN where a site lacks the column or knows too few cells.
OF_SITES = SCALED_SITES, SITE_CELLS, SITE_MEANS, SITE_DEVIATIONS = (
    "scaled_sites",
    "site_cells",
    "site_means",
    "site_deviations",
)

#: With secure sums in their place: the number of sites by column and what is odd about it (d, u).
ODD_SITES = "odd_sites"


def of_sites(names: list[str], cells: IntArray, means: FloatArray, deviations: FloatArray) -> Message:
    """Return what is kept of the sites' own columns, `OF_SITES`."""
    return {SCALED_SITES: np.array(names), SITE_CELLS: cells, SITE_MEANS: means, SITE_DEVIATIONS: deviations}


def of_described(columns: Columns, replies: Mapping[str, Message]) -> Message:
    """Return the same of sites with different columns, rounded, from what they sent of these.

    Args:
        columns: of the federation, D of them.
        replies: to the step `describe`, by site.
    """
    cells = np.zeros(columns.masks.shape, dtype=np.int64)
    means, deviations = np.full((2, *cells.shape), np.nan)
    for i, reply in enumerate(replies[site] for site in columns.sites):
        if len(reply["m2"]):
            positions = alignment.places(columns.codes, reply["codes"])
            has, own = positions >= 0, positions[positions >= 0]
            n = cells[i, has] = int(reply["rows"])
            _, means[i, has], deviations[i, has] = rounded(Spread(n, reply["mean"][own], np.sqrt(reply["m2"][own] / n)))
    return of_sites(list(columns.sites), cells, means, deviations)


def of_known(columns: Columns, replies: Mapping[str, Message]) -> Message:
    """Return the same from what they sent of the known cells of their columns, D in all."""
    cells, means, m2 = by_column(replies, len(columns.codes))
    found = np.full((2, *cells.shape), np.nan)
    for i, j in np.argwhere(cells > 0).tolist():
        n = int(cells[i, j])
        _, *found[:, i, [j]] = rounded(Spread(n, means[i, [j]], np.sqrt(m2[i, [j]] / n)))
    return of_sites(list(replies), cells, *found)


def odd_between_sites(
    arrays: Message,
    names: Sequence[str],
    left_out: BoolArray,
    absent: Collection[str] = (),
    dates: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each column that is odd at a site, or with secure sums at a number of sites.

    Args:
        arrays: what was kept of the sites; there is nothing to say without.
        names: of the columns (d,).
        left_out: columns that are not compared (d,), as those of categories: they have no units.
        absent: sites that are not compared.
        dates: the columns of days since 1970-01-01.
    """
    if ODD_SITES in arrays:
        return agreement.counted_oddities(arrays[ODD_SITES], names)
    if SITE_CELLS not in arrays:
        return []
    sites = arrays[SCALED_SITES].tolist()
    present = np.array([site not in absent for site in sites])
    cells, means, deviations = (
        arrays[name][np.ix_(present, ~left_out)] for name in (SITE_CELLS, SITE_MEANS, SITE_DEVIATIONS)
    )
    compared = [name for name, leave in zip(names, left_out.tolist(), strict=True) if not leave]
    return agreement.unit_warnings(
        [site for site in sites if site not in absent], cells, means, deviations, compared, dates
    )


def log_before_rounds(sentences: Sequence[str]) -> None:
    """Log warnings about columns before the first round; the result has them, too, with the columns' names."""
    for sentence in sentences:
        _log.warning("%s", sentence)
