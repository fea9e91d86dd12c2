"""Large arrays of rows, piece by piece: what NumPy would compute over all of them at once, without copies of all of them.

A site's rows may be a map of a file that is larger than its memory. Every function here returns, bit for bit, what the
plain expression named in its docstring does.
"""

import mmap
from collections.abc import Iterator

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray

#: Bytes of rows that are looked at or moved at once.
PIECE = 4 << 20


def pieces(n: int, d: int, size: int | None = None) -> Iterator[slice]:
    """Give slices of n rows of d numbers, in order, of at most `size` bytes each (`PIECE` by default), one at least."""
    step = max(1, (PIECE if size is None else size) // (8 * max(1, d)))
    for start in range(0, max(n, 1), step):
        yield slice(start, min(n, start + step))


def is_mapped(X: Array) -> bool:
    """Return whether an array lies in a mapped file."""
    base: object = X
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def all_finite(X: FloatArray) -> bool:
    """Return `np.isfinite(X).all()`."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum()):  # one pass, and no array of answers
            return True
    return bool(np.isfinite(X.min()) and np.isfinite(X.max()))  # NaN where a cell is


def variances(X: FloatArray) -> FloatArray:
    """Return `X.var(axis=0)`, (d,), of rows (n, d), C-contiguous."""
    n, d = X.shape
    if d == 1 or X.nbytes <= PIECE:  # a single column is added up in another order
        return np.asarray(X.var(axis=0))
    mean, total = X.mean(axis=0), np.zeros((1, d))
    for part in pieces(n, d):
        deviations = np.empty((part.stop - part.start + 1, d))
        deviations[0] = total
        np.subtract(X[part], mean, out=deviations[1:])
        np.multiply(deviations[1:], deviations[1:], out=deviations[1:])
        total = deviations.sum(axis=0, keepdims=True)  # row after row, as over all of them at once
    return np.asarray(total[0] / n)


def means_of(X: FloatArray, members: BoolArray) -> FloatArray:
    """Return `X[members].mean(axis=0)`, (d,), of the members among rows (n, d), C-contiguous."""
    n, d = X.shape
    if d == 1 or X.nbytes <= PIECE:
        return np.asarray(X[members].mean(axis=0))
    total = np.zeros((1, d))
    for part in pieces(n, d):
        total = np.concatenate([total, X[part][members[part]]]).sum(axis=0, keepdims=True)
    return np.asarray(total[0] / np.count_nonzero(members))
