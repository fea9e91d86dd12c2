"""The one form of array that the kernels of the numerical core take, and the checks of a caller's arrays.

Arrays are C-contiguous, aligned, writeable float64 or int64, large rows float32, too; see `flareclust.core.kernels`.
"""

import math
import operator

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.chunks import PIECE, all_finite, is_mapped
from flareclust.core.runtime import kernel

#: Most columns in which float32 rows become float64: what is computed from them takes a copy in any case.
_FEW_COLUMNS = 3


def as_matrix(values: ArrayLike, name: str = "X", *, empty: bool = True) -> FloatArray:
    """Return `values` as a finite (rows, features) float64 array in the kernels' form; copies only if it must.

    Raises UserError unless it is 2-D with at least one feature and all numbers are finite, or where it is `empty` and may not.
    """
    matrix = _checked(_as_form(values, name), name)
    if not empty:
        check_rows(matrix, name)
    return matrix


def check_rows(matrix: Array, name: str) -> None:
    """Raise UserError where a matrix has no row."""
    if len(matrix) == 0:
        raise UserError(f"{name} must have at least one row, got none")


def as_rows(values: ArrayLike) -> Array:
    """Return what `as_matrix` does, but large float32 rows as they are: kernels make float64 of each number that they read.

    Kernels are compiled again for them, which pays neither for few rows nor in few columns. Those in a mapped file become
    float64 in memory, which computes faster.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.ndim != 2 or is_mapped(values):
        return as_matrix(values)
    if values.nbytes <= PIECE or values.shape[1] <= _FEW_COLUMNS:
        return as_matrix(values)
    return _checked(np.require(values, np.float32, ["C", "A", "W", "E"]), "X")


def _checked(matrix: Array, name: str) -> Array:
    """Return a matrix of finite numbers, or raise UserError."""
    if matrix.ndim != 2:
        raise UserError(
            f"{name} must have two axes (rows, features), got shape {matrix.shape}; "
            f"for a single feature use {name}.reshape(-1, 1)"
        )
    if matrix.shape[1] == 0:
        raise UserError(f"{name} must have at least one feature, got shape {matrix.shape}")
    if not _finite(matrix):
        bad = int((~np.isfinite(matrix)).any(axis=1).sum())
        raise UserError(f"{name} must be finite, got NaN or infinity in {bad} of {len(matrix)} rows; drop or fill them")
    return matrix


def as_centroids(values: ArrayLike, d: int) -> FloatArray:
    """Return centroids (k, d) with k >= 1 in the kernels' form, or raise UserError."""
    centroids = as_matrix(values, "centroids", empty=False)
    if centroids.shape[1] != d:
        raise UserError(f"centroids have {centroids.shape[1]} features but X has {d}; give both the same columns")
    return centroids


def as_weights(weights: ArrayLike | None, n: int) -> FloatArray:
    """Return row weights (n,) in the kernels' form; None means that every row weighs 1.

    Raises UserError unless there is one finite weight >= 0 for each row and not all are 0.
    """
    if weights is None:
        return np.ones(n)
    vector = _as_form(weights, "weights")
    if vector.shape != (n,):
        raise UserError(f"weights must be one number for each of the {n} rows, got shape {vector.shape}")
    if not np.isfinite(vector).all() or (vector < 0).any():
        raise UserError("weights must be finite and not negative; drop rows that should not count or give them 0")
    if not vector.any():
        raise UserError("weights must not all be 0; leave weights out to count every row once")
    return vector


def as_labels(labels: ArrayLike, n: int, k: int) -> IntArray:
    """Return labels (n,) as int64 in the kernels' form, or raise UserError unless they are integers in [0, k)."""
    values = np.asarray(labels)
    if values.shape != (n,) or (n > 0 and values.dtype.kind not in "iu"):
        raise UserError(f"labels must be {n} integers, one for each row, got shape {values.shape} of {values.dtype}")
    values = np.require(values, np.int64, ["C", "A", "W", "E"])
    if n > 0:
        least, largest = extent(values)
        if least < 0 or largest >= k:
            raise UserError(f"labels must lie in 0..{k - 1}, got {least:.0f}..{largest:.0f}; one per centroid")
    return values


def as_count(value: int, name: str, maximum: int | None = None) -> int:
    """Return `value` as an int with 1 <= value (<= most), or raise UserError."""
    try:
        count = operator.index(value)
    except TypeError:
        raise UserError(f"{name} must be an integer, got {value!r}") from None
    if count < 1 or (maximum is not None and count > maximum):
        allowed = "at least 1" if maximum is None else f"between 1 and the number of rows, {maximum}"
        raise UserError(f"{name} must be {allowed}, got {count}")
    return count


def _as_form(values: ArrayLike, name: str) -> FloatArray:
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.carray:
        return values
    try:
        mapped = isinstance(values, np.ndarray) and is_mapped(values)
        return np.require(values, np.float64, ["C", "A", "E"] if mapped else ["C", "A", "W", "E"])
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be an array of numbers, got {type(values).__name__}: {error}") from None


# The range of an array in one compiled call: of a few hundred numbers NumPy takes longer to begin than to look at them.

#: Beyond so many numbers NumPy, which looks at several at once, is faster.
_FEW = 4096


def extent(values: Array) -> tuple[float, float]:
    """Return `values.min(), values.max()` of an array (float64 or int64, not empty), or twice NaN where a number is not finite."""
    if 0 < values.size <= _FEW:
        return _extent(values.reshape(-1))
    least, largest = float(values.min()), float(values.max())  # NaN where one is
    return (least, largest) if math.isfinite(least) and math.isfinite(largest) else (math.nan, math.nan)


def _finite(X: FloatArray) -> bool:
    """Return `np.isfinite(X).all()`."""
    return math.isfinite(_extent(X.reshape(-1))[0]) if 0 < X.size <= _FEW else all_finite(X)


@kernel()
def _extent(values: Array) -> tuple[float, float]:
    least = largest = values[0]
    odd = least - least  # stays 0, or NaN from the first number on that is not finite
    for value in values:
        odd += value - value
        least = value if value < least else least  # noqa: FURB136
        largest = value if value > largest else largest  # noqa: FURB136
    return least + odd, largest + odd


# Why `turn` exists: written one by one, columns bring every cache line of the rows in once for each column, and NumPy makes a
# copy of a block before it transposes it. It takes half of that time, and touches the rows' memory once.

#: Columns that are written together; of a row their numbers fill a cache line.
TURNED = 8


@kernel()
def turn(columns: tuple[FloatArray, ...], places: IntArray, rows: FloatArray) -> None:
    """rows[:, places[j]] = columns[j] for eight columns (n,); where a place is there twice, so must the column be."""
    a, b, c, d, e, f, g, h = columns
    to_a, to_b, to_c, to_d = places[0], places[1], places[2], places[3]
    to_e, to_f, to_g, to_h = places[4], places[5], places[6], places[7]
    for i in range(rows.shape[0]):
        row = rows[i]
        row[to_a], row[to_b], row[to_c], row[to_d] = a[i], b[i], c[i], d[i]
        row[to_e], row[to_f], row[to_g], row[to_h] = e[i], f[i], g[i], h[i]
