"""Names of the arrays of a result that describe its clusters, in the units of the columns.

`profile_rows` (k,): rows that are described; `profile_means` and `profile_m2` (k, d): means and squared deviations from them;
`profile_cells` (k, d): known cells that are described, only where cells are missing: moments and counts in bins are of these;
`profile_edges` (d, h - 1) and `profile_bins` (k, d, h): rows in bins, not with secure sums; `profile_sites` (m,) and
`profile_site_rows` (m, k): rows of each site, likewise; `profile_tree_*`: a tree's columns (15,) with -1 for none, edges (15,), and
rows (31, k), as `flareclust.core.shallow_tree` numbers nodes; `profile_units` (d,): units of the columns, "" for none, where a schema
has some. Results under differential privacy have only the last; see `flareclust.protocol.private_arrays`.
"""

from collections.abc import Mapping
from typing import Any

ROWS, MEANS, SQUARES = "profile_rows", "profile_means", "profile_m2"
CELLS = "profile_cells"
BIN_EDGES, BIN_COUNTS = "profile_edges", "profile_bins"
SITES, SITE_ROWS = "profile_sites", "profile_site_rows"
UNITS = "profile_units"
TREE_COLUMN, TREE_EDGE, TREE_ROWS = "profile_tree_column", "profile_tree_edge", "profile_tree_rows"


def unit_of(arrays: Mapping[str, Any], column: int) -> str:
    """Return the unit of a column, "" where it has none."""
    return str(arrays[UNITS][column]) if UNITS in arrays else ""
