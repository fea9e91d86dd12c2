"""k-means on one site's rows: Lloyd's algorithm, its starts, and what may be asked of a clustering afterwards."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError, stop_if
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, never_abort
from flareclust._foundation.validation import check_choice
from flareclust.core import kernels
from flareclust.core.arrays import as_centroids, as_count, as_labels, as_matrix, as_rows, as_weights, check_rows
from flareclust.core.chunks import variances
from flareclust.core.group_kernels import distances_of_each, means_of_each
from flareclust.core.kernels import column_means, column_variances
from flareclust.core.pyramid import Pyramid, pyramid_of, pyramid_steps
from flareclust.core.runtime import imported_later
from flareclust.core.screen import TILE, Screen, labels_once, once_about, part_of_screen, screen_of, screened_labels
from flareclust.core.seeds import seeds_of
from flareclust.core.threads import Team, team

_team_steps = imported_later("flareclust.core.lloyd_team", "team_steps")

#: Coordinate differences per kernel call, some hundredths of a second of work, or tenths without a screen; `aborted` is asked between calls.
_WORK_PER_CALL = 1_000_000_000

_INITS = ("k-means++", "random")


class Clustering(NamedTuple):
    """A clustering of n rows into k clusters, none of them empty.

    Attributes:
        centroids: (k, d).
        labels: (n,) int64, each row's nearest centroid.
        counts: (k,) int64 rows of each cluster, whatever their weights.
        inertia: weighted sum of squared distances to the own centroid; NaN where it was not computed.
        n_iter: iterations run.
    """

    centroids: FloatArray
    labels: IntArray
    counts: IntArray
    inertia: float
    n_iter: int


class Statistics(NamedTuple):
    """Per cluster, each (k,): number of rows, and of their distances to the centroid the squares' sum and the maximum."""

    counts: IntArray
    sse: FloatArray
    max_distance: FloatArray


def lloyd(
    X: ArrayLike,
    centroids: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
    aborted: AbortCheck = never_abort,
) -> Clustering:
    """Run Lloyd's algorithm from the given centroids, as one run of scikit-learn's KMeans does.

    It stops after the iteration in which no label changed, or in which the centroids' squared shifts add up to at
    most `tol` times the mean variance of X's columns, or after `max_iter`. Labels always belong to the centroids
    returned. Ties go to the lowest index.

    An empty cluster (one whose rows weigh nothing together) takes the row farthest from its centroid, which leaves
    its old cluster; several take one row each, farthest first. Rows of weight 0 are never taken. When all distances
    are 0 no row moves. Clusters without rows at the end are dropped, so fewer than k may be returned: when X has
    fewer than k distinct rows, or when `tol` or `max_iter` stopped the run just as a cluster lost its rows.

    Lloyd (1982), Least squares quantization in PCM.

    Args:
        X: rows (n, d), n >= 1.
        centroids: where to start, (k, d).
        weights: (n,) not negative, by default 1 each.
        max_iter: most iterations, at least 1.
        tol: not negative, without unit.
        aborted: asked before every kernel call (one iteration, or several of some hundredths of a second together).

    Raises UserError for input that does not fit the above and Aborted when `aborted` says so.
    """
    X = _some_rows(X)
    start, mass = as_centroids(centroids, X.shape[1]), as_weights(weights, len(X))
    max_iter, tol = _stopping(max_iter, tol)
    with team(X.size * len(start)) as own:
        return _lloyd(_prepared(X, mass, len(start), own), start, max_iter, tol, aborted)


def kmeans(
    X: ArrayLike,
    k: int,
    rng: np.random.Generator | np.random.RandomState,
    *,
    n_init: int = 1,
    init: Literal["k-means++", "random"] = "k-means++",
    max_iter: int = 300,
    tol: float = 1e-4,
    weights: ArrayLike | None = None,
    aborted: AbortCheck = never_abort,
) -> Clustering:
    """Return the clustering of smallest inertia among `n_init` runs of `lloyd` (the first such).

    Args:
        X: rows (n, d).
        k: number of clusters, 1 <= k <= n.
        rng: the only source of randomness.
        n_init: number of runs, each from new seeds.
        init: "k-means++" (see `kmeans_plusplus`), or "random": k different rows, drawn in proportion to the weights
            where there are any.
        max_iter, tol, weights, aborted: as for `lloyd`.

    Raises UserError for input that does not fit the above and Aborted when `aborted` says so.
    """
    X = _some_rows(X)
    k, n_init = as_count(k, "k", len(X)), as_count(n_init, "n_init")
    check_choice("init", init, _INITS)
    max_iter, tol = _stopping(max_iter, tol)
    mass = as_weights(weights, len(X))

    def start() -> FloatArray:
        if init == "k-means++":
            return seeds_of(X, k, rng, mass, None, aborted)[0]
        p = None if weights is None else mass / mass.sum()
        chosen = rng.choice(len(X), size=min(k, int(np.count_nonzero(mass))), replace=False, p=p)
        return X[chosen].astype(np.float64, copy=False)

    starts = (start() for _ in range(n_init))
    first = [next(starts)]  # before what the runs need is made: both take memory
    with team(X.size * k) as own:
        rows = _prepared(X, mass, k, own)
        # min keeps the first of equals.
        return min((_lloyd(rows, at, max_iter, tol, aborted) for at in chain(first, starts)), key=lambda c: c.inertia)


