"""How good a clustering of sites with different columns is, where the truth is known.

The measures of Maritan and Schenato, "Distributed clustering in partially overlapping feature spaces" (sections 3.1, 6.1
and 6.2). Unknown entries are NaN: an entry of a centroid is unknown where no site with rows of the cluster has the column.
Distances are Euclidean. n rows, D columns of all sites together, k clusters, c local clusters of all sites together.

Readings, where the paper is misprinted or open:

1. The optimal centroid, eq. (1), is for each entry the mean over the rows that have it: the denominator is the number of
   those rows, and at least 1, where `min` is printed for `max`.
2. Centroids are matched one to one by the least sum of squared distances, each per entry that both know; where
   everything is known the pairs are those of the ordinary distances.
3. Eq. (14) is an implication, so a triplet whose premise does not hold satisfies it. The extremes that scale its
   distances are those of all complete rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.evaluation.metrics import accuracy


def optimal_centroids(rows: Sequence[ArrayLike], classes: Sequence[ArrayLike]) -> FloatArray:
    """Return the best centroids to be had from what the sites have: eq. (1).

    Args:
        rows: of each site (n_i, D), NaN where the site does not have the column.
        classes: of each site (n_i,) its rows' true classes.

    Returns:
        (k*, D), a row for each class that occurs, in ascending order; NaN where no site with rows of the class has the
        column.

    Raises:
        UserError: no rows, not as many sites in one as in the other, or shapes that do not fit.
    """
    if len(rows) != len(classes):
        raise UserError(
            f"expected rows and classes of the same sites, got rows of {len(rows)}, classes of {len(classes)}"
        )
    points = [_points(f"rows of site {i + 1}", some) for i, some in enumerate(rows)]
    labels = [_labels(f"classes of site {i + 1}", some, len(points[i])) for i, some in enumerate(classes)]
    if sum(map(len, points)) == 0 or len({some.shape[1] for some in points}) > 1:
        raise UserError(
            f"expected at least one row, and the same columns at all sites, got shapes {[some.shape for some in points]}"
        )
    names = np.unique(np.concatenate(labels))
    total = np.zeros((len(names), points[0].shape[1]))
    count = np.zeros(total.shape, dtype=np.int64)
    for some, label in zip(points, labels, strict=True):
        known = ~np.isnan(some)
        for c, name in enumerate(names):
            own = label == name
            count[c] += known[own].sum(axis=0)
            total[c] += np.where(known[own], some[own], 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def match_known(found: ArrayLike, true: ArrayLike) -> tuple[IntArray, IntArray]:
    """Pair recovered with true centroids one to one by what both know of them (reading 2 of this module).

    Without NaN the pairs are those of `metrics.match_centroids`. As many as possible of the pairs have an entry that
    both know; a pair without one is left out.

    Args:
        found: (k, D) recovered centroids.
        true: (k*, D) true centroids; k* may differ from k.

    Returns:
        (found_index, true_index), of the same length, min(k, k*) at most, sorted by found_index.

    Raises:
        UserError: an array is not 2-D, is empty or holds infinity, or the widths D differ.
    """
    found, true = _same_width(found, true)
    return _match(found, true)


def relative_distance(found: ArrayLike, true: ArrayLike) -> float:
    """Mean over the matched pairs of ||found - true|| / ||true||, both over the entries that both know (metric E3).

    Superfluous centroids cost nothing and those that lack are not missed, so report the number of centroids beside it.
    A pair whose true centroid is 0 counts 0 if the other is, else infinity. NaN if no pair can be compared.

    Args:
        found: (k, D) recovered centroids.
        true: (k*, D) true centroids, such as `optimal_centroids`.

    Raises:
        UserError: as `match_known`.
    """
    A, B = _pairs(found, true)
    error, norm = _norms(A - B), _norms(B)
    ratio = np.where(error > 0, np.inf, 0.0)
    np.divide(error, norm, out=ratio, where=norm > 0)
    return float(ratio.mean()) if len(ratio) else np.nan


def cosine(found: ArrayLike, true: ArrayLike) -> float:
    """Mean over the matched pairs of the cosine similarity over the entries that both know (metric E3).

    A pair counts 0 where one of the two is 0 in all of these, and 1 where both are. NaN if no pair can be compared.

    Args:
        found: (k, D) recovered centroids.
        true: (k*, D) true centroids.

    Raises:
        UserError: as `match_known`.
    """
    A, B = _pairs(found, true)
    length_a, length_b = _norms(A), _norms(B)
    similarity = np.where((length_a == 0) & (length_b == 0), 1.0, 0.0)
    both = (length_a > 0) & (length_b > 0)
    unit_a, unit_b = A[both] / length_a[both, None], B[both] / length_b[both, None]
    similarity[both] = np.nansum(unit_a * unit_b, axis=1)
    return float(similarity.mean()) if len(similarity) else np.nan


def majority_class(labels: ArrayLike, classes: ArrayLike, k: int) -> IntArray:
    """Return (k,) the true class of most rows of each local cluster, -1 for one without rows; of two the lower.

    Args:
        labels: (n,) local cluster of each row, 0 to k - 1; a negative one is not looked at.
        classes: (n,) true classes, integers >= 0.
        k: number of local clusters.

    Raises:
        UserError: lengths or numbers are not as said.
    """
    cluster = _whole("labels", labels, None)
    true = _whole("classes", classes, len(cluster))
    if (cluster.size and cluster.max() >= k) or (true.size and true.min() < 0):
        raise UserError(
            f"expected labels below {k} and classes >= 0, got labels up to {cluster.max()}, classes from {true.min()}"
        )
    counts = np.zeros((k, int(true.max(initial=0)) + 1), dtype=np.int64)
    np.add.at(counts, (cluster[cluster >= 0], true[cluster >= 0]), 1)
    return np.where(counts.sum(axis=1) > 0, counts.argmax(axis=1), -1)


def correct_aggregation(group: ArrayLike, true: ArrayLike) -> float:
    """Share of the local clusters that are in the right global cluster (metrics E1 and E4).

    Right is what the best one-to-one map of global clusters to true classes says. 1: perfect.

    Args:
        group: (c,) global cluster of each local one, -1 where it is in none, which counts as wrong.
        true: (c,) true class of each local cluster, >= 0, such as that of most of its rows (`majority_class`).

    Raises:
        UserError: lengths differ, none, or numbers that are not whole or, for `true`, negative.
    """
    groups = _whole("group", group, None)
    classes = _whole("true", true, len(groups))
    if not len(groups) or classes.min() < 0:
        raise UserError(
            "expected at least one local cluster, and a true class >= 0 of each; leave out those that have no rows"
        )
    assigned = groups >= 0
    if not assigned.any():
        return 0.0
    return accuracy(groups[assigned], classes[assigned]) * float(assigned.mean())


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
        rows: the sites' row numbers, as of `partition_features.split_features`; rows of no site do not take part.
        columns: the sites' column numbers.
        rng: the generator that draws the triplets.
        triplets: how many to draw, with replacement.

    Raises:
        UserError: shapes do not fit, or there is no triplet.
    """
    points = _points("X", X)
    labels = _labels("classes", classes, len(points))
    if rows.keys() != columns.keys():
        raise UserError(f"expected rows and columns of the same sites, got {sorted(rows)} and {sorted(columns)}")
    index = np.concatenate([rows[site] for site in rows])
    home = np.repeat(np.arange(len(rows)), [len(rows[site]) for site in rows])
    masks = np.zeros((len(rows), points.shape[1]), dtype=np.bool_)
    for i, site in enumerate(rows):
        masks[i, columns[site]] = True
    points, labels = points[index], labels[index]
    one, two, three = _triplets(home, labels, masks, rng, triplets)
    full_two, full_three = _norms(points[one] - points[two]), _norms(points[one] - points[three])
    near = _scaled(points, masks, home, one, two)
    far = _scaled(points, masks, home, one, three)
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
    distance = _norms(np.where(common, points[a] - points[b], 0.0))
    widest = _norms(np.where(common, np.ptp(points, axis=0), 0.0))
    return np.divide(distance, widest, out=np.zeros(len(a)), where=widest > 0)


