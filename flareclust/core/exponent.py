"""The power w by which attraction falls with distance: how large it may be, given how many columns clusters share.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 5.1, which has w = 2 and
asks for w > 1. Equation 10 is the mean of distance to the power -w over pairs of points. Where r numbers decide the difference
of two points, the density of small distances is proportional to distance to the power r - 1, so this mean is finite only
for w < r. For larger w it grows without end with the number of points, and the one nearest pair decides which clusters are
merged. A cosine distance is half a squared angle, and r numbers make r - 1 angles: w < (r - 1) / 2.

Readings, and what is added:
1. r is the rank of the points of two sites in their common columns, relative to the mean of their cluster: a column that
   follows from others counts once, one that is constant in every cluster not at all. Where no cluster has any spread,
   distances are fixed numbers and w is free. One w serves all pairs, so the smallest r counts.
2. `automatic` is the paper's 2 where the mean is finite with it, else 1.05. Just above 1 is best where the bound is 2
   or less: the variance is finite only for half the bound, and the nearer w is to that, the less the largest terms weigh.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust.core.missing.distances import as_masked, extremes, masks_of_sites, varying

#: The paper's, and the least that `automatic` returns.
PAPER_W, LEAST_W = 2.0, 1.05

#: Sites with more columns in common have more than enough, whatever the rank.
_MANY = 16

#: Eigenvalues of correlations, and spreads as shares of a column's span, up to it are rounding.
_ROUNDING = 1e-9


class Overlap(NamedTuple):
    """The least that two sites whose clusters are compared have in common.

    Attributes:
        rank: how many numbers decide the difference of two points (reading 1); infinite where there is nothing to bound.
        bound: w must be smaller.
    """

    rank: float
    bound: float


def least_overlap(points: ArrayLike, cluster: ArrayLike, phi: str = "euclidean") -> Overlap:
    """Return the least overlap among sites, from points (N, D) and their clusters as for `flareclust.core.forces.pair_forces`.

    Raises UserError where points are not (N, D), or hold infinite numbers.
    """
    values, labels = as_masked(points, "points"), np.asarray(cluster, np.int64)
    over = extremes(values)
    known, sizes = ~np.isnan(values) & varying(over), np.bincount(labels)
    means = np.stack([np.bincount(labels, weights=column) for column in np.where(known, values, 0.0).T], axis=1)
    spans = np.where(varying(over), over.high - over.low, 1.0)
    residuals = np.where(known, values - (means / sizes[:, None])[labels], 0.0) / spans
    masks, site = masks_of_sites(known, labels)
    own, several = [residuals[site[labels] == g] for g in range(len(masks))], np.bincount(site) > 1
    pairs = [(g, h) for g in range(len(masks)) for h in range(g, len(masks)) if g != h or several[g]]
    ranks = [_rank(own[g], own[h], masks[g] & masks[h]) for g, h in pairs if (masks[g] & masks[h]).any()]
    rank = float(min((r for r in ranks if r > 0), default=np.inf))
    return Overlap(rank, rank if phi == "euclidean" else (rank - 1) / 2)


def automatic(bound: float) -> float:
    """Return the w to use where it must be smaller than `bound` (reading 2); 1.05 also where nothing above 1 is."""
    return PAPER_W if bound > PAPER_W else LEAST_W


def _rank(x: FloatArray, y: FloatArray, common: BoolArray) -> int:
    """Return the rank of points (a, D) and (b, D) of two sites in their common columns, or how many these are."""
    columns = np.flatnonzero(common)
    if len(columns) > _MANY:
        return len(columns)
    joined = np.concatenate([x[:, columns], y[:, columns]])
    length = np.sqrt((joined**2).sum(axis=0))
    spread = length > _ROUNDING * np.sqrt(len(joined))
    scaled = joined[:, spread] / length[spread]
    return int((np.linalg.eigvalsh(scaled.T @ scaled) > _ROUNDING).sum()) if scaled.shape[1] else 0
