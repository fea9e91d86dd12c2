"""Pictures of a federation: the rows of its sites and the centroids that were recovered.

A map of all rows with a panel for each site, or strips for one feature. They show the rows themselves: draw them where the rows may be
seen (in an experiment, or at a site for its own rows).
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import labels_of
from flareclust.experiment.plotting.style import (
    INK,
    SOFT,
    caption,
    cluster_colour,
    headline,
    ink_on,
    open_frame,
    page,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: So many sites have a panel, or in one feature a strip with its name.
_MOST_PANELS = 30

#: Panels side by side, by the number of sites that they are enough for.
_ACROSS = ((2, 2), (3, 3), (4, 4), (9, 3), (16, 4), (_MOST_PANELS, 5))

#: Inches: narrow, so that words can be read where the picture is shown 400 pixels wide.
_WIDTH, _MAP, _STRIP = 6.0, 4.4, 0.28
#: Width of a map by its height.
_RATIO = 1.25

#: At most so many rows are drawn, a random part that is the same every time.
MOST_ROWS = 20_000

#: Type sizes in points, of the names of sites and of everything else.
_SMALL, _TYPE = 9.5, 11.0


class _Scene(NamedTuple):
    """What is drawn, in the coordinates of the page."""

    names: list[str]
    rows: FloatArray  # (n', d) the rows shown, in drawing order
    owner: IntArray  # (n',) index of each row's site
    cluster: IntArray  # (n',) of each row, -1 for none
    centroids: FloatArray
    true: FloatArray
    radii: FloatArray  # (k,), or (0,) for none
    counts: list[int]  # rows of each site, shown or not
    axes: tuple[str, ...]  # names of the features, where they have any


def federation_picture(
    sites: Mapping[str, FloatArray],
    centroids: FloatArray,
    *,
    labels: Mapping[str, IntArray] = MappingProxyType({}),
    true_centroids: FloatArray | None = None,
    radii: FloatArray | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
) -> "Figure":
    """Draw the rows of all sites, coloured by cluster, with the numbers of the clusters at their centroids; below, each site alone.

    The panels of the sites have the axes of the map. Two features are drawn as they are, with a circle for each radius; one feature as
    a strip per site; more than two as their first two principal components, where radii would mean nothing and are left out. The same
    input gives the same picture.

    Args:
        sites: site name -> (n_i, d) rows; a site may have none.
        centroids: (k, d) recovered centroids, in the features of the rows.
        labels: site name -> (n_i,) clusters of its rows, -1 for none; for sites that are not in it, the nearest centroid.
        true_centroids: (k*, d) true centroids, if known.
        radii: (k,) radii around the recovered centroids, >= 0.
        columns: names of the features (d,); None for "feature 1", ...
        title: printed above.
    """
    d = centroids.shape[1]
    rows, owner, cluster = _sample(list(sites.values()), [labels.get(name) for name in sites])
    unknown = np.array([name not in labels for name in sites], dtype=bool)[owner]
    cluster[unknown] = labels_of(np.ascontiguousarray(rows[unknown]), centroids) if unknown.any() else -1
    scene = _Scene(
        list(sites),
        rows,
        owner,
        cluster,
        centroids,
        np.empty((0, d)) if true_centroids is None else true_centroids,
        np.empty(0) if radii is None else radii,
        [len(X) for X in sites.values()],
        tuple(columns) if columns is not None and len(columns) == d else (),
    )
    figure, marks = _strips(scene) if d == 1 else _maps(scene)
    how: dict[str, Any] = {"loc": "outside upper left", "frameon": False, "ncols": 3, "columnspacing": 1.0}
    figure.legend(list(marks.values()), list(marks), markerscale=0.75, fontsize=_SMALL, **how)
    headline(figure.axes[0], "\n".join(wrap(title, 52)))
    caption(figure, _words_below(scene), 9.5)
    return figure


def _sample(arrays: Sequence[FloatArray], labels: Sequence[IntArray | None]) -> tuple[FloatArray, IntArray, IntArray]:
    """Choose the rows that are drawn, of all sites together in random order, the same every time; return their sites and labels, too."""
    starts = np.cumsum([0, *(len(X) for X in arrays)])
    chosen = np.random.default_rng(0).permutation(starts[-1])[:MOST_ROWS]
    owner = np.searchsorted(starts, chosen, side="right") - 1
    rows, cluster = np.empty((len(chosen), arrays[0].shape[1])), np.full(len(chosen), -1, dtype=np.int64)
    for i, (X, own) in enumerate(zip(arrays, labels, strict=True)):
        mine = owner == i
        rows[mine] = X[chosen[mine] - starts[i]]
        if own is not None:
            cluster[mine] = own[chosen[mine] - starts[i]]
    return rows, np.asarray(owner, dtype=np.int64), cluster


def _maps(scene: _Scene) -> tuple["Figure", dict[str, "Artist"]]:
    """Draw the map of all rows and, below, a panel for each site."""
    rows, centroids, true, titles = _on_plane(scene)
    shown = min(len(scene.names), _MOST_PANELS) if len(scene.names) > 1 else 0
    across = next(n for most, n in _ACROSS if shown <= most)
    deep, small = -(-shown // across), _WIDTH / across / _RATIO
    figure = page(_WIDTH, _MAP + 1.1 + deep * (small + 0.22))
    grid = figure.add_gridspec(1 + deep, across, height_ratios=[_MAP, *[small] * deep])
    axes = figure.add_subplot(grid[0, :], facecolor="white")
    _draw_rows(axes, scene, rows, scene.cluster, "rows")
    handles = _draw_markers(axes, centroids, true)
    if scene.centroids.shape[1] == 2:
        handles |= _draw_circles(axes, scene)
    _same_frame(axes, scene, rows, centroids, true)
    open_frame(axes)
    axes.tick_params(labelsize=_SMALL, colors=SOFT)
    axes.set_xlabel(titles[0], color=INK, fontsize=_TYPE, parse_math=False)
    axes.set_ylabel(titles[1], color=INK, fontsize=_TYPE, parse_math=False)
    for i in range(shown):
        panel = figure.add_subplot(grid[1 + i // across, i % across])
        _draw_site(panel, scene, i, rows, across)
        _same_frame(panel, scene, rows, centroids, true)
    return figure, handles


def _same_frame(axes: "Axes", scene: _Scene, rows: FloatArray, centroids: FloatArray, true: FloatArray) -> None:
    """Set limits that hold everything of all sites, as wide as the map is, with one scale in both directions."""
    points = np.vstack([rows, centroids, true])
    low, high = points.min(axis=0), points.max(axis=0)
    if len(scene.radii) and scene.centroids.shape[1] == 2:
        low = np.minimum(low, (centroids - scene.radii[:, None]).min(axis=0))
        high = np.maximum(high, (centroids + scene.radii[:, None]).max(axis=0))
    extent = np.maximum(high - low, 1e-9 * max(float(np.abs(points).max()), 1.0)) * 1.1
    height = max(float(extent[0]) / _RATIO, float(extent[1]))
    half, middle = np.array([height * _RATIO, height]) / 2, (low + high) / 2
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(middle[1] - half[1], middle[1] + half[1])
    axes.set_aspect("equal", adjustable="box")


def _draw_site(axes: "Axes", scene: _Scene, site: int, rows: FloatArray, across: int) -> None:
    own = scene.owner == site
    _draw_rows(axes, scene, rows[own], scene.cluster[own], "site")
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    for spine in axes.spines.values():
        spine.set(color="#bbbbbb", linewidth=0.8)
    name = shortened(_site_labels(scene)[site], 64 // across)
    axes.set_title(name, fontsize=_SMALL, color=INK, parse_math=False, pad=3)


def _on_plane(scene: _Scene) -> tuple[FloatArray, FloatArray, FloatArray, list[str]]:
    """Return rows, centroids and true centroids in two directions (n, 2), and what the directions are called."""
    if scene.centroids.shape[1] == 2:
        titles = list(map(shortened, scene.axes)) or ["feature 1", "feature 2"]
        return scene.rows, scene.centroids, scene.true, titles
    mean, directions, shares = _principal_plane(scene.rows, scene.centroids.shape[1])
    projected = [(points - mean) @ directions.T for points in (scene.rows, scene.centroids, scene.true)]
    titles = [f"principal component {i + 1}" for i in range(2)]
    if shares is not None:
        titles = [f"{title} ({100 * share:.1f} %)" for title, share in zip(titles, shares, strict=True)]
    return projected[0], projected[1], projected[2], titles


def _draw_rows(axes: "Axes", scene: _Scene, at: FloatArray, cluster: IntArray, gid: str) -> None:
    """Draw one collection in shuffled order: cluster by cluster, the last one would hide the others."""
    k = len(scene.centroids)
    shades = np.array([*(cluster_colour(c, k) for c in range(k)), "#bbbbbb"])  # the last for -1
    area = float(np.clip(30_000 / max(len(at), 1), 3.5, 14)) * (0.5 if gid == "site" else 1.0)  # points^2
    axes.scatter(at[:, 0], at[:, 1], s=area, c=list(shades[cluster]), alpha=0.65, linewidths=0, zorder=1, gid=gid)


def _draw_markers(axes: "Axes", centroids: FloatArray, true: FloatArray) -> dict[str, "Artist"]:
    """Draw true centroids as frames, and the number of each cluster in a disc at its centroid."""
    from matplotlib.lines import Line2D

    k = len(centroids)
    size, area = (_SMALL, 190.0) if k <= 16 else (8.0, 110.0)
    disc: dict[str, Any] = {"marker": "o", "s": area, "edgecolors": "white", "linewidths": 1.2}
    shades = [cluster_colour(c, k) for c in range(k)]
    axes.scatter(centroids[:, 0], centroids[:, 1], zorder=5, gid="recovered", c=shades, **disc)
    for c, (x, y) in enumerate(centroids):
        number = axes.text(x, y, str(c), fontsize=size, ha="center", va="center_baseline", zorder=6, clip_on=True)
        number.set(color=ink_on(shades[c]), fontweight="bold")
    any_disc = Line2D([], [], linestyle="", marker="o", markersize=11, color=SOFT)  # of no cluster's colour
    handles: dict[str, Artist] = {"centroid and number of a cluster": any_disc}
    if len(true):
        frame: dict[str, Any] = {"marker": "D", "s": area * 1.6, "facecolors": "none"}
        axes.scatter(true[:, 0], true[:, 1], edgecolors="white", linewidths=3.2, zorder=3, gid="halo", **frame)
        handles["true centroid"] = axes.scatter(
            true[:, 0], true[:, 1], edgecolors=INK, linewidths=1.3, zorder=4, gid="true", **frame
        )
    return handles


def _draw_circles(axes: "Axes", scene: _Scene) -> dict[str, "Artist"]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    for centroid, radius in zip(scene.centroids, scene.radii, strict=False):  # radii may be absent altogether
        circle = Circle((centroid[0], centroid[1]), radius, fill=False, edgecolor=INK, linewidth=0.9, linestyle="--")
        circle.set(alpha=0.75, zorder=2, gid="radius")
        axes.add_patch(circle)
    return {"radius": Line2D([], [], color=INK, linewidth=0.9, linestyle="--")} if len(scene.radii) else {}


def _strips(scene: _Scene) -> tuple["Figure", dict[str, "Artist"]]:
    """Draw one feature: a strip of rows per site, and the centroids in a strip of their own above them."""
    m = len(scene.names)
    figure = page(_WIDTH, max(_MAP, 2.0 + _STRIP * min(m, _MOST_PANELS)))
    axes = figure.add_subplot(facecolor="white")
    height = m - 1 - scene.owner + np.random.default_rng(0).uniform(-0.32, 0.32, len(scene.owner))
    _draw_rows(axes, scene, np.column_stack([scene.rows[:, 0], height]), scene.cluster, "rows")
    lane = float(m)
    for x in scene.centroids[:, 0]:
        axes.plot([x, x], [-0.5, lane], color=INK, linewidth=0.6, alpha=0.35, zorder=2)
    on_lane = [np.column_stack([points[:, 0], np.full(len(points), lane)]) for points in (scene.centroids, scene.true)]
    handles = _draw_markers(axes, *on_lane)
    for x, radius in zip(scene.centroids[:, 0], scene.radii, strict=False):
        handles["radius"] = axes.plot([x - radius, x + radius], [lane, lane], "--", color=INK, gid="radius")[0]
    sites = dict(zip(range(m - 1, -1, -1), _site_labels(scene), strict=True)) if m <= _MOST_PANELS else {}
    axes.set_yticks([lane, *sites], ["centroids", *sites.values()], parse_math=False)
    axes.set_ylim(-0.6, lane + 0.6)
    axes.tick_params(labelsize=_SMALL, colors=SOFT)
    title = shortened(scene.axes[0]) if scene.axes else "feature 1"
    axes.set_xlabel(title, color=INK, fontsize=_TYPE, parse_math=False)
    open_frame(axes)
    return figure, handles


def _words_below(scene: _Scene) -> str:
    """Return what the picture shows."""
    shown, total, m, d = len(scene.rows), sum(scene.counts), len(scene.names), scene.centroids.shape[1]
    count = f"{total:,}" if shown == total else f"{shown:,} of {total:,}"
    words = [f"{count} row{'s' * (total != 1)} of {m} site{'s' * (m != 1)}, coloured by cluster"]
    if d > 1 and m > 1:
        panels = "each site" if m <= _MOST_PANELS else f"the first {_MOST_PANELS} sites"
        words.append(f"below: {panels}, in the same axes")
    lines = ["; ".join(words)] if len(words) == 1 else [f"{words[0]};", words[1]]
    if d > 2:
        lines.append(f"{d} features projected on two directions (share of the variance)")
        lines += ["Radii are not drawn: they do not carry over"] if len(scene.radii) else []
    return "\n".join(lines)


def _principal_plane(rows: FloatArray, d: int) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Find the plane of largest variance: mean (d,), directions (2, d) whose largest entry is positive, and shares of the variance (2,).

    Where there is no variance, there are no shares.
    """
    # A random part is enough for a picture, and the decomposition costs n d^2: 2,000 x 3,072 takes about two seconds.
    part = rows[: max(2_000, 4_000_000 // d)]
    mean = part.mean(axis=0) if len(part) else np.zeros(d)
    padded = np.vstack([part - mean, np.zeros((2, d))])  # at least two directions, even from one row or none
    _, singular, directions = np.linalg.svd(padded, full_matrices=False)
    directions = directions[:2]
    largest = np.abs(directions).argmax(axis=1)
    directions, variance = directions * np.where(directions[[0, 1], largest] < 0, -1.0, 1.0)[:, None], singular**2
    return mean, directions, variance[:2] / variance.sum() if variance.sum() > 0 else None


def _site_labels(scene: _Scene) -> list[str]:
    short = [shortened(name) for name in scene.names]
    return [name if count else f"{name} (no rows)" for name, count in zip(short, scene.counts, strict=True)]