def assign(X: ArrayLike, centroids: ArrayLike) -> tuple[IntArray, FloatArray]:
    """Return each row's nearest centroid, labels (n,) with ties to the lowest index, and its squared distance (n,).

    Raises UserError unless X (n, d) and centroids (k, d) are finite and have the same d; n may be 0, k may not.
    """
    return _assigned(X, centroids, distances=True)


def labels_of(X: ArrayLike, centroids: ArrayLike) -> IntArray:
    """Return the labels (n,) that `assign` does."""
    return _assigned(X, centroids, distances=False)[0]


def cluster_statistics(X: ArrayLike, labels: ArrayLike, centroids: ArrayLike) -> Statistics:
    """Return counts, squared and plain distances of the rows to the centroids that `labels` give them.

    Args:
        X: rows (n, d).
        labels: (n,) integers in [0, k); need not be the nearest centroids.
        centroids: (k, d).

    Returns:
        Statistics, with 0 everywhere for a cluster without rows. `sse` is in X's unit squared, the others in its unit.

    Raises UserError for input that does not fit the above.
    """
    X = as_matrix(X)
    centroids = as_centroids(centroids, X.shape[1])
    return Statistics(*distances_of_each(X, as_labels(labels, len(X), len(centroids)), centroids))


def member_statistics(X: FloatArray, labels: IntArray, centroids: FloatArray) -> Statistics:
    """Return `cluster_statistics` of checked rows (n, d), those whose label is not -1, without a copy of them."""
    return Statistics(*distances_of_each(X, labels, as_centroids(centroids, X.shape[1])))


def sums_by_label(labels: IntArray, values: FloatArray, k: int) -> FloatArray:
    """Return the sum of `values` (n,) over the rows of each label, (k,) float64."""
    # Without rows bincount forgets that its weights are floats.
    return np.bincount(labels, values, minlength=k).astype(np.float64, copy=False)


def recompute_centroids(X: FloatArray, found: Clustering) -> Clustering:
    """Return the clustering of X (n, d) with every centroid at the mean of its own rows, and NaN as inertia.

    Lloyd's algorithm may stop on its tolerance, with centroids that are the means of the labels before the last: such
    a centroid can describe fewer rows than its cluster has, down to a single one, and must not be sent as it is.
    """
    origin, centroids = _means(X), np.empty(found.centroids.shape)
    # Row after row: a column on its own touches every page of a mapped file.
    means_of_each(X, found.labels, origin, found.counts, centroids)
    return found._replace(centroids=centroids, inertia=np.nan)


class _Prepared(NamedTuple):
    """Rows and weights, and what every run of Lloyd's algorithm on them needs: made once, however many runs there are."""

    X: FloatArray
    weights: FloatArray
    origin: FloatArray
    variance: FloatArray
    screen: Screen
    pyramid: Pyramid | None
    team: Team


def _prepared(X: FloatArray, weights: FloatArray, k: int, own: Team) -> _Prepared:
    origin, variance = moments(X)
    screen, pyramid = screen_of(X, origin, variance, own), pyramid_of(X, weights, origin, k)
    return _Prepared(X, weights, origin, variance, screen, pyramid, own)


