"""Whether clusters are groups of rows or a site: the mark of its device, a column in another unit, or a few wrong cells."""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.display import all_of, some
from flareclust._foundation.typing import IntArray

#: Clusters may be a batch effect where this share of their rows is one site's, this share of its rows is in them, and of the
#: other sites' rows this share is elsewhere.
_ALONE, _HELD, _ELSEWHERE = 0.9, 0.5, 0.95

#: So many sites are named in a sentence.
_SHOWN = 5

#: With fewer rows nothing is said of a batch effect, and a cluster is tiny if it has less than this part of the mean size.
_LEAST, _TINY = 10, 0.01


def batch_effects(counts: Mapping[str, IntArray]) -> list[str]:
    """Return a sentence about the sites that have most of their rows in clusters that have nearly no others; empty for none.

    Sites with patients of their own have such clusters as well, so all of them are in one sentence that leaves it open.

    Args:
        counts: rows of each cluster (k,) by site.
    """
    if len(counts) < 2:
        return []
    table = np.array(list(counts.values()), dtype=np.float64)
    sizes = table.sum(axis=0)
    found: list[tuple[str, str, float, float]] = []
    for site, own in zip(counts, table, strict=True):
        alone = (sizes > 0) & (own >= _ALONE * sizes)
        here, rows, total = own[alone].sum(), own.sum(), sizes[alone].sum()
        elsewhere = sizes.sum() - rows
        if total < _LEAST or here < _HELD * rows or total - here > (1 - _ELSEWHERE) * elsewhere or not elsewhere:
            continue
        numbers = np.flatnonzero(alone).tolist()
        which = f"cluster{'s' if len(numbers) > 1 else ''} {all_of(numbers)}"
        found.append((site, which, 100 * here / total, 100 * here / rows))
    if len(found) > 1:
        named = some([f"{site} ({which})" for site, which, _, _ in found], _SHOWN, "more sites")
        said = f"clusters of {len(found)} sites may be a batch effect, as of another unit or device, or are their patients others? {named}"
        return [f"{said}: of the rows of these clusters at least {_ALONE:.0%} are one site's"]
    return [
        f"{which} may be a batch effect: {of_cluster:.0f} % of {'their' if which.startswith('clusters') else 'its'} rows are those of "
        f"{site}, and they are {of_site:.0f} % of that site's"
        for site, which, of_cluster, of_site in found
    ]


def tiny_clusters(counts: Mapping[str, IntArray]) -> list[str]:
    """Return a sentence about clusters of a few rows, which may be errors; empty where there are none.

    Args:
        counts: rows of each cluster (k,) by site, or of all sites together.
    """
    sizes = np.sum(list(counts.values()), axis=0) if counts else np.zeros(0)
    total = float(np.sum(sizes))
    small = [
        f"cluster {c} ({sizes[c]:.0f} row{'' if sizes[c] == 1 else 's'})"
        for c in np.flatnonzero((sizes > 0) & (sizes < _LEAST) & (sizes < _TINY * total / max(len(sizes), 1)))
    ]
    if not small:
        return []
    return [
        f"few of {total:,.0f} rows are in {some(small, 5)}: a rare group, or errors such as a code for missing cells?"
    ]
