"""Loops that kernels share. Written out, since array expressions allocate and take long to compile."""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel


@kernel()
def segment_mean(Z: FloatArray, order: IntArray, lo: int, hi: int, mean: FloatArray) -> None:
    """mean (d,) becomes the mean of a segment's rows."""
    fill(mean, 0.0)
    for i in range(lo, hi):
        x = Z[order[i]]
        for j in range(len(mean)):
            mean[j] += x[j]
    for j in range(len(mean)):
        mean[j] /= hi - lo


@kernel()
def projection(x: FloatArray, centre: FloatArray, axis: FloatArray) -> float:
    """Return the coordinate of x along an axis, from a centre."""
    total = 0.0
    for j in range(len(axis)):
        total += (x[j] - centre[j]) * axis[j]
    return total


@kernel()
def squared_distance(x: FloatArray, y: FloatArray) -> float:
    """Return the square of the distance between x and y."""
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) ** 2
    return total


@kernel()
def squared_norm(x: FloatArray) -> float:
    """Return the square of the length of x."""
    total = 0.0
    for value in x:
        total += value * value
    return total


@kernel()
def argsort(values: FloatArray) -> IntArray:
    """Return `np.argsort(values, kind="stable")` by a bottom-up merge sort, which compiles in a third of its time."""
    n, width = len(values), 1
    ranked, merged = np.arange(n), np.empty(n, np.int64)
    while width < n:
        for lo in range(0, n, 2 * width):
            middle, hi = min(lo + width, n), min(lo + 2 * width, n)
            a, b = lo, middle
            for at in range(lo, hi):
                if a < middle and (b == hi or values[ranked[a]] <= values[ranked[b]]):
                    merged[at] = ranked[a]
                    a += 1
                else:
                    merged[at] = ranked[b]
                    b += 1
        ranked, merged = merged, ranked
        width *= 2
    return ranked


@kernel()
def copy_into(source: FloatArray, target: FloatArray) -> None:
    """target becomes source."""
    for j in range(len(source)):
        target[j] = source[j]


@kernel()
def fill(target: FloatArray, value: float) -> None:
    """Every entry of target becomes value."""
    for j in range(len(target)):
        target[j] = value


@kernel()
def segment_of(order: IntArray, lo: int, hi: int) -> IntArray:
    """Return a copy of `order[lo:hi]`."""
    found = np.empty(hi - lo, np.int64)
    for i in range(lo, hi):
        found[i - lo] = order[i]
    return found


@kernel()
def members_of(order: IntArray, own: IntArray, group: int) -> IntArray:
    """Return which rows of a segment belong to a group."""
    members, size = np.empty(len(order), np.int64), 0
    for i in range(len(order)):
        if own[i] == group:
            members[size] = order[i]
            size += 1
    return members[:size]


@kernel()
def group_means(Z: FloatArray, order: IntArray, own: IntArray, means: FloatArray, sizes: IntArray) -> None:
    """means (groups, d) and sizes become those of the groups `own` of a segment's rows."""
    for g in range(len(sizes)):
        sizes[g] = 0
        fill(means[g], 0.0)
    for i in range(len(order)):
        if own[i] >= 0:
            sizes[own[i]] += 1
            for j in range(Z.shape[1]):
                means[own[i], j] += Z[order[i], j]
    for g in range(len(sizes)):
        for j in range(Z.shape[1]):
            means[g, j] /= max(sizes[g], 1)
