"""The middle of weighted points, some of which may lie anywhere: weighted median, trimmed mean, geometric median."""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: The geometric median is found to this share of the points' median distance from their coordinatewise median.
TOLERANCE = 1e-9

#: Steps of Weiszfeld's algorithm, at the most; it slows down where the median lies next to a point.
STEPS = 1000

#: Points farther than this many times the median distance are drawn in to it, on the line to the coordinatewise median:
#: what they pull depends on their direction, and squares of larger numbers would not be finite.
REACH = 1e6

#: In a group of at least three sites, those farther than this many times the median distance are left out.
FAR = 4.0


def center(points: FloatArray, weights: FloatArray, trim: float | None) -> FloatArray:
    """Return the middle (d,) of what s sites say of one cluster, points (s, d) with weights (s,) above 0.

    Of three sites or more, those are left out that lie farther than `FAR` times the median distance from the coordinates'
    medians; here all sites count equally. Of the others the trimmed mean is taken, or for `trim=None` the geometric median.
    """
    if len(points) > 2:
        distance = _norms(points - np.median(points, axis=0))
        near = distance <= FAR * np.median(distance)
        points, weights = points[near], weights[near]
    return geometric_median(points, weights) if trim is None else trimmed_mean(points, weights, trim)


def weighted_median(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the median of each column of values (s, d) with weights (s,): the middle between two where both are one."""
    order = np.argsort(values, axis=0, kind="stable")
    sums = np.cumsum(weights[order], axis=0)
    half = 0.5 * sums[-1]
    slack = 1e-12 * sums[-1]
    low = np.take_along_axis(values, _at(order, (sums >= half - slack).argmax(axis=0)), axis=0)[0]
    high = np.take_along_axis(values, _at(order, (sums > half + slack).argmax(axis=0)), axis=0)[0]
    middle: FloatArray = low + 0.5 * (high - low)
    return middle


def trimmed_mean(values: FloatArray, weights: FloatArray, trim: float) -> FloatArray:
    """Return the mean of each column of values (s, d) without the share `trim` of the weight (s,) at either end.

    A value at the edge counts with the part of its weight that is inside.
    """
    order = np.argsort(values, axis=0, kind="stable")
    sorted_, own = np.take_along_axis(values, order, axis=0), weights[order]
    upper = np.cumsum(own, axis=0)
    total = upper[-1]
    inside = np.minimum(upper, (1 - trim) * total) - np.maximum(upper - own, trim * total)
    # What rounding leaves of a value outside must not count: it may be huge.
    inside = np.where(inside > 1e-9 * total, inside, 0.0)
    origin = weighted_median(values, weights)
    mean: FloatArray = origin + (inside / inside.sum(axis=0) * (sorted_ - origin)).sum(axis=0)
    return mean


def geometric_median(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the point (d,) with the smallest weighted sum of distances to points (s, d), to `TOLERANCE`.

    Weiszfeld's algorithm from the coordinates' medians, with the step of Vardi and Zhang (2000), The multivariate
    L1-median and associated data depth, where it hits a point: it goes on unless that point is the median. Where the
    points lie on a line and several would do, it is the one nearest to the start.
    """
    start = weighted_median(points, weights)
    distance = _norms(points - start)
    scale = float(np.median(distance)) or float(distance[distance > 0].min(initial=np.inf))
    if not np.isfinite(scale):
        return start
    offsets = (points - start) / scale
    offsets *= np.minimum(1.0, REACH / np.maximum(distance / scale, 1.0))[:, None]
    weights = weights / weights.max()
    here = np.zeros_like(start)
    for _ in range(STEPS):
        moved = _step(here, offsets, weights)
        done = float(_norms((moved - here)[None])[0]) <= TOLERANCE
        here = moved
        if done:
            break
    found: FloatArray = start + scale * here
    return found


def _step(here: FloatArray, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the next point of Weiszfeld's algorithm."""
    distance = _norms(points - here)
    hit = distance <= 1e-14
    if hit.all():
        return here
    pull = weights[~hit] / distance[~hit]
    target: FloatArray = (pull[:, None] * points[~hit]).sum(axis=0) / pull.sum()
    if not hit.any():
        return target
    force = float(_norms((pull[:, None] * (points[~hit] - here)).sum(axis=0)[None])[0])
    weight = float(weights[hit].sum())
    if force <= weight:
        return here
    part: FloatArray = here + (1 - weight / force) * (target - here)
    return part


def _norms(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.sqrt((vectors**2).sum(axis=1))
    return lengths


def _at(order: IntArray, row: IntArray) -> IntArray:
    return np.take_along_axis(order, row[None], axis=0)
