"""k-means of rows in parts: the iterations of `flareclust.core.lloyd`, each of them a pass over the parts."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import stop_if
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core import kernels
from flareclust.core.disclosure import check_enough
from flareclust.core.part_sums import Groups, groups_about, may_be_described, nearest
from flareclust.core.parts import Parts
from flareclust.core.seeds import TILE, TILED, Uniforms, rows_drawn, seeds_with

#: Iterations at most, and the shift to stop at, as shares of the mean variance: those of `flareclust.core.lloyd.kmeans`.
_MAX_ITER, _TOL = 300, 1e-4


def local_clusters(
    parts: Parts, k: int, rng: np.random.Generator, *, n_init: int, min_count: int
) -> tuple[Groups, BoolArray]:
    """Return the clusters of a site's own k-means, and which of them may be described, as `flareclust.core.local` does.

    Raises Refusal where the site has fewer than `min_count` rows and Aborted when the parts' `aborted` says so.
    """
    check_enough(parts, min_count)
    found = _kmeans(parts, min(k, len(parts) // min_count), rng, n_init=n_init)
    return found, may_be_described(parts, found, min_count)


def _kmeans(parts: Parts, k: int, rng: np.random.Generator, *, n_init: int = 1) -> Groups:
    """Return the clusters of smallest inertia among `n_init` runs from greedy k-means++, each with the mean of its rows.

    Which of the runs that end with the same clusters counts, and so their order, is up to rounding.
    """
    threshold = _TOL * float(parts.variance().mean())
    runs = (_lloyd(parts, kmeans_plusplus(parts, k, rng), threshold) for _ in range(n_init))
    return min(runs, key=lambda found: float(found.sse.sum()))  # min keeps the first of equals


class _Step(NamedTuple):
    """Of one part: rows whose label changed; sums of the offsets of each cluster's rows (k, d), and their numbers (k,)."""

    changed: int
    sums: FloatArray
    mass: FloatArray


def _lloyd(parts: Parts, start: FloatArray, threshold: float) -> Groups:
    """Return the clusters that Lloyd's algorithm ends with; see `flareclust.core.kernels.lloyd_steps`."""
    centroids, origin = start.copy(), parts.extent.mean
    labels: list[Any] = [None] * len(parts.extents)
    status = kernels.MOVING
    for iteration in range(_MAX_ITER):
        stop_if(parts.aborted, f"after {iteration} iterations of k-means")
        before, labels = labels, nearest(parts, centroids)
        changed, sums, mass = _added(parts.each(_step, labels, before, shared=(origin, len(centroids))))
        if changed == 0 and status != kernels.RELOCATED:
            status = kernels.SETTLED
            break
        status = kernels.MOVING
        if mass.min() == 0 and (moved := _relocated(parts, labels, centroids, mass)) is not None:
            labels, status = moved, kernels.RELOCATED
            _, sums, mass = _added(parts.each(_step, labels, labels, shared=(origin, len(centroids))))
        # A cluster that stays empty waits at the biggest one.
        source = np.where(mass > 0, np.arange(len(mass)), mass.argmax())
        means = sums[source] / mass[source, None] + origin
        shift, centroids = float(((means - centroids) ** 2).sum()), means
        if shift <= threshold:
            status = kernels.WITHIN_TOLERANCE
            break
    if status != kernels.SETTLED:
        labels = nearest(parts, centroids)
    return groups_about(parts, centroids, labels)


def _added(steps: list[_Step]) -> _Step:
    return _Step(*(np.sum(of_each, axis=0) for of_each in zip(*steps, strict=True)))


def _relocated(parts: Parts, labels: list[Any], centroids: FloatArray, mass: FloatArray) -> list[Any] | None:
    """Return labels with the farthest rows in the clusters that have none; None where all rows are at their centroids."""
    empty = np.flatnonzero(mass == 0)
    found = parts.each(_farthest, labels, shared=(centroids, len(empty)))
    # Of equally far ones the first.
    ranked = sorted((-squared, part, row) for part, own in enumerate(found) for squared, row in own)
    if not ranked or ranked[0][0] == 0:
        return None
    moves: list[dict[int, int]] = [{} for _ in found]
    for cluster, (_, part, row) in zip(empty.tolist(), ranked, strict=False):
        moves[part][row] = cluster
    return parts.keep(_moved, labels, moves)


def _step(X: FloatArray, labels: IntArray, before: IntArray | None, origin: FloatArray, k: int) -> _Step:
    sums, mass = np.zeros((k, X.shape[1])), np.zeros(k)
    kernels.add_to_sums(X, np.ones(len(X)), origin, labels, sums, mass)
    changed = len(X) if before is None else int((labels != before).sum())
    return _Step(changed, sums, mass)


def _farthest(X: FloatArray, labels: IntArray, centroids: FloatArray, number: int) -> list[tuple[float, int]]:
    """Return the rows farthest from their centroids, so many at most, with their squared distances."""
    squared = np.empty(len(X))
    kernels.own_distances(X, centroids, labels, squared)
    order = np.argsort(-squared, kind="stable")[:number]
    return [(float(squared[row]), int(row)) for row in order]


def _moved(X: FloatArray, labels: IntArray, moves: dict[int, int]) -> IntArray:
    labels = labels.copy()
    labels[list(moves)] = list(moves.values())
    return labels


