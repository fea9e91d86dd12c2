"""Points within a radius of others, each found once and then out of the way: the grouping of FeCA's server.

A loop over all points for each group takes hours for a million points in a hundred thousand groups. Here points lie in a
balanced k-d tree whose nodes count the points that are not in a group yet, so that a search passes by what is empty or too far.
It goes down level by level, four branches at a time, without a jump on what a distance is: so the processor asks memory for the
next nodes while it waits for one, which takes two thirds of the time of going down to one leaf after the other.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.devices.site_kernels import MOST_SUMMED, pairwise_sum
from flareclust.core.runtime import kernel
from flareclust.core.seeds import squared_distance

#: Points in a leaf, at most.
_LEAF = 48

#: Squared distances that differ by less from the squared radius, relatively or absolutely, are compared as NumPy computes them.
_NEAR, _TINY = 1e-12, 1e-300

_FAST = {"contract", "nsz", "nnan", "reassoc"}


def group_around(points: FloatArray, radii: FloatArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Group points (c, d) around those in `order` (c,) that have no group yet: all without one within the radius (c,).

    A distance is that of `np.sqrt(((points - point) ** 2).sum(axis=1))`, bit for bit.

    Returns:
        The group of each point (c,), numbered in the order of forming, and the point that each was formed around.
    """
    c, d = points.shape
    depth = 2 * max(0, int(np.ceil(np.log2(max(c, 1) / _LEAF) / 2)))
    nodes = 2 ** (depth + 1) - 1
    rows, names = points.copy(), np.arange(c)
    boxes, live = np.empty((nodes, 2, d)), np.zeros(nodes, np.int64)
    starts = np.zeros(nodes, np.int64)
    _build(rows, names, boxes, live, starts, 2**depth - 1)
    groups, picked = np.full(c, -1, np.int64), np.empty(c, np.int64)
    found = _group(points, radii, order, rows, names, boxes, live, starts, 2**depth - 1, groups, picked)
    return groups, picked[:found].copy()


@kernel()
def _build(rows: FloatArray, names: IntArray, boxes: FloatArray, live: IntArray, starts: IntArray, leaves: int) -> None:
    """Sort rows and names into the tree: node t has the nodes 2 t + 1 and 2 t + 2 below it, leaves begin at `leaves`."""
    starts[0], live[0] = 0, rows.shape[0]
    for t in range(live.shape[0]):
        lo, hi = starts[t], starts[t] + live[t]
        low, high = boxes[t]
        low[:], high[:] = np.inf, -np.inf
        for i in range(lo, hi):
            for j in range(rows.shape[1]):
                low[j], high[j] = min(low[j], rows[i, j]), max(high[j], rows[i, j])
        if t < leaves:
            widest, middle = np.argmax(high - low), (lo + hi) // 2
            _halve(rows, names, lo, hi, middle, widest)
            starts[2 * t + 1], live[2 * t + 1] = lo, middle - lo
            starts[2 * t + 2], live[2 * t + 2] = middle, hi - middle


@kernel()
def _halve(rows: FloatArray, names: IntArray, lo: int, hi: int, middle: int, j: int) -> None:
    """Order rows lo to hi so that column j is at most that of row `middle` before it, and at least that behind it (Hoare)."""
    first, last = lo, hi - 1
    while first < last:
        a, b, c = rows[first, j], rows[(first + last) // 2, j], rows[last, j]
        pivot = max(min(a, b), min(max(a, b), c))
        i, k = first, last
        while i <= k:
            while rows[i, j] < pivot:
                i += 1
            while rows[k, j] > pivot:
                k -= 1
            if i <= k:
                _swap(rows, names, i, k)
                i += 1
                k -= 1
        if middle <= k:
            last = k
        elif middle >= i:
            first = i
        else:
            return


@kernel()
def _swap(rows: FloatArray, names: IntArray, i: int, k: int) -> None:
    for j in range(rows.shape[1]):
        rows[i, j], rows[k, j] = rows[k, j], rows[i, j]
    names[i], names[k] = names[k], names[i]


@kernel()
def _group(
    points: FloatArray,
    radii: FloatArray,
    order: IntArray,
    rows: FloatArray,
    names: IntArray,
    boxes: FloatArray,
    live: IntArray,
    starts: IntArray,
    leaves: int,
    groups: IntArray,
    picked: IntArray,
) -> int:
    """Fill `groups` and `picked`; return the number of groups. Rows of a leaf without a group stand before the others."""
    nodes, below, number = np.empty(leaves + 4, np.int64), np.empty(leaves + 4, np.int64), 0
    for name in order:
        if groups[name] >= 0:
            continue
        point, radius = points[name], radii[name]
        square = radius * radius
        inside, outside = square * (1 - _NEAR) - _TINY, square * (1 + _NEAR) + _TINY
        nodes[0], size = 0, 1
        while size > 0 and nodes[0] < leaves:
            found = 0
            for t in nodes[:size]:
                for child in range(4 * t + 3, 4 * t + 7):
                    below[found] = child
                    found += (live[child] > 0) & (_to_box(point, boxes[child]) <= outside)
            nodes, below, size = below, nodes, found
        for t in nodes[:size]:
            i, left = starts[t], starts[t] + live[t]
            while i < left:
                away = squared_distance(rows[i], point)
                if away < inside or (away <= outside and _exact(rows[i], point) <= radius):
                    left -= 1
                    groups[names[i]] = number
                    _swap(rows, names, i, left)
                else:
                    i += 1
            gone, node = starts[t] + live[t] - left, t
            while gone > 0:
                live[node] -= gone
                if node == 0:
                    break
                node = (node - 3) // 4
        groups[name], picked[number] = number, name
        number += 1
    return number


@kernel(fastmath=_FAST)
def _to_box(point: FloatArray, box: FloatArray) -> float:
    """Return the squared distance of a point to a box, but for its last bits."""
    total, low, high = 0.0, box[0], box[1]
    for j in range(point.shape[0]):
        nearest = point[j] if point[j] > low[j] else low[j]  # noqa: FURB136
        nearest = nearest if nearest < high[j] else high[j]  # noqa: FURB136
        total += (point[j] - nearest) * (point[j] - nearest)
    return total


@kernel()
def _exact(x: FloatArray, y: FloatArray) -> float:
    """Return the distance as NumPy computes it: up to 128 squares in eight sums, more of them in halves."""
    squares = np.empty(x.shape[0])
    for j in range(x.shape[0]):
        squares[j] = (x[j] - y[j]) * (x[j] - y[j])
    return float(np.sqrt(_sum(squares)))


@kernel()
def _sum(values: FloatArray) -> float:
    """Return `values.sum()` of any number of values, which NumPy halves as long as there are more than `MOST_SUMMED`."""
    n = values.shape[0]
    if n <= MOST_SUMMED:
        return float(pairwise_sum(values))
    half = n // 2 - n // 2 % 8
    return float(_sum(values[:half]) + _sum(values[half:]))
