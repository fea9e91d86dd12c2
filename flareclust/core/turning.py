"""Columns into rows.

Why the kernel exists: written one by one, columns bring every cache line of the rows in once for each column, and NumPy makes a
copy of a block before it transposes it. It takes half of that time, and touches the rows' memory once.
"""

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel

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
