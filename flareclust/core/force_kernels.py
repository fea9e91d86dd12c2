"""Numba kernels around the products of matrices that distances between clusters of points come from.

A product of matrices takes a sixth of the time that array expressions take to turn it into distances and to add them up: each
of these reads and writes a block that does not fit the cache, or is new memory. Sums may be added in any order, which differs
between processors in their last bits only.
"""

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel

_FAST = {"contract", "nsz", "nnan", "reassoc"}


@kernel()
def squared_distances(
    x: FloatArray,
    y: FloatArray,
    columns: IntArray,
    xx: FloatArray,
    yy: FloatArray,
    close: float,
    least: float,
    products: FloatArray,
) -> None:
    """products[i, j] become xx_i + yy_j - 2 products[i, j], at least `least`.

    Below `close` times xx_i + yy_j they become |x_i - y_j|^2 in these columns.
    """
    for i in range(products.shape[0]):
        row, own, again = products[i], xx[i], False
        for j in range(yy.shape[0]):
            total = own + yy[j]
            square = total - 2.0 * row[j]
            row[j] = square if square > least else least  # noqa: FURB136
            again |= row[j] < close * total
        if again:
            for j in range(yy.shape[0]):
                if row[j] < close * (own + yy[j]):
                    row[j] = max(_squared(x[i], y[j], columns), least)


@kernel(fastmath=_FAST)
def _squared(x: FloatArray, y: FloatArray, columns: IntArray) -> float:
    total = 0.0
    for j in columns:
        total += (x[j] - y[j]) * (x[j] - y[j])
    return total


@kernel(fastmath=_FAST)
def add_terms(terms: FloatArray, ends: IntArray, own: bool, by_row: FloatArray, by_column: FloatArray) -> None:
    """by_row[i, q] += the sum of terms (a, b) over the columns ends[q] to ends[q + 1]; by_column[j] += that over all rows.

    The columns of the first q are left out of the latter if they are the rows' `own`.
    """
    for q in range(ends.shape[0] - 1):
        column = by_column[ends[q] : ends[q + 1]]
        for i in range(terms.shape[0]):
            row, total = terms[i, ends[q] : ends[q + 1]], 0.0
            for j in range(column.shape[0]):
                total += row[j]
                column[j] += row[j]
            by_row[i, q] += total
        if own and q == 0:
            column[:] = 0.0
