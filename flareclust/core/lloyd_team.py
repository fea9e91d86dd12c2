"""Lloyd's iterations in several threads, with the bits of `kernels.lloyd_steps`.

Every thread runs the same kernel: it takes the next part of the rows and labels it. Parts that are labelled are added up in
their order, by one thread at a time for each group of clusters, while others go on; the last to add moves the centroids. No
sum is divided, and nobody waits for a thread that has taken nothing. Threads meet in compiled code, since to pass Python's
lock on takes as long as some ten thousand rows. Change this module, too, where `kernels`, `screen` or `two_best` changes: numba's
cache does not notice.
"""

import os
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core import kernels
from flareclust.core.kernels import add_to_sums, move_centroids, nearest_centroids
from flareclust.core.runtime import kernel
from flareclust.core.screen import TILE, Screen, screened_labels
from flareclust.core.threads import Team

#: Parts for each thread, and how many rows a part has at least.
_TURNS, _SHORT = 16, 1024

#: How the iterations stand where a cluster has no rows, beside what `kernels` has for it.
_EMPTY = 4

#: What the threads share: parts taken, iterations that are added up and those that another follows, how they stand, whether they
#: are over; then for each group of clusters the parts added, and whether a thread adds one. Parts count over all iterations.
_TAKEN, _ADDED, _FOLLOWED, _STATUS, _OVER, _GROUPS = range(6)

if hasattr(os, "sched_yield"):
    #: Lets other threads of the machine go on.
    _give_way = types.ExternalFunction("sched_yield", types.int32())
else:  # Windows

    @kernel()
    def _give_way() -> int:
        return 0


