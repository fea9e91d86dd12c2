"""The picture of a condensed tree: clusters of rows that split as the place has to be denser (`tree` with shape=density)."""

from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.density_tree import Branches
from flareclust.experiment.plotting.style import INK, SOFT, caption, cluster_colour, headline, ink_on, open_frame, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: How far above the first split the tree begins, as a factor of the distance.
_ABOVE = 1.15

#: The colour of branches in no selected cluster.
_IN_NONE = "#d9d9d9"


def branches_picture(branches: Branches, k: int, title: str = "", *, row_name: str = "rows") -> "Figure":
    """Draw the clusters of a condensed tree, each as wide as it has rows, from the distance at which it begins to that of its end.

    Args:
        branches: the clusters (c,).
        k: number of selected ones.
        title: printed above.
        row_name: what rows are called.
    """
    rows, tops = branches.rows, _tops(branches)
    figure = page(8, 5.2)
    axes = figure.add_subplot(facecolor="white")
    _draw(axes, branches, tops, k)
    open_frame(axes)
    axes.set_yscale("log")
    axes.set_xlim(0, float(rows[0]) or 1.0)
    axes.tick_params(labelsize=9, colors=SOFT)
    axes.set_xlabel(row_name, fontsize=9, color=INK)
    axes.set_ylabel(f"distance within which {row_name} are reached", fontsize=9, color=INK)
    headline(axes, title, pad=10)
    outside = int(rows[0]) - int(rows[tops].sum())
    caption(
        figure,
        f"{len(rows)} branch{'es' * (len(rows) != 1)}, {k} selected cluster{'s' * (k != 1)}, one colour each, with numbers"
        f"\n{outside:,} of {int(rows[0]):,} {row_name} are in none of these where it begins",
    )
    return figure


def _tops(branches: Branches) -> IntArray:
    """Return the branches that were selected, and not only parts of such."""
    parent, cluster = branches.parent, branches.cluster
    of_parent = np.where(parent < 0, -1, cluster[parent])
    return np.flatnonzero((cluster >= 0) & (cluster != of_parent))


def _ends(branches: Branches) -> tuple[FloatArray, FloatArray]:
    """Return the distances at which branches begin and end (c,)."""
    birth, death = branches.birth, branches.death
    low = 1.0 / np.where(death > 0, death, 1.0)
    high = np.where(birth > 0, 1.0 / np.where(birth > 0, birth, 1.0), _ABOVE * low[0])
    return np.maximum(high, low), low


def _draw(axes: "Axes", branches: Branches, tops: IntArray, k: int) -> None:
    """Draw a rectangle for each branch, below that of its parent, and the number of each selected cluster."""
    from matplotlib.collections import PolyCollection

    (high, low), parent, rows = _ends(branches), branches.parent, branches.rows
    left, taken = np.zeros(len(parent)), np.zeros(len(parent))
    for i in range(1, len(parent)):
        p = parent[i]
        left[i] = left[p] + max(0.0, (rows[p] - rows[parent == p].sum()) / 2) + taken[p]
        taken[p] += rows[i]
    corners = [
        [(x, top), (x + n, top), (x + n, end), (x, end)] for x, n, top, end in zip(left, rows, high, low, strict=True)
    ]
    shade = [_IN_NONE if c < 0 else cluster_colour(int(c), k) for c in branches.cluster]
    axes.add_collection(PolyCollection(corners, facecolors=shade, edgecolors="white", linewidths=0.8, gid="branches"))
    axes.set_ylim(float(low.min()) / _ABOVE, float(high.max()))
    for i in tops:
        words = axes.text(left[i] + rows[i] / 2, float(np.sqrt(high[i] * low[i])), str(branches.cluster[i]))
        words.set(ha="center", va="center", fontsize=9, color=ink_on(shade[i]), gid="number")
