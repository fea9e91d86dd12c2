"""Whether clusters are groups of rows or a site: the mark of its device, a column in another unit, a few wrong cells or outliers."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flareclust._foundation.display import all_of, shown, some
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.assessment import distances_between

#: Clusters may be a batch effect where this share of their rows is one site's, this share of its rows is in them, and of the
#: other sites' rows this share is elsewhere.
_ALONE, _HELD, _ELSEWHERE = 0.9, 0.5, 0.95

#: From this share of a column's variance within clusters on, sites lie apart (benchmarks/drift.py).
_SHIFTED = 0.15

#: So many sites are named in a sentence.
_SHOWN = 5

#: With fewer rows nothing is said of a batch effect, and a cluster is tiny if it has less than this part of the mean size.
_LEAST, _TINY = 10, 0.01

#: Clusters of at most this share of the rows are outliers if they are so many times as wide as the others, or errors if they lie
#: so many times as far away as the others do from one another.
_SMALL, _WIDE, _FAR = 0.05, 3.0, 10.0


def batch_effects(counts: Mapping[str, IntArray]) -> list[str]:
    """Return a sentence about the sites that have most of their rows in clusters that have nearly no others; empty for none.

    Sites with patients of their own have such clusters as well, so all of them are in one sentence that leaves it open.

    Args:
        counts: rows of each cluster (k,) by site.
    """
    if len(counts) < 2:
        return []
    sizes = np.sum(list(counts.values()), axis=0)
    found: list[tuple[str, str, float, float]] = []
    for site, own in counts.items():
        alone = own_clusters(own, sizes)
        if alone.any():
            here = float(own[alone].sum())
            found.append((site, _named(np.flatnonzero(alone)), 100 * here / sizes[alone].sum(), 100 * here / own.sum()))
    if len(found) > 1:
        named = some([f"{site} ({which})" for site, which, _, _ in found], _SHOWN, "more sites")
        said = f"clusters of {len(found)} sites may be a batch effect, as of another unit or device, or are their patients others? {named}"
        return [f"{said}: of the rows of these clusters at least {_ALONE:.0%} are one site's"]
    return [
        f"{which} may be a batch effect: {of_cluster:.0f} % of {'their' if which.startswith('clusters') else 'its'} rows are those of "
        f"{site}, and they are {of_site:.0f} % of that site's"
        for site, which, of_cluster, of_site in found
    ]


def own_clusters(counts: IntArray, sizes: IntArray) -> BoolArray:
    """Return which clusters (k,) are nearly all one site's and have most of its rows, while nearly none of others' are there.

    Args:
        counts: the site's rows of each cluster (k,).
        sizes: those of all sites (k,).
    """
    alone = (sizes > 0) & (counts >= _ALONE * sizes)
    here, total, elsewhere = counts[alone].sum(), sizes[alone].sum(), sizes.sum() - counts.sum()
    few = total < _LEAST or here < _HELD * counts.sum()
    return alone & (not few and elsewhere > 0 and total - here <= (1 - _ELSEWHERE) * elsewhere)


def hidden_batch_effects(sites: IntArray) -> list[str]:
    """Return what `batch_effects` says where sums hide the sites, from how many have each cluster for themselves (k,)."""
    which = np.flatnonzero(sites)
    if not len(which):
        return []
    of = "its rows are" if len(which) == 1 else "the rows of each are"
    said = f"{_named(which)} may be a batch effect, as of another unit or device: at least {_ALONE:.0%} of {of} those of one site"
    return [f"{said}, which secure sums do not name; its own log does"]


def site_shares(rows: IntArray, means: FloatArray, within: FloatArray) -> FloatArray:
    """Return the share of each column's variance within clusters that lies between the means of their sites (d,).

    Sites may have more rows of some clusters than of others; the same cluster is at the same place unless sites measure differently.

    Args:
        rows: of each cluster at each site (m, k).
        means: of these (m, k, d).
        within: squared deviations from them, of all sites and clusters (d,).
    """
    sizes = rows[:, :, None].astype(np.float64)
    of_all = (sizes * means).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1)
    between = (sizes * (means - of_all) ** 2).sum(axis=(0, 1))
    return np.asarray(between / np.maximum(between + within, np.finfo(np.float64).tiny))


def shifted_sites(names: Sequence[str], rows: IntArray, shares: FloatArray, least: float) -> list[str]:
    """Return a sentence where sites have the same clusters at different places; empty where they do not, or there are few rows.

    Args:
        names: of the columns (d,).
        rows: of each cluster at each site (m, k).
        shares: of `site_shares` (d,).
        least: so many rows of a cluster at a site, in mean, are enough to tell.
    """
    alike = (rows > 0).sum(axis=0) > 1  # clusters that several sites have
    groups = np.count_nonzero(rows[:, alike])
    if not groups or rows[:, alike].sum() < least * groups or shares.max() < _SHIFTED:
        return []
    j = int(shares.argmax())
    found = f"{shares[j]:.0%} of the variance of {shown(names[j])} within clusters is between sites"
    advice = "a device, a laboratory or a unit may shift it (correct it there, or subtract each site's mean where patients are alike)"
    return [f"sites have the same clusters at different places: {found}; {advice}"]


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


def outlying_clusters(centroids: FloatArray, counts: IntArray, scatter: FloatArray, advice: str) -> list[str]:
    """Return sentences about small clusters that are much wider than the others, or much farther away.

    Args:
        centroids: (k, d), as rows were compared with them.
        counts: rows of each (k,), at all sites.
        scatter: sums of these rows' distances to their centroid (k,).
        advice: what helps against rows that are far from all others.
    """
    share = counts / max(1, int(counts.sum()))
    small, large = np.flatnonzero((share > 0) & (share <= _SMALL)), np.flatnonzero(share > _SMALL)
    if not len(small) or not len(large):
        return []
    width, others = scatter[small] / counts[small], scatter[large].sum() / counts[large].sum()
    wide, found = small[width > _WIDE * others], []
    if len(wide):
        times = float(scatter[wide].sum() / counts[wide].sum() / others) if others else np.inf
        found.append(
            f"{_named(wide)} with {share[wide].sum():.1%} of the rows {'is' if len(wide) == 1 else 'are'} {times:.0f} times as wide as "
            f"the others: outliers, rows that are far from all others, which move centroids; {advice}"
        )
    apart = max(float(distances_between(centroids[large]).max()), others)
    nearest = np.sqrt(((centroids[:, None] - centroids[large]) ** 2).sum(axis=2)).min(axis=1)
    far = [c for c in small if c not in wide and nearest[c] > _FAR * apart]
    if far:
        column = int(np.abs(centroids[far[0]] - centroids[large].mean(axis=0)).argmax())
        found.append(
            f"{_named(far)} with {share[far].sum():.1%} of the rows {'lies' if len(far) == 1 else 'lie'} more than {_FAR:.0f} times as "
            f"far away as the others are apart, most of all in column {column + 1} of {centroids.shape[1]}: a code for missing cells, or "
            f"another unit? Look at the values there and leave such cells out; {advice}"
        )
    return found


def _named(clusters: Iterable[np.int64]) -> str:
    numbers = [int(c) for c in clusters]
    return f"cluster{'s' if len(numbers) > 1 else ''} {all_of(numbers)}"
