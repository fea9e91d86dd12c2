"""Numba kernels for distances on common entries: from differences, so that small distances keep their digits.

Serial, and added in a fixed order, as those of core/kernels.py. A sum runs in eight lanes, which the compiler can
compute at once without reordering any of them.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel

_LANES = 8

#: Below this, 1 - cos has lost digits in a difference.
_CLOSE = 1e-6


@kernel()
def pair_distances(
    A: FloatArray,
    masks_a: FloatArray,
    which_a: IntArray,
    i: IntArray,
    B: FloatArray,
    masks_b: FloatArray,
    which_b: IntArray,
    j: IntArray,
    cosine: bool,
    out: FloatArray,
) -> None:
    """out[p] = phi of A[i[p]] and B[j[p]] on the entries that both know; all values are 0 where unknown."""
    lanes = np.empty((3, _LANES))
    for p in range(len(i)):
        x, known_x = A[i[p]], masks_a[which_a[i[p]]]
        y, known_y = B[j[p]], masks_b[which_b[j[p]]]
        if cosine:
            out[p] = _cosine(x, known_x, y, known_y, lanes)
        else:
            out[p] = np.sqrt(_squared(x, known_x, y, known_y, lanes))


@kernel()
def _squared(x: FloatArray, known_x: FloatArray, y: FloatArray, known_y: FloatArray, lanes: FloatArray) -> float:
    """Return the squared euclidean distance."""
    d, lanes[0] = len(x), 0.0
    for start in range(0, d - _LANES + 1, _LANES):
        for l in range(_LANES):
            f = start + l
            lanes[0, l] += known_x[f] * known_y[f] * (x[f] - y[f]) ** 2
    for f in range(d - d % _LANES, d):
        lanes[0, 0] += known_x[f] * known_y[f] * (x[f] - y[f]) ** 2
    return float(lanes[0].sum())


@kernel()
def _cosine(x: FloatArray, known_x: FloatArray, y: FloatArray, known_y: FloatArray, lanes: FloatArray) -> float:
    """Return 1 - cos; where that is small, half the squared distance of the directions, which is the same."""
    d = len(x)
    lanes[:] = 0.0
    for start in range(0, d - _LANES + 1, _LANES):
        for l in range(_LANES):
            f = start + l
            lanes[0, l] += known_y[f] * x[f] * x[f]
            lanes[1, l] += known_x[f] * y[f] * y[f]
            lanes[2, l] += x[f] * y[f]
    for f in range(d - d % _LANES, d):
        lanes[0, 0] += known_y[f] * x[f] * x[f]
        lanes[1, 0] += known_x[f] * y[f] * y[f]
        lanes[2, 0] += x[f] * y[f]
    xx, yy = lanes[0].sum(), lanes[1].sum()
    if xx == 0.0 or yy == 0.0:
        return 0.0 if xx == yy else 1.0
    length_x, length_y = np.sqrt(xx), np.sqrt(yy)
    found = 1.0 - lanes[2].sum() / (length_x * length_y)
    if found > _CLOSE:
        return float(found)
    total = 0.0
    for f in range(d):
        total += known_x[f] * known_y[f] * (x[f] / length_x - y[f] / length_y) ** 2
    return float(total / 2)
