"""k-means of rows in parts: the iterations of `flareclust.core.lloyd`, each of them a pass over the parts."""

from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import Aborted
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core import kernels
from flareclust.core.disclosure import check_enough
from flareclust.core.part_seeds import kmeans_plusplus
from flareclust.core.part_sums import Groups, groups_about, may_be_described, nearest
from flareclust.core.parts import Parts

#: Iterations at most, and the shift to stop at, as shares of the mean variance: those of `flareclust.core.lloyd.kmeans`.
_MAX_ITER, _TOL = 300, 1e-4


def local_clusters(
    parts: Parts, k: int, rng: np.random.Generator, *, n_init: int, min_count: int
) -> tuple[Groups, BoolArray]:
    """Return the clusters of a site's own k-means, and which of them may be described, as `flareclust.core.local` does.

    Raises:
        Refusal: the site has fewer than `min_count` rows.
        Aborted: when the parts' `aborted` says so.
    """
    check_enough(parts, min_count)
    found = kmeans(parts, min(k, len(parts) // min_count), rng, n_init=n_init)
    return found, may_be_described(parts, found, min_count)


def kmeans(parts: Parts, k: int, rng: np.random.Generator, *, n_init: int = 1) -> Groups:
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
        if parts.aborted():
            raise Aborted(f"stopped after {iteration} iterations of k-means")
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
    return _Step(
        sum(step.changed for step in steps),
        np.sum([step.sums for step in steps], axis=0),
        np.sum([step.mass for step in steps], axis=0),
    )


def _relocated(parts: Parts, labels: list[Any], centroids: FloatArray, mass: FloatArray) -> list[Any] | None:
    """Return labels with the farthest rows in the clusters that have none; None where all rows are at their centroids."""
    empty = np.flatnonzero(mass == 0)
    found = parts.each(_farthest, labels, shared=(centroids, len(empty)))
    ranked = sorted(
        ((-squared, part, row) for part, own in enumerate(found) for squared, row in own)
    )  # of equally far ones the first
    if not ranked or ranked[0][0] == 0:
        return None
    moves: list[dict[int, int]] = [{} for _ in found]
    for cluster, (_, part, row) in zip(empty.tolist(), ranked, strict=False):
        moves[part][row] = cluster
    return parts.keep(_moved, labels, moves)


def _step(X: FloatArray, labels: IntArray, before: IntArray | None, origin: FloatArray, k: int) -> _Step:
    sums, mass = np.empty((k, X.shape[1])), np.empty(k)
    kernels.cluster_sums(X, np.ones(len(X)), origin, labels, sums, mass)
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
