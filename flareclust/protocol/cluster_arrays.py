"""The arrays of a result that are about its clusters: their names, and how they follow when the clusters get other numbers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, IntArray, Message

# Names of the arrays of a result that describe its clusters, in the units of the columns.
#
# `profile_rows` (k,): rows that are described; `profile_means` and `profile_m2` (k, d): means and squared deviations from them;
# `profile_cells` (k, d): known cells that are described, only where cells are missing: moments and counts in bins are of these;
# `profile_edges` (d, h - 1) and `profile_bins` (k, d, h): rows in bins, not with secure sums; `profile_sites` (m,) and
# `profile_site_rows` (m, k): rows of each site, likewise, and `profile_site_shares` (d,): share of each column's variance within
# clusters that lies between the means of their sites, and `profile_site_means` (m, d): means of each site's described rows, NaN where it
# has described no known cell; `profile_tree_*`: a tree's columns (15,) with -1 for none, edges (15,), and
# rows (31, k), as `flareclust.core.shallow_tree` numbers nodes; `profile_units` (d,): units of the columns, "" for none, where a schema
# has some. Results under differential privacy have only the last.

ROWS, MEANS, SQUARES = "profile_rows", "profile_means", "profile_m2"
CELLS = "profile_cells"
BIN_EDGES, BIN_COUNTS = "profile_edges", "profile_bins"
SITES, SITE_ROWS, SITE_SHARES = "profile_sites", "profile_site_rows", "profile_site_shares"
SITE_MEANS = "profile_site_means"
UNITS = "profile_units"
TREE_COLUMN, TREE_EDGE, TREE_ROWS = "profile_tree_column", "profile_tree_edge", "profile_tree_rows"


def unit_of(arrays: Mapping[str, Any], column: int) -> str:
    """Return the unit of a column, "" where it has none."""
    return str(arrays[UNITS][column]) if UNITS in arrays else ""


# Names of the arrays of a result under differential privacy. All of them hold noise, or are public.
#
# `counts` (k,): noisy rows of each cluster; `signal_to_noise` (k,): radius of a cluster over the distance by which noise moves its
# centroid; `reach`: distance at which a row's part of the inertia is cut off, from the clusters' radii; `low` and `high` (d,): bounds of
# the columns, as the sites' policies declare them.

COUNTS, SIGNAL, REACH, LOW, HIGH = "counts", "signal_to_noise", "reach", "low", "high"

# Names of the arrays of a result about outcomes (`flareclust.core.outcomes`).
#
# `outcome_form` (4,): what was asked, `OutcomeForm.numbers`; `outcome_counts` (o, k, t): rows by kind, cluster and time or value;
# `outcome_sites` (m,) and `outcome_site_counts` (m, o, k, t): the same by site, not with secure sums; `outcome_moments` (3, k): of an
# outcome that is a number, rows, mean and sum of squared deviations; `outcome_adjusted` (): at how many sites small numbers are not
# exact; `outcome_not_counted` (k,): rows of each cluster that are in none of these, since their site has too few with a known outcome;
# with secure sums also those whose outcome is unknown; `outcome_names`: what the outcome is called, its unit, and the values of a category;
# `outcome_noise` (): under differential privacy, the standard deviation of the noise of each number of rows before it became possible.

OUTCOME_FORM, OUTCOME_COUNTS, OUTCOME_MOMENTS = "outcome_form", "outcome_counts", "outcome_moments"
OUTCOME_SITES, OUTCOME_SITE_COUNTS = "outcome_sites", "outcome_site_counts"
OUTCOME_ADJUSTED, OUTCOME_NAMES = "outcome_adjusted", "outcome_names"
OUTCOME_NOT_COUNTED, OUTCOME_NOISE = "outcome_not_counted", "outcome_noise"

# Names of the arrays of a result about rows that took no part: `rows_read` (m, 2): rows of the tables that took part, and those left out
# since a cell is missing, of each site in `rows_read_sites` (m,), or of all together (1, 2), then without names.

ROWS_READ, ROWS_READ_SITES = "rows_read", "rows_read_sites"

#: The axis of each array along which its clusters are.
_AXES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("centroids", "mask", "anchors", "counts", "radii", "votes", "support", "seen"), 0),
        **dict.fromkeys(("polish_start", "signal_to_noise", "weights", "covariances", "factors"), 0),
        "history": 1,
        **dict.fromkeys((ROWS, CELLS, MEANS, SQUARES, BIN_COUNTS, OUTCOME_NOT_COUNTED), 0),
        **dict.fromkeys((SITE_ROWS, TREE_ROWS, OUTCOME_COUNTS, OUTCOME_MOMENTS), 1),
        OUTCOME_SITE_COUNTS: 2,
    }
)

#: Arrays whose entries are numbers of clusters, negative where there is none.
_NUMBERS = ("received_group", "matched", "tau", "group", "representative_cluster", "branches_cluster")


def renumbered_arrays(arrays: Mapping[str, Array], order: Sequence[int]) -> Message:
    """Return the arrays of a result whose cluster r is what was cluster `order[r]`.

    An axis can be longer than there are clusters, as that of `history` is where fewer were found than asked for; what is
    behind them stays. `order` has the numbers 0 to k - 1.
    """
    places, numbers = np.asarray(order, dtype=np.int64), inverse(order)
    found = dict(arrays)
    for name, axis in _AXES.items():
        if name in arrays:
            rest = np.arange(len(places), arrays[name].shape[axis])
            found[name] = np.ascontiguousarray(np.take(arrays[name], np.concatenate([places, rest]), axis))
    for name in _NUMBERS:
        if name in arrays:
            found[name] = renumbered_labels(arrays[name], numbers)
    return found


def inverse(order: Sequence[int]) -> IntArray:
    """Return the new number of each old one (k,)."""
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[np.asarray(order, dtype=np.int64)] = np.arange(len(order))
    return numbers


def renumbered_labels(labels: IntArray, numbers: IntArray) -> IntArray:
    """Return labels (n,) under the new numbers (k,); negative ones, and those of no cluster, stay."""
    known, found = (labels >= 0) & (labels < len(numbers)), labels.copy()
    found[known] = numbers[labels[known]]
    return found
