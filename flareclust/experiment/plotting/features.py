"""The picture of sites with different columns: who has which, and what is known of the centroids.

It shows names and centroids, no rows.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.experiment.plotting.style import INK, PALETTE, SOFT, caption, headline, open_frame, page, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Up to so many columns, sites or leaves of a tree are named.
NAMED = 60
#: Up to so many columns, the values of the centroids are printed.
_PRINTED = 12
_HELD, _LACKED, _UNKNOWN = PALETTE[0], "#eef1f4", "#c8c8c8"
_HATCH = "////"


class _Table(NamedTuple):
    """What `coverage_picture` draws, its columns in drawing order."""

    names: list[str]
    sites: list[str]
    masks: BoolArray  # (m, D)
    centroids: FloatArray  # (k, D)
    shades: FloatArray  # (k, D) from 0, the lowest centroid of the column, to 1, the highest; NaN where unknown


def coverage_picture(
    names: Sequence[str], sites: Sequence[str], masks: BoolArray, centroids: FloatArray, title: str = ""
) -> "Figure":
    """Draw which site has which column, and below it the centroids, with what is unknown of them hatched.

    The shades of the centroids go from the lowest to the highest centroid of each column, as columns have units of
    their own. Up to 60 columns stay in their order and are named; more are sorted by who has them. Sites are sorted by
    name, numbers in it by their value.

    Args:
        names: of the D columns.
        sites: names of the m sites.
        masks: (m, D), true where the site has the column.
        centroids: (k, D), NaN where unknown.
        title: printed above.
    """
    from matplotlib.colors import ListedColormap

    table = _table(names, sites, masks, centroids)
    D, heights = len(table.names), [_height(len(table.sites)), _height(len(table.centroids))]
    width = float(np.clip(3.6 + (1.0 if D <= _PRINTED else 0.24) * D, 7.0, 12.0))
    less_than = 0.075 * max(map(len, table.names)) if D <= NAMED else 0.3
    figure = page(width, sum(heights) + less_than + 1.5)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    _draw_cells(upper, table.masks.astype(np.float64), ListedColormap([_LACKED, _HELD]), "masks")
    _name_lines(upper, table.sites, "sites")
    _draw_centroids(lower, table)
    _name_columns(lower, table)
    headline(upper, title)
    caption(figure, _caption(table))
    return figure


def _height(lines: int) -> float:
    """Return the inches that so many lines of a table take."""
    return float(np.clip(0.24 * lines, 0.5, max(4.5, 0.11 * min(lines, NAMED))))


def _draw_centroids(axes: "Axes", table: _Table) -> None:
    """Draw the shades, then what is unknown as hatched bars: one for every run of columns."""
    from matplotlib.collections import PolyCollection

    cells = _draw_cells(axes, table.shades, "viridis", "centroids")
    bars = [(i, *run) for i, line in enumerate(np.isnan(table.shades)) for run in _runs(line)]
    corners = [[(a, i), (b, i), (b, i + 1), (a, i + 1)] for i, a, b in bars]
    hatch = _HATCH if any(b - a > len(table.names) / 100 for _, a, b in bars) else None  # no line fits a narrower bar
    axes.add_collection(
        PolyCollection(corners, facecolor=_UNKNOWN, edgecolor="#7d7d7d", linewidth=0, hatch=hatch, gid="unknown")
    )
    if len(table.names) <= _PRINTED and len(table.centroids) <= NAMED:
        for i, j in zip(*np.nonzero(~np.isnan(table.shades)), strict=True):
            words = axes.text(j + 0.5, i + 0.5, f"{table.centroids[i, j]:.3g}", ha="center", va="center", fontsize=8)
            words.set(color="white" if table.shades[i, j] < 0.6 else INK, gid="value")
    _name_lines(axes, [f"cluster {i}" for i in range(len(table.centroids))], "clusters")
    shrink = min(1.0, 1.2 / _height(len(table.centroids)))
    bar = axes.figure.colorbar(cells, ax=axes, fraction=0.03, pad=0.01, aspect=12, ticks=[0, 1], shrink=shrink)
    bar.ax.set_yticklabels(["lowest", "highest"], fontsize=8, color=SOFT)
    bar.outline.set_visible(False)


def _draw_cells(axes: "Axes", values: FloatArray, colours: Any, gid: str) -> Any:
    """Draw a table with its first line above; lines between cells only where there is room for them."""
    lines, columns = values.shape
    # A thin column must not vanish between the dots of the page, and an image may drop it.
    edges: dict[str, Any] = {"edgecolors": "white", "linewidth": 1.0} if columns <= NAMED >= lines else {}
    cells = axes.pcolormesh(values, cmap=colours, vmin=0, vmax=1, gid=gid, **edges)
    axes.set_ylim(lines, 0)
    axes.set_xlim(0, columns)
    open_frame(axes, axes.spines)
    axes.tick_params(length=0, labelsize=8, colors=INK, labelbottom=False)
    return cells


def _name_lines(axes: "Axes", labels: list[str], what: str) -> None:
    if len(labels) <= NAMED:
        size = 8 if len(labels) <= 20 else 6.5
        axes.set_yticks(np.arange(len(labels)) + 0.5, labels, parse_math=False, fontsize=size)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(labels)} {what}", fontsize=9, color=INK)


def _name_columns(axes: "Axes", table: _Table) -> None:
    D = len(table.names)
    axes.tick_params(axis="x", labelbottom=True)
    if D > NAMED:
        axes.set_xticks([])
        axes.set_xlabel(f"{D:,} columns, sorted by who has them", fontsize=9, color=INK)
        return
    rotation = 0 if D <= _PRINTED and max(map(len, table.names)) <= 12 else 90
    size = 8 if D <= 40 else 7
    axes.set_xticks(np.arange(D) + 0.5, table.names, parse_math=False, rotation=rotation, fontsize=size)


def _caption(table: _Table) -> str:
    m, D = table.masks.shape
    holders = table.masks.sum(axis=0).tolist()
    unknown, entries = int(np.isnan(table.shades).sum()), table.shades.size
    each = str(min(holders)) if min(holders) == max(holders) else f"{min(holders)} to {max(holders)}"
    return (
        f"{m} site{'s' * (m != 1)} (blue: has the column); {D:,} column{'s' * (D != 1)}, each at {each} of the sites, "
        f"{holders.count(m):,} at all\n{unknown:,} of {entries:,} entries of the centroids unknown (grey); "
        "shades within each column"
    )


def _table(names: Sequence[str], sites: Sequence[str], masks: BoolArray, centroids: FloatArray) -> _Table:
    """Bring the columns into drawing order."""
    lines = sorted(range(len(sites)), key=lambda i: _natural(sites[i]))
    mask, shades = masks[lines].astype(bool), _shades(centroids)
    order = _by_holders(mask, shades) if len(names) > NAMED else np.arange(len(names))
    labels = [shortened(sites[i]) for i in lines]
    return _Table([shortened(names[j]) for j in order], labels, mask[:, order], centroids[:, order], shades[:, order])


def _shades(points: FloatArray) -> FloatArray:
    """Return the place of each entry between the lowest and the highest of its column; the middle where they are equal."""
    low = np.where(np.isnan(points), np.inf, points).min(axis=0)
    high = np.where(np.isnan(points), -np.inf, points).max(axis=0)
    width, low = np.where(high > low, high - low, 1.0), np.where(np.isfinite(low), low, 0.0)
    return np.where(np.isnan(points) | (high > low), (points - low) / width, 0.5)


def _by_holders(mask: BoolArray, shades: FloatArray) -> IntArray:
    """Return the order of the columns: those of all sites first, then from the first site's to the last one's.

    Columns of the same sites are sorted by their centroids, as neighbours are easiest to compare.
    """
    sites = mask.sum(axis=0)
    center = (np.arange(len(mask))[:, None] * mask).sum(axis=0) / np.maximum(sites, 1)
    return np.lexsort([*shades[::-1], *np.isnan(shades[::-1]), *mask[::-1], center, sites < len(mask)])


def _runs(line: BoolArray) -> list[tuple[int, int]]:
    """Return (first, behind the last) of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which site-2 comes before site-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
