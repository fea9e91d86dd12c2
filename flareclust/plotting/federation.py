"""Pictures of a federation: the rows of its sites and the centroids that were recovered.

They show the rows themselves: draw them where the rows may be seen (in an experiment, or at a site for its own rows).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.plotting.style import INK, SOFT, as_floats, caption, colours, headline, open_frame, page, shortened

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGEND_SITES = 12


class _Scene(NamedTuple):
    """What is drawn, in the coordinates of the page."""

    names: list[str]
    rows: FloatArray  # (n', d) the rows shown, in drawing order
    owner: IntArray  # (n',) index of each row's site
    centroids: FloatArray
    true: FloatArray
    radii: FloatArray  # (k,), or (0,) for none
    counts: list[int]  # rows of each site, shown or not


def federation_picture(
    sites: Mapping[str, ArrayLike],
    centroids: ArrayLike,
    *,
    true_centroids: ArrayLike | None = None,
    radii: ArrayLike | None = None,
    title: str = "",
    max_points: int = 20_000,
) -> "Figure":
    """Draw the rows of all sites, coloured by site, with the recovered centroids on top.

    Two features are drawn as they are, with a circle for each radius; one feature as a strip per site; more than two as their first two
    principal components, where radii would mean nothing and are left out. The same input gives the same picture.

    Args:
        sites: site name -> (n_i, d) rows; a site may have none.
        centroids: (k, d) recovered centroids, in the features of the rows.
        true_centroids: (k*, d) true centroids, if known.
        radii: (k,) radii around the recovered centroids, >= 0.
        title: printed above, as it is (no mathematical notation).
        max_points: at most so many rows are drawn, a random part that is the same every time.

    Returns:
        A figure of 8 x 6 inches at 150 dots per inch, for `flareclust.plotting.style.save`.

    Raises:
        UserError: no sites, arrays that do not fit together or are not finite, max_points < 1.
    """
    arrays, points, true, sizes = _checked(sites, centroids, true_centroids, radii)
    if max_points < 1:
        raise UserError(f"max_points: expected at least 1 row to draw; got {max_points}.")
    rows, owner = _sample(list(arrays.values()), max_points)
    scene = _Scene(list(arrays), rows, owner, points, true, sizes, [len(X) for X in arrays.values()])
    figure = page(8, 6)
    axes = figure.add_subplot(facecolor="white")
    d = points.shape[1]
    draw = {1: _draw_strips, 2: _draw_plane}.get(d, _draw_components)
    handles = draw(axes, scene)
    open_frame(axes)
    axes.tick_params(labelsize=9, colors=SOFT)
    headline(axes, title)
    _legend(figure, scene, handles)
    caption(figure, _caption(scene))
    return figure


def _draw_plane(axes: "Axes", scene: _Scene) -> dict[str, "Artist"]:
    handles = _draw_points(axes, scene, scene.rows, scene.centroids, scene.true)
    handles |= _draw_circles(axes, scene)
    axes.set_xlabel("feature 1", color=INK)
    axes.set_ylabel("feature 2", color=INK)
    return handles


def _draw_components(axes: "Axes", scene: _Scene) -> dict[str, "Artist"]:
    mean, directions, shares = _principal_plane(scene.rows, scene.centroids.shape[1])
    projected = [(points - mean) @ directions.T for points in (scene.rows, scene.centroids, scene.true)]
    handles = _draw_points(axes, scene, *projected)
    labels = [f"principal component {i + 1}" for i in range(2)]
    if shares is not None:
        labels = [f"{label} ({100 * share:.1f} % of the variance)" for label, share in zip(labels, shares, strict=True)]
    axes.set_xlabel(labels[0], color=INK)
    axes.set_ylabel(labels[1], color=INK)
    return handles


def _draw_points(
    axes: "Axes", scene: _Scene, rows: FloatArray, centroids: FloatArray, true: FloatArray
) -> dict[str, "Artist"]:
    _draw_rows(axes, scene, rows[:, 0], rows[:, 1])
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)
    return _draw_markers(axes, centroids, true)


def _draw_rows(axes: "Axes", scene: _Scene, x: FloatArray, y: FloatArray) -> None:
    """Draw one collection in shuffled order: site by site, the last site would hide the others."""
    shade = np.asarray(colours(len(scene.names)))[scene.owner]
    area = float(np.clip(40_000 / max(len(x), 1), 3.5, 16))  # points^2
    axes.scatter(x, y, s=area, c=list(shade), alpha=0.6, linewidths=0, zorder=1, gid="rows")


def _draw_markers(axes: "Axes", centroids: FloatArray, true: FloatArray) -> dict[str, "Artist"]:
    scale = 1.0 if len(centroids) <= 40 else 0.5
    cross: dict[str, Any] = {"marker": "X", "s": 85 * scale, "c": INK, "edgecolors": "white", "linewidths": 0.9}
    handles: dict[str, Artist] = {
        "recovered centroids": axes.scatter(centroids[:, 0], centroids[:, 1], zorder=5, gid="recovered", **cross)
    }
    if len(true):
        frame: dict[str, Any] = {"marker": "D", "s": 130 * scale, "facecolors": "none"}
        axes.scatter(true[:, 0], true[:, 1], edgecolors="white", linewidths=3.2, zorder=3, gid="halo", **frame)
        handles["true centroids"] = axes.scatter(
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
    axes.autoscale_view()
    return {"radii": Line2D([], [], color=INK, linewidth=0.9, linestyle="--")} if len(scene.radii) else {}


def _draw_strips(axes: "Axes", scene: _Scene) -> dict[str, "Artist"]:
    """One feature: a strip of rows per site, and the centroids in a strip of their own above them."""
    m = len(scene.names)
    height = m - 1 - scene.owner + np.random.default_rng(0).uniform(-0.32, 0.32, len(scene.owner))
    _draw_rows(axes, scene, scene.rows[:, 0], height)
    lane = float(m)
    for x in scene.centroids[:, 0]:
        axes.plot([x, x], [-0.5, lane], color=INK, linewidth=0.6, alpha=0.35, zorder=2)
    on_lane = [np.column_stack([points[:, 0], np.full(len(points), lane)]) for points in (scene.centroids, scene.true)]
    handles = _draw_markers(axes, *on_lane)
    for x, radius in zip(scene.centroids[:, 0], scene.radii, strict=False):
        handles["radii"] = axes.plot([x - radius, x + radius], [lane, lane], "--", color=INK, gid="radius")[0]
    named = m <= LEGEND_SITES
    axes.set_yticks([lane, *(range(m - 1, -1, -1) if named else [])])
    axes.set_yticklabels(["centroids", *(_site_labels(scene) if named else [])], parse_math=False)
    axes.set_ylim(-0.6, lane + 0.6)
    axes.set_xlabel("feature 1", color=INK)
    return handles


def _legend(figure: "Figure", scene: _Scene, markers: Mapping[str, "Artist"]) -> None:
    from matplotlib.lines import Line2D

    handles: list[Artist] = list(markers.values())
    labels = list(markers)
    if len(scene.names) <= LEGEND_SITES and scene.centroids.shape[1] > 1:
        for colour in colours(len(scene.names)):
            handles.append(Line2D([], [], linestyle="", marker="o", markersize=7.5, color=colour))
        labels += _site_labels(scene)
    legend = figure.legend(
        handles, [str(i) for i in range(len(labels))], loc="outside right upper", frameon=False, markerscale=0.8
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        # Set afterwards: matplotlib skips labels that begin with "_" and reads "$" as mathematics.
        text.set(text=label, parse_math=False, fontsize=9, color=INK)


def _caption(scene: _Scene) -> str:
    shown, total, m, d = len(scene.rows), sum(scene.counts), len(scene.names), scene.centroids.shape[1]
    count = f"{total:,}" if shown == total else f"{shown:,} of {total:,}"
    words = f"{count} row{'s' * (total != 1)} of {m} site{'s' * (m != 1)}, one colour each"
    if d > 2:
        words += f"; {d} features projected on two directions"
        words += "\nRadii are not drawn: they do not carry over to a projection" if len(scene.radii) else ""
    return words


def _principal_plane(rows: FloatArray, d: int) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Find the plane of largest variance.

    Returns:
        mean (d,), directions (2, d) whose largest entry is positive, and their shares (2,) of the variance (None where there is no variance).
    """
    # A random part is enough for a picture, and the decomposition costs n d^2: 2,000 x 3,072 takes about two seconds.
    part = rows[: max(2_000, 4_000_000 // d)]
    mean = part.mean(axis=0) if len(part) else np.zeros(d)
    padded = np.vstack([part - mean, np.zeros((2, d))])  # at least two directions, even from one row or none
    _, singular, directions = np.linalg.svd(padded, full_matrices=False)
    directions = directions[:2]
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.where(directions[[0, 1], largest] < 0, -1.0, 1.0)[:, None]
    variance = singular**2
    return mean, directions, variance[:2] / variance.sum() if variance.sum() > 0 else None


def _sample(arrays: list[FloatArray], max_points: int) -> tuple[FloatArray, IntArray]:
    """Choose at most max_points rows of all sites together, in random order, the same every time."""
    starts = np.cumsum([0, *(len(X) for X in arrays)])
    chosen = np.random.default_rng(0).permutation(starts[-1])[:max_points]
    owner = np.searchsorted(starts, chosen, side="right") - 1
    rows = np.empty((len(chosen), arrays[0].shape[1]))
    for i, X in enumerate(arrays):
        mine = owner == i
        rows[mine] = X[chosen[mine] - starts[i]]
    return rows, np.asarray(owner, dtype=np.int64)


def _site_labels(scene: _Scene) -> list[str]:
    short = [shortened(name) for name in scene.names]
    return [name if count else f"{name} (no rows)" for name, count in zip(short, scene.counts, strict=True)]


def _checked(
    sites: Mapping[str, ArrayLike], centroids: Any, true: Any, radii: Any
) -> tuple[dict[str, FloatArray], FloatArray, FloatArray, FloatArray]:
    if not sites:
        raise UserError("sites: expected at least one site name with its (n, d) rows; got none.")
    points = _points("centroids", centroids)
    if points.size == 0:
        raise UserError(f"centroids: expected at least one, shape (k, d); got shape {points.shape}.")
    d = points.shape[1]
    arrays = {str(name): _points(f"rows of site {name!r}", X, d) for name, X in sites.items()}
    truth = np.empty((0, d)) if true is None else _points("true_centroids", true, d)
    sizes = np.empty(0) if radii is None else as_floats("radii", radii)
    if radii is not None and (sizes.shape != (len(points),) or not np.all(np.isfinite(sizes) & (sizes >= 0))):
        raise UserError(
            f"radii: expected one finite radius >= 0 for each of {len(points)} centroids, shape ({len(points)},); got {radii!r}."
        )
    return arrays, points, truth, sizes


def _points(name: str, value: Any, d: int | None = None) -> FloatArray:
    """Check rows of numbers; d is the width they must have, if it is known."""
    points = as_floats(name, value)
    if points.ndim != 2 or (d is not None and points.shape[1] != d):
        width = "d" if d is None else f"{d}, the width of the centroids"
        raise UserError(f"{name}: expected shape (n, {width}); got {points.shape}.")
    if not np.all(np.isfinite(points)):
        raise UserError(
            f"{name}: expected finite numbers; got {int((~np.isfinite(points)).sum())} NaN or infinite values. "
            "Fill them in, or draw the columns that are complete."
        )
    return points