# Greedy k-means++ over rows in parts: the rows that `flareclust.core.seeds` draws of all rows with the same random numbers.
#
# Sums are added part by part, so another row is drawn where rounding decides: a random number at the border of two rows, or two
# candidates that serve equally well.

#: Rows whose shares are added up at once.
_AT_ONCE = 1 << 20


def kmeans_plusplus(parts: Parts, k: int, rng: Uniforms, *, n_candidates: int | None = None) -> FloatArray:
    """Return at most k rows as seeds (k, d), 1 <= k <= n; see `flareclust.core.seeds.kmeans_plusplus`.

    Raises Aborted when the parts' `aborted` says so.
    """
    n_candidates = 2 + int(np.log(k)) if n_candidates is None else n_candidates
    seeds, passes = [parts.row(_first_row(len(parts), rng))], _Passes(parts)
    ends = np.cumsum(passes.sums_with(np.array(seeds))[0])
    while len(seeds) < k and ends[-1] > 0:
        stop_if(parts.aborted, f"while choosing seed {len(seeds) + 1} of {k}")
        uniforms = np.asarray(rng.random(n_candidates)) * ends[-1]
        candidates = passes.drawn(seeds[-1], ends, uniforms)
        sums = np.cumsum(passes.sums_with(np.array([seeds[-1], *candidates]))[1:], axis=1)
        best = int(np.argmin(sums[:, -1]))
        seeds.append(candidates[best])
        ends = sums[best]
    return np.array(seeds)


def _first_row(n: int, rng: Uniforms) -> int:
    """Draw one of n rows, the one that `kmeans_plusplus` for an array draws of rows that weigh the same, in little memory."""
    share, last = 1.0 / n, 0.0
    for start in range(0, n, _AT_ONCE):
        last = float(_shares(n, start, share, last)[-1])
    uniform, up_to, number = rng.random(1), 0.0, 0
    for start in range(0, n, _AT_ONCE):
        shares = _shares(n, start, share, up_to)
        up_to = float(shares[-1])
        number += int(np.searchsorted(shares / last, uniform, side="right")[0])
        if number < start + len(shares):
            break
    return min(number, n - 1)


def _shares(n: int, start: int, share: float, before: float) -> FloatArray:
    """Return the sums of the shares up to each of the rows from `start`, added one after the other."""
    shares = np.full(1 + min(_AT_ONCE, n - start), share)
    shares[0] = before
    return np.cumsum(shares)[1:]


class _Passes:
    """Passes over rows in parts, which keep the squared distance of each row to the closest seed so far."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._passed: list[Any] = [None] * len(parts.extents)
        tiles = np.cumsum([0, *(-(-extent.rows // TILE) for extent in parts.extents)])
        self._starts = tiles[:-1]

    def drawn(self, latest: FloatArray, ends: FloatArray, at: FloatArray) -> list[FloatArray]:
        """Return the rows up to which the sums are more than each of `at`; `latest` is a seed that distances lack yet."""
        # Side "right" skips tiles that add nothing; the bound keeps a number rounded up to the total in range.
        tiles = np.minimum(np.searchsorted(ends, at, side="right"), np.searchsorted(ends, ends[-1]))
        owner = np.searchsorted(self._starts, tiles, side="right") - 1
        borders, own = [*self._starts, len(ends)], []
        for part, (start, end) in enumerate(itertools.pairwise(borders)):
            before = ends[start - 1] if start else 0.0
            mine = np.flatnonzero(owner == part)
            own.append((mine, ends[start:end] - before, at[mine] - before, tiles[mine] - start) if len(mine) else None)
        rows: list[FloatArray] = [latest] * len(at)
        for found in self._parts.each(_drawn, self._passed, own, shared=(latest,)):
            for number, row in found:
                rows[number] = row
        return rows

    def sums_with(self, points: FloatArray) -> FloatArray:
        """Take the first of the points as a seed; return each tile's sum of distances to the closest seed, with each point."""
        self._passed = self._parts.keep(_passed, self._passed, shared=(points,))
        return np.concatenate(self._parts.each(_sums, self._passed), axis=1)


class _Pass(NamedTuple):
    """Of one part: distances of rows to the closest seed (n,), and the sums over tiles with each point (points, tiles)."""

    closest: FloatArray
    sums: FloatArray


def _passed(X: FloatArray, before: _Pass | None, points: FloatArray) -> _Pass:
    """Return the distances to the closest seed, the first of the points among them, and the sums over each tile."""
    closest = np.full(len(X), np.inf) if before is None else before.closest.copy()
    sums, tiles = np.empty((len(points), -(-len(X) // TILE))), np.zeros((0, min(X.shape[1], TILED), TILE))
    seeds_with(X, np.ones(len(X)), tiles, points, closest, sums)
    return _Pass(closest, sums)


def _sums(X: FloatArray, passed: _Pass) -> FloatArray:
    return passed.sums


def _drawn(
    X: FloatArray, passed: _Pass, own: tuple[IntArray, FloatArray, FloatArray, IntArray] | None, latest: FloatArray
) -> list[tuple[int, FloatArray]]:
    """Return which of the draws fall into this part, each with its row."""
    if own is None:
        return []
    numbers, ends, at, tiles = own
    rows, closest = np.zeros(len(numbers), np.int64), np.require(passed.closest, requirements=["C", "A", "W"])
    rows_drawn(X, np.ones(len(X)), latest, closest, ends, at, tiles, rows)
    return [(int(number), X[row].copy()) for number, row in zip(numbers, rows, strict=True)]
