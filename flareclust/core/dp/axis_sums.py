"""Sums over rows for the start with many columns: second moments, and numbers of rows in cells along given axes.

As in `flareclust.core.dp.sums`, what a row contributes depends on the row and on public numbers only, is an integer before it
is added, and has a length of at most what is stated. Nothing here draws noise.

Source: Dwork, Talwar, Thakurta, Zhang, Analyze Gauss (2014), algorithm 1 (noise on the matrix of second moments).
"""

import math

import numpy as np

from flareclust._foundation.errors import Aborted
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray
from flareclust.core.chunks import pieces
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.dp.sums import UNIT

#: A row's values in integers of so many per 1, a power of two, so that its products are whole, too.
_STEP = 2**13

#: What the products of two columns count, in eighths: near the root of two, as each stands for two entries of the matrix, and
#: below it, so that all products of a row together are no longer than the whole matrix would be.
_PRODUCT = 11

#: Integers per 1 of the products of a column with itself, of the values, and of the number of rows.
SQUARE_UNIT, VALUE_UNIT, ROW_UNIT = 8 * _STEP**2, 4 * _STEP**2, 2 * _STEP**2

#: So many columns at most have second moments: half their square is what every site sends.
MOST_COLUMNS = 512


def second_moment_sums(data: FloatArray, own: Box, box: Box, aborted: AbortCheck) -> IntArray:
    """Return the number of rows, the sums of their values, and of the products of any two (1 + d + d (d + 1) / 2,).

    Values are clipped at the site's `own` bounds, and are distances from the middle of the `box`, in radii of it. The products
    are those on and above the diagonal of the matrix of second moments, row by row. A row changes all by at most
    `second_moment_sensitivity`: the products by its squared length.
    """
    n, d = data.shape
    upper = np.triu_indices(d)
    values, products = np.zeros(d, np.int64), np.zeros((d, d), np.int64)
    for part in pieces(n, d):
        if aborted():
            raise Aborted("stopped while sums over the rows were taken")
        away = (box.clip(own.clip(data[part])) - box.middle) / box.half
        away /= np.maximum(np.sqrt((away**2).sum(axis=1)), 1)[:, None]  # beyond 1 by rounding only
        whole = np.trunc(dp_sums.whole(away) / (UNIT // _STEP))
        values += whole.sum(axis=0).astype(np.int64)
        products += (whole.T @ whole).astype(np.int64)  # of integers below 2^53, and so exact in any order
    products *= np.where(np.eye(d, dtype=np.bool_), 8, _PRODUCT)
    return np.concatenate([[n * ROW_UNIT], values * (VALUE_UNIT // _STEP), products[upper]])


def second_moment_sensitivity() -> float:
    """Return the L2 sensitivity of `second_moment_sums`."""
    return math.sqrt(SQUARE_UNIT**2 + VALUE_UNIT**2 + ROW_UNIT**2)


def matrix_of(products: FloatArray, d: int) -> FloatArray:
    """Return the symmetric matrix (d, d) of the products in units of `SQUARE_UNIT` (d (d + 1) / 2,)."""
    upper = np.zeros((d, d))
    upper[np.triu_indices(d)] = products
    above = np.triu(upper, 1) * 8 / _PRODUCT
    return np.diag(np.diag(upper)) + above + above.T


def value_noise(noise: float) -> float:
    """Return the standard deviation of the noise of a sum of values, from that of all integers."""
    return noise / VALUE_UNIT


def product_noise(noise: float) -> float:
    """Return the standard deviation of the noise of an entry off the diagonal, from that of all integers."""
    return noise / (_STEP**2 * _PRODUCT)


def axis_cell_counts(
    data: FloatArray,
    own: Box,
    middle: FloatArray,
    axes: FloatArray,
    half: FloatArray,
    shape: tuple[int, ...],
    aborted: AbortCheck,
) -> IntArray:
    """Return the number of rows in each cell (cells,) of a grid along given axes, the last axis first to change.

    A row changes one of them by 1: L2 sensitivity 1.

    Args:
        data: rows (n, d).
        own: the site's bounds, which its rows are clipped at.
        middle: of the grid (d,).
        axes: directions (p, d), entries between -1 and 1.
        half: half the length of the grid along each (p,); rows beyond count in the cell nearest to them.
        shape: numbers of cells along each (p,).
        aborted: asked between pieces of the rows.
    """
    counts, parts = np.zeros(math.prod(shape), dtype=np.int64), np.array(shape)
    step = np.cumprod([1, *shape[:0:-1]])[::-1]
    for part in pieces(*data.shape):
        if aborted():
            raise Aborted("stopped while rows were counted")
        away = own.clip(data[part]) - middle
        along = np.zeros((len(away), len(shape)))
        for column, direction in zip(away.T, axes.T, strict=True):
            # Column by column and not by a product of matrices, whose rounding of a row could depend on the other rows.
            along += column[:, None] * direction
        place = np.clip((along / half + 1) / 2 * parts, 0, parts - 1)
        counts += np.bincount(place.astype(np.int64) @ step, minlength=len(counts))
    return counts
