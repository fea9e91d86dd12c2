"""The one form of array that the kernels of the numerical core take, and the checks of a caller's arrays.

Arrays are C-contiguous, aligned, writeable float64 or int64, large rows float32, too; see `flareclust.core.kernels`.
"""

import operator

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.chunks import PIECE, is_mapped
from flareclust.core.extents import extent, finite

#: Most columns in which float32 rows become float64: what is computed from them takes a copy in any case.
_FEW_COLUMNS = 3


def as_matrix(values: ArrayLike, name: str = "X") -> FloatArray:
    """Return `values` as a finite (rows, features) float64 array in the kernels' form; copies only if it must.

    Raises UserError unless it is 2-D with at least one feature and all numbers are finite.
    """
    return _checked(_as_form(values, name), name)


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
    if not finite(matrix):
        bad = int((~np.isfinite(matrix)).any(axis=1).sum())
        raise UserError(f"{name} must be finite, got NaN or infinity in {bad} of {len(matrix)} rows; drop or fill them")
    return matrix


def as_centroids(values: ArrayLike, d: int) -> FloatArray:
    """Return centroids (k, d) with k >= 1 in the kernels' form, or raise UserError."""
    centroids = as_matrix(values, "centroids")
    if len(centroids) == 0:
        raise UserError("centroids must have at least one row, got none")
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
            raise UserError(
                f"labels must lie in 0..{k - 1}, got {least:.0f}..{largest:.0f}; one for each centroid's row"
            )
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