# Centroids


def _pairs(found: ArrayLike, true: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the matched centroids (pairs, D) with NaN wherever one of the two is unknown."""
    found, true = _same_width(found, true)
    index, true_index = _match(found, true)
    A, B = found[index], true[true_index]
    unknown = np.isnan(A) | np.isnan(B)
    return np.where(unknown, np.nan, A), np.where(unknown, np.nan, B)


def _match(found: FloatArray, true: FloatArray) -> tuple[IntArray, IntArray]:
    from scipy.optimize import linear_sum_assignment

    cost = np.full((len(found), len(true)), np.nan)
    for j, point in enumerate(true):
        known = ~np.isnan(found) & ~np.isnan(point)
        squares = np.where(known, found - point, 0.0) ** 2
        np.divide(squares.sum(axis=1), known.sum(axis=1), out=cost[:, j], where=known.any(axis=1))
    comparable = ~np.isnan(cost)
    # A pair that cannot be compared costs more than any set of those that can.
    index, true_index = linear_sum_assignment(np.where(comparable, cost, 1.0 + cost[comparable].sum()))
    kept = comparable[index, true_index]
    return np.asarray(index[kept], dtype=np.int64), np.asarray(true_index[kept], dtype=np.int64)


def _norms(points: FloatArray) -> FloatArray:
    """Return the lengths of the rows over their known entries."""
    lengths: FloatArray = np.sqrt(np.nansum(points**2, axis=1))
    return lengths


# Checks


def _same_width(found: Any, true: Any) -> tuple[FloatArray, FloatArray]:
    A, B = _points("found", found), _points("true", true)
    if A.size == 0 or B.size == 0 or A.shape[1] != B.shape[1]:
        raise UserError(
            f"found and true: expected centroids in the same columns, one at least of each; got shapes {A.shape} and {B.shape}"
        )
    return A, B


def _points(name: str, value: Any) -> FloatArray:
    try:
        points = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: expected an array of numbers; got {type(value).__name__} ({error})") from error
    if points.ndim != 2:
        raise UserError(f"{name}: expected a 2-D array, got shape {points.shape}")
    if np.isinf(points).any():
        raise UserError(f"{name}: expected finite numbers, or NaN for unknown ones; got infinity")
    return points


def _labels(name: str, value: ArrayLike, n: int) -> Array:
    labels = np.asarray(value)
    if labels.shape != (n,):
        raise UserError(f"{name}: expected one per row, shape ({n},), got shape {labels.shape}")
    return labels


def _whole(name: str, value: ArrayLike, n: int | None) -> IntArray:
    numbers = np.asarray(value)
    if numbers.ndim != 1 or (n is not None and len(numbers) != n) or (numbers.size and numbers.dtype.kind not in "iu"):
        wanted = "a 1-D array" if n is None else f"shape ({n},)"
        raise UserError(f"{name}: expected integers, {wanted}; got {numbers.dtype} of shape {numbers.shape}")
    return numbers.astype(np.int64)