def _lloyd(rows: _Prepared, start: FloatArray, max_iter: int, tol: float, aborted: AbortCheck) -> Clustering:
    """Compute what `lloyd` promises from checked input; `start` is not changed."""
    X, weights, origin, variance, screen, pyramid, own = rows
    n, d = X.shape
    k, centroids = len(start), start.copy()
    labels, squared = np.full(n, -1, np.int64), np.empty(n)  # -1: every row's label changes in the first iteration
    threshold, earlier = tol * float(variance.sum() / d), np.full((k, d), np.nan)
    per_call = max(1, _WORK_PER_CALL // (n * k * d))
    n_iter, labelled, status, by_cells = 0, 0, kernels.MOVING, pyramid is not None
    while n_iter < max_iter and status in (kernels.MOVING, kernels.RELOCATED):
        stop_if(aborted, f"after {n_iter} iterations of k-means")
        if pyramid is not None and by_cells:  # all but the last iterations
            n_steps = min(per_call, max_iter - n_iter - 1)
            steps, over = pyramid_steps(pyramid, origin, centroids, earlier, n_steps, threshold)
            n_iter, by_cells = n_iter + steps, not over and n_steps == per_call
            continue
        if n_iter > labelled:  # labels are from before the steps on cells
            labels.fill(-1)
            status = kernels.MOVING
        n_steps = min(per_call if pyramid is None else min(per_call, 2), max_iter - n_iter)
        run_steps = kernels.lloyd_steps if own.threads == 1 else partial(_team_steps, own)
        steps, status = run_steps(X, weights, origin, centroids, labels, squared, n_steps, threshold, status, screen)
        n_iter += steps
        labelled, by_cells = n_iter, pyramid is not None
        earlier.fill(np.nan)
    if status != kernels.SETTLED:
        own.each(_labelling(X, origin, centroids, labels, squared, screen), own.parts(n, TILE))
        own.each(lambda part: kernels.own_distances(X[part], centroids, labels[part], squared[part]), own.parts(n))
    inertia, counts = float(np.multiply(weights, squared, out=squared).sum()), np.bincount(labels, minlength=k)
    if counts.all():
        return Clustering(centroids, labels, counts, inertia, n_iter)
    kept = counts > 0
    return Clustering(centroids[kept], (np.cumsum(kept) - 1)[labels], counts[kept], inertia, n_iter)


def _assigned(X: ArrayLike, centroids: ArrayLike, *, distances: bool) -> tuple[IntArray, FloatArray]:
    """Return what `assign` does; without `distances` these may be anything."""
    X = as_matrix(X)
    centroids = as_centroids(centroids, X.shape[1])
    labels, squared = np.zeros(len(X), np.int64), np.empty(len(X))
    scale, origin = once_about(X, centroids)

    def assign_part(part: slice) -> None:
        if not scale:
            kernels.nearest_centroids(X[part], centroids, labels[part], squared[part])
            return
        labels_once(X[part], origin, scale, centroids, labels[part])
        if distances:
            kernels.own_distances(X[part], centroids, labels[part], squared[part])

    with team(X.size * len(centroids)) as own:
        own.each(assign_part, own.parts(len(X), TILE))
    return labels, squared


def _labelling(
    X: FloatArray, origin: FloatArray, centroids: FloatArray, labels: IntArray, squared: FloatArray, screen: Screen
) -> Callable[[slice], int]:
    """Return what sets the labels of some rows, in whole tiles, and says how many have changed."""

    def label(part: slice) -> int:
        within = part_of_screen(screen, part)
        changed = screened_labels(X[part], origin, within, centroids, labels[part])
        return changed if changed >= 0 else kernels.nearest_centroids(X[part], centroids, labels[part], squared[part])

    return label


def _means(X: FloatArray) -> FloatArray:
    """Return `X.mean(axis=0)`."""
    mean = np.empty(X.shape[1])
    if len(mean) == 1:  # a single column is added up in another order
        return np.asarray(X.mean(axis=0))
    column_means(X, mean)
    return mean


def moments(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `X.mean(axis=0)` and `X.var(axis=0)`."""
    origin, variance = _means(X), np.empty(X.shape[1])
    if len(origin) == 1:  # a single column is added up in another order
        return origin, variances(X)
    column_variances(X, origin, variance)
    return origin, variance


def _some_rows(X: ArrayLike) -> FloatArray:
    matrix = as_rows(X)
    check_rows(matrix, "X")
    return matrix


def _stopping(max_iter: int, tol: float) -> tuple[int, float]:
    """Return checked (max_iter, tol); tol becomes a float, as numba would compile again for an int."""
    if not (np.isfinite(tol) and tol >= 0):
        raise UserError(f"tol must be a finite number >= 0, got {tol!r}")
    return as_count(max_iter, "max_iter"), float(tol)