@intrinsic  # type: ignore[untyped-decorator]
def _swap(typing: Any, numbers: Any, index: Any, old: Any, new: Any) -> Any:
    """numbers[index] = new if it is `old`; return what it was.

    One thread at a time does so. What it wrote before, another one sees that finds the number changed.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(numbers)(context, builder, args[0])
        place = cgutils.get_item_pointer(context, builder, numbers, array, [args[1]])
        return builder.extract_value(builder.cmpxchg(place, args[2], args[3], "seq_cst"), 0)

    return types.int64(numbers, types.intp, types.int64, types.int64), build


@kernel()
def _read(numbers: IntArray, index: int) -> int:
    return _swap(numbers, index, -1, -1)  # type: ignore[no-any-return]


def team_steps(
    own: Team,
    X: FloatArray,
    weights: FloatArray,
    origin: FloatArray,
    centroids: FloatArray,
    labels: IntArray,
    squared: FloatArray,
    n_steps: int,
    tol: float,
    status: int,
    screen: Screen,
) -> tuple[int, int]:
    """Do what `kernels.lloyd_steps` does, bit for bit, in threads."""
    n, k = len(X), len(centroids)
    rows = TILE * max(_SHORT // TILE, -(-n // (TILE * _TURNS * own.threads)))
    sums, mass, at = np.empty(centroids.shape), np.empty(k), np.zeros(_GROUPS + 2 * max(1, own.threads // 2), np.int64)
    # Of each part: in how many iterations it was labelled, and how many labels changed in the last of them.
    labelled, changed = np.zeros((2, -(-n // rows)), np.int64)
    at[_STATUS] = status
    mine = sums, mass, at, labelled, changed
    job = (X, weights, origin, centroids, labels, squared, n_steps, tol, screen, rows, *mine)

    def take_part(_: slice) -> None:
        try:
            _take_part(job)
        except BaseException:
            at[_OVER] = 1  # so that nobody waits for what this thread has taken
            raise

    own.each(take_part, [slice(0)] * min(own.threads, len(labelled)))
    status = int(at[_STATUS])
    if status in (kernels.SETTLED, _EMPTY):
        own.each(lambda part: kernels.own_distances(X[part], centroids, labels[part], squared[part]), own.parts(n))
    if status == _EMPTY:
        status = kernels.MOVING
        if kernels.give_rows_to_empty_clusters(weights, mass, labels, squared):
            sums[:], mass[:], status = 0.0, 0.0, kernels.RELOCATED
            add_to_sums(X, weights, origin, labels, sums, mass)
        status = kernels.WITHIN_TOLERANCE if move_centroids(sums, mass, origin, centroids) <= tol else status
    return int(at[_ADDED]), status


@kernel()
def _take_part(job: tuple[Any, ...]) -> None:
    """Label parts, and add up what is labelled, until the iterations are over."""
    X, weights, origin, centroids, labels, squared, n_steps, tol, screen, rows, sums, mass, at, labelled, changed = job
    n, k, parts, groups = len(X), len(mass), len(labelled), (len(at) - _GROUPS) // 2
    while _read(at, _OVER) == 0:
        group, part = _group_to_add(at, labelled), _read(at, _TAKEN)
        if group >= 0:
            first, end = k * group // groups, k * (group + 1) // groups
            while _is_labelled(at, labelled, group):
                added = at[_GROUPS + group]
                if added % parts == 0:
                    sums[first:end], mass[first:end] = 0.0, 0.0
                a, b = added % parts * rows, min((added % parts + 1) * rows, n)
                if groups == 1:
                    add_to_sums(X[a:b], weights[a:b], origin, labels[a:b], sums, mass)
                else:
                    _add_to_some(X[a:b], weights[a:b], origin, labels[a:b], first, sums[first:end], mass[first:end])
                _swap(at, _GROUPS + group, added, added + 1)
                if (added + 1) % parts == 0 and _is_last(at, groups, added // parts, parts):
                    _end_step(origin, centroids, n_steps, tol, sums, mass, at, changed)
            _swap(at, _GROUPS + groups + group, 1, 0)
        elif part >= (_read(at, _FOLLOWED) + 1) * parts:
            _give_way()
        elif _swap(at, _TAKEN, part, part + 1) == part:
            a, b = part % parts * rows, min((part % parts + 1) * rows, n)
            tiles = slice(a // TILE, -(-b // TILE))
            within = Screen(screen.scale, screen.tiles[tiles], screen.longest[tiles])
            count = screened_labels(X[a:b], origin, within, centroids, labels[a:b])
            changed[part % parts] = (
                count if count >= 0 else nearest_centroids(X[a:b], centroids, labels[a:b], squared[a:b])
            )
            _swap(labelled, part % parts, part // parts, part // parts + 1)


@kernel()
def _group_to_add(at: IntArray, labelled: IntArray) -> int:
    """Return a group of clusters whose next part is labelled, for this thread alone to add; -1 where there is none."""
    groups = (len(at) - _GROUPS) // 2
    for group in range(groups):
        if _is_labelled(at, labelled, group) and _swap(at, _GROUPS + groups + group, 0, 1) == 0:
            return group
    return -1


@kernel()
def _is_labelled(at: IntArray, labelled: IntArray, group: int) -> bool:
    added, parts = _read(at, _GROUPS + group), len(labelled)
    return _read(labelled, added % parts) > added // parts


@kernel()
def _add_to_some(
    X: FloatArray,
    weights: FloatArray,
    origin: FloatArray,
    labels: IntArray,
    first: int,
    sums: FloatArray,
    mass: FloatArray,
) -> None:
    """Do what `kernels.add_to_sums` does, for some clusters from `first` on."""
    for i in range(X.shape[0]):
        if 0 <= labels[i] - first < len(mass):
            c = np.uint64(labels[i] - first)
            mass[c] += weights[i]
            for j in range(X.shape[1]):
                sums[c, j] += weights[i] * (X[i, j] - origin[j])


@kernel()
def _is_last(at: IntArray, groups: int, step: int, parts: int) -> bool:
    """Return whether all groups of clusters are added up, and this thread is the one to end the iteration."""
    for group in range(groups):
        if _read(at, _GROUPS + group) < (step + 1) * parts:
            return False
    before: int = _swap(at, _ADDED, step, step + 1)
    return before == step


@kernel()
def _end_step(
    origin: FloatArray,
    centroids: FloatArray,
    n_steps: int,
    tol: float,
    sums: FloatArray,
    mass: FloatArray,
    at: IntArray,
    changed: IntArray,
) -> None:
    """Move the centroids, or leave that to `team_steps` where a cluster is empty."""
    count, status = 0, kernels.MOVING
    for labels in changed:
        count += labels
    if count == 0 and at[_STATUS] != kernels.RELOCATED:
        status = kernels.SETTLED
    elif mass[mass.argmin()] == 0.0:  # `min` takes longer to compile
        status = _EMPTY
    elif move_centroids(sums, mass, origin, centroids) <= tol:
        status = kernels.WITHIN_TOLERANCE
    at[_STATUS], before = status, at[_FOLLOWED]
    if status != kernels.MOVING or before + 1 == n_steps:
        _swap(at, _OVER, 0, 1)  # no part is taken any more, even by a thread that has not seen this yet
    else:
        _swap(at, _FOLLOWED, before, before + 1)
