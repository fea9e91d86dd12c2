"""What the metrics have in common: checks of their input, and distances."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.chunks import pieces


def same_width(name_a: str, a: Any, name_b: str, b: Any, *, unknown: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return two sets of points in the same space, (n, d) and (m, d), with at least one each; else UserError."""
    A, B = as_numbers(name_a, a, unknown=unknown), as_numbers(name_b, b, unknown=unknown)
    for name, points in ((name_a, A), (name_b, B)):
        if points.ndim != 2 or points.size == 0:
            raise UserError(f"{name}: expected a 2-D array with at least one row and column; got shape {points.shape}.")
    if A.shape[1] != B.shape[1]:
        raise UserError(
            f"{name_a} and {name_b}: expected the same number of columns; got shapes {A.shape} and {B.shape}. "
            "Are both in the same features, in the same order?"
        )
    return A, B


def as_points(name: str, value: Any) -> FloatArray:
    """Return points (n, d), NaN for unknown entries; UserError where the array is not 2-D, or holds infinity."""
    result = as_numbers(name, value, unknown=True)
    if result.ndim != 2:
        raise UserError(f"{name}: expected a 2-D array; got shape {result.shape}.")
    return result


def as_numbers(name: str, value: Any, *, unknown: bool = False) -> FloatArray:
    """Return an array of finite numbers, and of NaN where `unknown` allows it; UserError for anything else in it."""
    try:
        result = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: expected an array of numbers; got {type(value).__name__} ({error}).") from error
    wanted, wrong = ("finite numbers", "NaN or infinite")
    if unknown:
        wanted, wrong = ("finite numbers, or NaN for unknown ones", "infinite")
    if bad := int((np.isinf(result) if unknown else ~np.isfinite(result)).sum()):
        raise UserError(f"{name}: expected {wanted}; got {bad} {wrong} values, shape {result.shape}.")
    return result


def one_per_row(name: str, value: ArrayLike, n: int) -> Array:
    """Return labels of n rows (n,), of any type; UserError for another shape."""
    labels = np.asarray(value)
    if labels.shape != (n,):
        raise UserError(f"{name}: expected one per row, shape ({n},), got shape {labels.shape}")
    return labels


def as_whole(name: str, value: ArrayLike, n: int | None) -> IntArray:
    """Return integers (n,), any number of them without n; UserError for another shape, or other numbers."""
    numbers = np.asarray(value)
    if numbers.ndim != 1 or (n is not None and len(numbers) != n) or (numbers.size and numbers.dtype.kind not in "iu"):
        wanted = "a 1-D array" if n is None else f"shape ({n},)"
        raise UserError(f"{name}: expected integers, {wanted}; got {numbers.dtype} of shape {numbers.shape}")
    return numbers.astype(np.int64)


def distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return (len(A), len(B)) distances from plain differences, in pieces so that no large (n, k, d) array arises."""
    result = np.empty((len(A), len(B)))
    for part in pieces(len(A), B.size):
        result[part] = np.sqrt(((A[part, None] - B) ** 2).sum(axis=2))
    return result


def ratios(parts: FloatArray, wholes: FloatArray) -> FloatArray:
    """Return numbers over others, none negative; over 0 infinity, or 0 where the first is 0, too."""
    found = np.where(parts > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):  # of what is near 0: infinity is the right answer
        np.divide(parts, wholes, out=found, where=wholes > 0)
    return found


def norms(points: FloatArray) -> FloatArray:
    """Return the lengths of the rows over their known entries."""
    return np.asarray(np.sqrt(np.nansum(points**2, axis=1)))
