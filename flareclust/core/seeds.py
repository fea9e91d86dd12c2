"""Choosing rows to start from: greedy k-means++ and farthest-first traversal."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import Aborted, UserError
from flareclust._foundation.typing import AbortCheck, Array, FloatArray, IntArray, never_abort
from flareclust.core.arrays import as_count, as_matrix, as_rows, as_weights
from flareclust.core.chunks import is_mapped
from flareclust.core.seed_kernels import (
    FEW,
    TILE,
    TILED,
    farthest_of_tiles,
    farthest_rows,
    more_seeds,
    row_at,
    seed_tiles,
    seeds_with,
)

#: Coordinate differences per kernel call, some hundredths of a second of work; `aborted` is asked between calls.
_WORK_PER_CALL = 100_000_000


class Uniforms(Protocol):
    """A source of uniform numbers in [0, 1), such as numpy's Generator or RandomState."""

    def random(self, size: int, /) -> Any:
        """Return `size` numbers."""


def kmeans_plusplus(
    X: ArrayLike,
    k: int,
    rng: Uniforms,
    *,
    weights: ArrayLike | None = None,
    n_candidates: int | None = None,
    aborted: AbortCheck = never_abort,
) -> tuple[FloatArray, IntArray]:
    """Choose k rows of X as seeds by greedy k-means++.

    The first seed is drawn in proportion to the weights. Each further one is the best of `n_candidates` rows, drawn
    in proportion to weight times squared distance to the closest seed: the one that leaves the smallest sum of these.
    `numpy.random.RandomState(s)` gives the rows that scikit-learn's function of this name chooses with
    `random_state=s` in float64 from rows about their mean, unless rounding decides. Far from 0, as 1e8 beside
    distances of 1, scikit-learn chooses others: it expands squared distances to |x|^2 - 2xy + |y|^2, which loses their
    digits; here differences are squared, and a shift of all rows changes nothing.

    Arthur, Vassilvitskii (2007), k-means++: the advantages of careful seeding, section 2.2; greedy: section 5.

    Args:
        X: rows (n, d).
        k: number of seeds, 1 <= k <= n.
        rng: draws 1 uniform number, then `n_candidates` for each further seed, for several seeds at a time:
            after fewer than k seeds the generator may have drawn more than they took.
        weights: (n,) not negative, by default 1 each. A row of weight 0 is never a seed.
        n_candidates: draws for each seed; by default 2 + floor(log k).
        aborted: asked before each seed but the first, or before several that take some hundredths of a second together.

    Returns:
        centroids (k, d) and the indices (k,) of their rows. Fewer than k when every row of positive weight coincides
        with a seed already, because no further row is then distinct.

    Raises:
        UserError: for input that does not fit the above.
        Aborted: when `aborted` says so.
    """
    X = as_rows(X)
    k = as_count(k, "k", len(X))
    n_candidates = None if n_candidates is None else as_count(n_candidates, "n_candidates")
    return seeds_of(X, k, rng, as_weights(weights, len(X)), n_candidates, aborted)


def seeds_of(
    X: FloatArray, k: int, rng: Uniforms, mass: FloatArray, n_candidates: int | None, aborted: AbortCheck
) -> tuple[FloatArray, IntArray]:
    """Compute what `kmeans_plusplus` promises from checked input; `mass` (n,) are the weights."""
    n = len(X)
    n_candidates = 2 + int(np.log(k)) if n_candidates is None else n_candidates
    chosen = np.empty(k, np.int64)
    chosen[0] = _draw_row(mass, rng)
    closest, tiles = np.full(n, np.inf), _tiles(X)
    sums = np.empty((1 + n_candidates, -(-n // TILE)))
    seeds_with(X, mass, tiles, _points(X, chosen[:1]), closest, sums)
    ends, found = np.cumsum(sums[0]), 1
    per_call = max(1, _WORK_PER_CALL // (X.size * (1 + n_candidates)))
    while found < k:
        if aborted():
            raise Aborted(f"stopped while choosing seed {found + 1} of {k}")
        wanted = min(k, found + per_call)
        uniforms = np.asarray(rng.random((wanted - found) * n_candidates)).reshape(-1, n_candidates)
        found = more_seeds(X, mass, tiles, uniforms, closest, sums, ends, chosen, found)
        if found < wanted:
            return _points(X, chosen[:found]), chosen[:found].copy()
    return _points(X, chosen), chosen


def farthest_first(points: ArrayLike, k: int, start: ArrayLike) -> IntArray:
    """Choose k points, each the farthest from those chosen before it, beginning with `start`.

    The farthest point is the one whose distance to its closest chosen point is largest; ties go to the lowest index.
    Time O(N k d), memory O(N) beside the points.

    Gonzalez (1985), Clustering to minimize the maximum intercluster distance; Dennis, Li, Smith (2021), Heterogeneity
    for the win: one-shot federated clustering, Algorithm 2, steps 2-6, where `start` is one device's centroids.

    Args:
        points: (N, d).
        k: number of points to choose, at least the length of `start`, at most N.
        start: indices of the points chosen at the outset, at least one and each once.

    Returns:
        Indices: those of `start`, then the farthest points in the order of choice. Fewer than k when every point
        coincides with a chosen one.

    Raises:
        UserError: for input that does not fit the above.
    """
    points = as_matrix(points, "points")
    n = len(points)
    k = as_count(k, "k", n)
    first = _start_indices(start, n, k)
    chosen = np.empty(k, np.int64)
    chosen[: len(first)] = first
    if points.shape[1] <= FEW and not is_mapped(points):
        found = farthest_of_tiles(_tiles(points), n, chosen, len(first))
    else:
        found = farthest_rows(points, chosen, len(first))
    return chosen[:found].copy()


def _draw_row(mass: FloatArray, rng: Uniforms) -> int:
    """Draw a row in proportion to its mass, in the steps of numpy's `choice(n, p=mass / mass.sum())`."""
    return row_at(mass, mass.sum(), rng.random(1)[0])


def _points(X: Array, rows: IntArray) -> FloatArray:
    """Return rows of float32 or float64 as points, which kernels take in float64."""
    return X[rows].astype(np.float64, copy=False)


def _tiles(X: FloatArray) -> Array:
    """Return a copy of rows (n, d) by columns for `seeds_with`; without tiles where it does not pay or may not fit."""
    n, d = X.shape
    copied = d <= TILED and not is_mapped(X)
    tiles = np.zeros((-(-n // TILE) if copied else 0, min(d, TILED), TILE))
    seed_tiles(X, 0, tiles)
    return tiles


def _start_indices(start: ArrayLike, n: int, k: int) -> IntArray:
    indices = np.asarray(start)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not 1 <= len(indices) <= k:
        raise UserError(f"start must be a list of 1 to k={k} indices, got shape {indices.shape} of {indices.dtype}")
    if indices.min() < 0 or indices.max() >= n or len(np.unique(indices)) < len(indices):
        raise UserError(f"start must name different points in 0..{n - 1}, got {indices.tolist()}")
    return indices.astype(np.int64)
