"""What iterative algorithms share: how far the centroids moved, those of every round, and the checks of settings."""

from collections.abc import Collection
from numbers import Real
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import LARGEST, check_choice

#: The array of a result with the centroids after every round, (rounds, k, d), with NaN where a round had fewer than k.
HISTORY = "history"

#: What a squared distance counts beside a distance where matchings are compared.
_TIE = 1e-9


def match(A: FloatArray, B: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the pairs of rows of A (a, d) and B (b, d) whose distances add up to least: indices, both (min(a, b),).

    Of sums that are equal, to nine digits, that with the least squares: in one column 0 and 1 are as far from 2 and 3 as from
    3 and 2, and only the first keeps the order.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    distances = cdist(A, B)
    largest = distances.max(initial=0.0) or 1.0
    rows, columns = linear_sum_assignment(distances + _TIE * distances * (distances / largest))
    return rows.astype(np.int64), columns.astype(np.int64)


def movement(old: FloatArray, new: FloatArray) -> float:
    """Return the largest distance between matched centroids (k, d), in units of the centroids' spread.

    The spread is the root mean square distance of the new centroids to their mean (1 where that is 0), so that the
    number does not depend on the data's unit. Infinite where the numbers of centroids differ.
    """
    if len(old) != len(new):
        return float("inf")
    rows, columns = match(old, new)
    farthest = float(np.sqrt(((old[rows] - new[columns]) ** 2).sum(axis=1)).max())
    spread = float(np.sqrt(((new - new.mean(axis=0)) ** 2).sum(axis=1).mean()))
    return farthest / spread if spread > 0 else farthest


def remember(history: FloatArray | None, centroids: FloatArray, k: int) -> FloatArray:
    """Return the centroids of all rounds (rounds, k, d), those of the last one (at most k, d) added; NaN where a round has fewer."""
    padded = np.full((1, k, centroids.shape[1]), np.nan)
    padded[0, : len(centroids)] = centroids
    return padded if history is None else np.concatenate([history, padded])


def check_tol(tol: object) -> float:
    """Return `tol` as a float, or raise UserError unless it is a finite number >= 0."""
    if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 <= tol < float("inf"):
        raise UserError(f"tol must be a finite number of at least 0, got {tol!r}")
    return float(tol)


def check_start(start: object, k: int, names: Collection[str]) -> str | list[list[float]]:
    """Return `start` if it is one of the names, or k different centroids of d numbers, which come back as lists.

    Raises UserError for anything else, in words that say what was expected and what came.
    """
    if isinstance(start, str):
        return check_choice("start", start, names)
    wanted = f"start must be one of {', '.join(names)}, or k={k} different centroids as lists of as many numbers each"
    rows = _plain(start)
    if not isinstance(rows, list) or not rows or not all(map(_is_numbers, rows)):
        text = repr(start)
        raise UserError(f"{wanted}; got {text if len(text) <= 60 else f'{text[:60]}...'}")
    if len(set(map(len, rows))) > 1:
        raise UserError(f"{wanted}; got lists of different lengths")
    if not all(abs(x) <= LARGEST for row in rows for x in row):
        raise UserError(f"{wanted}; got NaN, infinite or huge values")
    centroids = [[float(x) for x in row] for row in rows]
    different = len(set(map(tuple, centroids)))
    if len(centroids) != k or different != k:
        raise UserError(f"{wanted}; got {len(centroids)}, {different} of them different")
    return centroids


def _plain(value: Any) -> Any:
    """Return arrays and tuples as lists, all else as it is."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _is_numbers(row: object) -> bool:
    numbers = isinstance(row, list) and all(isinstance(x, Real) and not isinstance(x, bool) for x in row)
    return numbers and row != []
