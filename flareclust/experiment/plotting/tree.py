"""Pictures of trees of merges: how local clusters were merged into the final ones (`proxy`), and Ward's tree (`tree`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.ward_tree import Linkage
from flareclust.experiment.plotting.features import NAMED
from flareclust.experiment.plotting.style import INK, SOFT, caption, colours, headline, open_frame, page, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The group of a set whose leaves are in several final clusters.
_SEVERAL = -2


class _Tree(NamedTuple):
    """What `tree_picture` draws; sets are numbered as in its arguments."""

    left: IntArray  # (c - 1,)
    right: IntArray
    height: FloatArray  # (c - 1,), where a merging stands
    base: float  # where the leaves stand
    comparable: BoolArray  # (c - 1,)
    group: IntArray  # (2 c - 1,) the final cluster of a set's leaves, -1 for none
    labels: list[str]  # (c,)


def tree_picture(
    left: IntArray,
    right: IntArray,
    force: FloatArray,
    group: IntArray,
    sites: Sequence[str],
    k: int,
    title: str = "",
    *,
    w: float = 2.0,
) -> "Figure":
    """Draw how the local clusters were merged, in the colours of the final clusters.

    A merging stands at the distance at which two points attract each other with its force, force ** (-1 / w).
    Mergings of sets that are not comparable (force NaN) are dashed and stand right of all others. A line shows where the
    tree was cut.

    Args:
        left, right: (c - 1,) the sets merged in each step, where a local cluster is its number below c and the set
            made in step s is c + s, as in SciPy's linkage.
        force: (c - 1,) the normalised force between them, > 0, or NaN.
        group: (c,) the final cluster of each local cluster, -1 for none.
        sites: (c,) the site of each local cluster.
        k: number of final clusters.
        title: printed above.
        w: exponent of the force.
    """
    tree = _tree(left, right, force, group, sites, w)
    words = _Words("local clusters", "scaled distance at which the sets were merged", _tree_caption(tree, k))
    return _drawn(tree, k, title, words)


def ward_picture(
    linkage: Linkage, group: IntArray, rows: IntArray, k: int, title: str = "", *, row_name: str = "rows"
) -> "Figure":
    """Draw Ward's tree over sets of rows, in the colours of the final clusters, with a line where it was cut.

    Args:
        linkage: the mergings of the c sets (c - 1,).
        group: (c,) the final cluster of each set, -1 for none.
        rows: (c,) of each set.
        k: number of final clusters.
        title: printed above.
        row_name: what rows are called.
    """
    labels, groups = [f"{n:,} {row_name}" for n in rows.tolist()], _groups(linkage.left, linkage.right, group)
    comparable = np.ones(len(linkage.left), dtype=np.bool_)
    tree = _Tree(linkage.left, linkage.right, linkage.height, 0.0, comparable, groups, labels)
    said = f"{len(rows):,} sets of {int(rows.sum()):,} {row_name}, {k} final cluster{'s' * (k != 1)}, one colour each"
    axis = "height: root of twice what the merging adds to the sum of squares"
    return _drawn(tree, k, title, _Words("sets", axis, said))


class _Words(NamedTuple):
    """What leaves are called, what the axis of the mergings shows, and what stands below."""

    leaves: str
    axis: str
    below: str


def _drawn(tree: _Tree, k: int, title: str, words: _Words) -> "Figure":
    c = len(tree.labels)
    height = float(np.clip(0.8 + (0.19 if c <= NAMED else 0.05) * c, 2.6, 12.4)) + 0.9
    figure = page(8, height)
    axes = figure.add_subplot(facecolor="white")
    of_groups = [*colours(max(k, 1)), SOFT]  # the last one for -1
    place = _draw_links(axes, tree, of_groups)
    _draw_leaves(axes, tree, place, of_groups, words.leaves)
    _draw_cut(axes, tree, k)
    open_frame(axes, ("top", "right", "left"))
    high = float(tree.height.max(initial=0.0)) or 1.0
    axes.set_xlim(tree.base, high + 0.04 * (high - tree.base))
    axes.set_ylim(c - 0.3, -0.7)
    axes.tick_params(axis="x", labelsize=9, colors=SOFT)
    axes.set_xlabel(words.axis, fontsize=9, color=INK)
    headline(axes, title, pad=16)  # above the words at the cut
    caption(figure, words.below)
    return figure


def _draw_links(axes: "Axes", tree: _Tree, of_groups: list[str]) -> FloatArray:
    """Draw a bracket for each merging; return the places (2 c - 1,) of all sets on the axis of the leaves."""
    from matplotlib.collections import LineCollection

    c = len(tree.labels)
    x, y = np.concatenate([np.full(c, tree.base), tree.height]), np.zeros(2 * c - 1)
    y[_leaf_order(tree)] = np.arange(c)
    brackets = []
    for s, (a, b) in enumerate(zip(tree.left, tree.right, strict=True)):
        y[c + s] = (y[a] + y[b]) / 2
        brackets.append([(x[a], y[a]), (x[c + s], y[a]), (x[c + s], y[b]), (x[b], y[b])])
    shade = [INK if g == _SEVERAL else of_groups[g] for g in tree.group[c:]]
    style = ["-" if known else (0, (3, 2)) for known in tree.comparable]
    axes.add_collection(
        LineCollection(brackets, colors=shade, linestyles=style, linewidths=1.3 if c <= NAMED else 0.8, gid="links")
    )
    return y


def _draw_leaves(axes: "Axes", tree: _Tree, place: FloatArray, of_groups: list[str], called: str) -> None:
    c = len(tree.labels)
    shade = np.asarray(of_groups)[tree.group[:c]]
    area = 26.0 if c <= NAMED else 5.0
    x = np.full(c, tree.base)
    axes.scatter(x, place[:c], s=area, c=list(shade), zorder=3, clip_on=False, linewidths=0, gid="leaves")
    axes.tick_params(axis="y", length=0, pad=5)
    if c > NAMED:
        axes.set_yticks([])
        axes.set_ylabel(f"{c:,} {called}", fontsize=9, color=INK, labelpad=8)
    else:
        axes.set_yticks(place[:c], tree.labels, parse_math=False, fontsize=8, color=INK)


def _draw_cut(axes: "Axes", tree: _Tree, k: int) -> None:
    """Draw a line between the last merging that was kept and the first that was not."""
    kept = len(tree.labels) - k
    if not 0 <= kept < len(tree.height):
        return
    x = float(((tree.height[kept - 1] if kept else tree.base) + tree.height[kept]) / 2)
    axes.axvline(x, color=SOFT, linewidth=0.9, linestyle=":", zorder=0, gid="cut")
    words = axes.text(x, 1.0, f"k = {k}", transform=axes.get_xaxis_transform(), ha="center", va="bottom")
    words.set(fontsize=8, color=SOFT)


def _leaf_order(tree: _Tree) -> IntArray:
    """Return the leaves from top to bottom so that no two brackets cross."""
    order, stack = [], [2 * len(tree.labels) - 2]
    while stack:
        node = stack.pop() - len(tree.labels)
        if node < 0:
            order.append(node + len(tree.labels))
        else:
            stack += [int(tree.right[node]), int(tree.left[node])]
    return np.array(order)


def _tree_caption(tree: _Tree, k: int) -> str:
    c = len(tree.labels)
    lost, apart = int((tree.group[:c] < 0).sum()), int((~tree.comparable).sum())
    words = f"{c:,} local cluster{'s' * (c != 1)} (site/cluster), {k} final cluster{'s' * (k != 1)}, one colour each"
    words += f"\n{apart} merging{'s' * (apart != 1)} without a common column (dashed)" if apart else ""
    return words + (f"\n{lost} in no final cluster (grey)" if lost else "")


def _tree(left: IntArray, right: IntArray, force: FloatArray, group: IntArray, sites: Sequence[str], w: float) -> _Tree:
    """Find where everything stands."""
    comparable = ~np.isnan(force)
    height = np.where(comparable, force, 1.0) ** (-1.0 / w)
    last = int((~comparable).sum())  # one behind the other, as dashes on dashes would make a line
    height[~comparable] = (height[comparable].max(initial=0.0) or 1.0) * np.linspace(
        1.15, 1.15 + 0.05 * min(last, 8), last
    )
    numbers = [sites[:i].count(site) for i, site in enumerate(sites)]
    labels = [f"{shortened(site)}/{number}" for site, number in zip(sites, numbers, strict=True)]
    # With many columns all distances are much alike: an axis from 0 would have no room for what they differ by.
    low, high = height.min(initial=np.inf), height.max(initial=0.0)
    base = float(max(0.0, low - 0.4 * (high - low))) if high > low else 0.0
    return _Tree(left, right, height, base, comparable, _groups(left, right, group), labels)


def _groups(left: IntArray, right: IntArray, group: IntArray) -> IntArray:
    """Return the final cluster of the leaves of each set (2 c - 1,), of the leaves (c,) first; `_SEVERAL` where they differ."""
    c = len(group)
    groups = np.concatenate([group, np.full(c - 1, _SEVERAL)]).astype(np.int64)
    for s, pair in enumerate(zip(left, right, strict=True)):
        of = {int(groups[one]) for one in pair} - {-1} or {-1}
        groups[c + s] = of.pop() if len(of) == 1 else _SEVERAL
    return groups
