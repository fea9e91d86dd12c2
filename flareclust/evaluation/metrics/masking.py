"""Whether masking columns keeps the order of distances: Assumption 8 of Maritan and Schenato.

"Distributed clustering in partially overlapping feature spaces", eq. (2), (3) and (14). n rows, D columns of all sites
together. Reading: eq. (14) is an implication, so a triplet whose premise does not hold satisfies it. The extremes that
scale its distances are those of all complete rows.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.evaluation.metrics._arrays import as_points, norms, one_per_row


def assumption_8_rate(
    X: ArrayLike,
    classes: ArrayLike,
    rows: Mapping[str, IntArray],
    columns: Mapping[str, IntArray],
    rng: np.random.Generator,
    triplets: int = 1000,
) -> float:
    """Share of sampled triplets for which masking keeps the order of two distances: Assumption 8, eq. (14).

    A triplet is a row x1, another row x2 of its class and a row x3 of another class, the latter two at sites that have a
    column in common with x1's site, or at that site. If x2 is nearer to x1 than x3 is in all columns, it is to be so
    in the sites' common columns, too, by distances scaled with the range of the complete rows (eq. 2 and 3). All
    triplets are equally likely.

    Args:
        X: (n, D) complete rows.
        classes: (n,) their true classes.
        rows, columns: their numbers by site, as of `data.feature_partition.split_features`; rows of no site do not take part.
        rng: draws the triplets.
        triplets: how many to draw, with replacement.

    Raises:
        UserError: shapes do not fit, or there is no triplet.
    """
    points = as_points("X", X)
    labels = one_per_row("classes", classes, len(points))
    if rows.keys() != columns.keys():
        raise UserError(f"expected rows and columns of the same sites, got {sorted(rows)} and {sorted(columns)}")
    index = np.concatenate([rows[site] for site in rows])
    home = np.repeat(np.arange(len(rows)), [len(rows[site]) for site in rows])
    masks = np.zeros((len(rows), points.shape[1]), dtype=np.bool_)
    for i, site in enumerate(rows):
        masks[i, columns[site]] = True
    points, labels = points[index], labels[index]
    one, two, three = _triplets(home, labels, masks, rng, triplets)
    full_two, full_three = norms(points[one] - points[two]), norms(points[one] - points[three])
    near, far = _scaled(points, masks, home, one, two), _scaled(points, masks, home, one, three)
    return float(np.mean((full_two >= full_three) | (near < far)))


def _triplets(
    home: IntArray, labels: Array, masks: BoolArray, rng: np.random.Generator, triplets: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Draw rows (t,), (t,), (t,), all triplets equally likely; `home` (n,) is the site of each row."""
    reach = (masks.astype(np.float64) @ masks.T > 0)[:, home]  # (m, n) which rows can be compared with a site's
    cells = [
        (own, np.flatnonzero(reach[site] & (labels == label)), np.flatnonzero(reach[site] & (labels != label)))
        for site in range(len(masks))
        for label in np.unique(labels)
        if len(own := np.flatnonzero((home == site) & (labels == label)))
    ]
    weights = np.array([len(own) * (len(same) - 1) * len(other) for own, same, other in cells], dtype=np.float64)
    if weights.sum() == 0:
        raise UserError("no triplet to test: it takes two comparable rows of a class and one of another")
    drawn: list[tuple[IntArray, IntArray, IntArray]] = []
    for (own, same, other), times in zip(cells, rng.multinomial(triplets, weights / weights.sum()), strict=True):
        if times == 0:
            continue
        one = rng.choice(own, times)
        # Any comparable row of the class but `one` itself: skip its place among them.
        step = rng.integers(len(same) - 1, size=times)
        two = same[step + (step >= np.searchsorted(same, one))]
        drawn.append((one, two, rng.choice(other, times)))
    one, two, three = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    return one, two, three


def _scaled(points: FloatArray, masks: BoolArray, home: IntArray, a: IntArray, b: IntArray) -> FloatArray:
    """Return (t,) the scaled distances, eq. (3), of points a and b in their sites' common columns; 0 for 0/0."""
    common = masks[home[a]] & masks[home[b]]
    distance = norms(np.where(common, points[a] - points[b], 0.0))
    widest = norms(np.where(common, np.ptp(points, axis=0), 0.0))
    return np.divide(distance, widest, out=np.zeros(len(a)), where=widest > 0)
