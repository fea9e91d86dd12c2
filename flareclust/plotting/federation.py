"""Pictures of a federation: the rows of its sites and the centroids that were recovered.

They show the rows themselves: draw them where the rows may be seen (in an experiment, or at a site for its own rows).
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import assign
from flareclust.plotting.federation_maps import Scene, draw_legend, maps, strips, words_below
from flareclust.plotting.style import as_floats, caption, headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def federation_picture(
    sites: Mapping[str, ArrayLike],
    centroids: ArrayLike,
    *,
    labels: Mapping[str, ArrayLike] | None = None,
    true_centroids: ArrayLike | None = None,
    radii: ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    max_points: int = 20_000,
) -> "Figure":
    """Draw the rows of all sites, coloured by cluster, with the numbers of the clusters at their centroids; below, each site alone.

    The panels of the sites have the axes of the map. Two features are drawn as they are, with a circle for each radius; one feature as
    a strip per site; more than two as their first two principal components, where radii would mean nothing and are left out. The same
    input gives the same picture.

    Args:
        sites: site name -> (n_i, d) rows; a site may have none.
        centroids: (k, d) recovered centroids, in the features of the rows.
        labels: site name -> (n_i,) clusters of its rows, -1 for none; None, and for sites that are not in it, the nearest centroid.
        true_centroids: (k*, d) true centroids, if known.
        radii: (k,) radii around the recovered centroids, >= 0.
        columns: names of the features (d,); None for "feature 1", ...
        title: printed above, as it is (no mathematical notation).
        max_points: at most so many rows are drawn, a random part that is the same every time.

    Returns:
        A figure of 6 inches width at 150 dots per inch, for `flareclust.plotting.style.save`.

    Raises:
        UserError: no sites, arrays that do not fit together or are not finite, max_points < 1.
    """
    arrays, points, true, sizes = _checked(sites, centroids, true_centroids, radii)
    if max_points < 1:
        raise UserError(f"max_points: expected at least 1 row to draw; got {max_points}.")
    known = _labels(arrays, labels or {}, len(points))
    rows, owner, cluster = _sample(list(arrays.values()), [known.get(name) for name in arrays], max_points)
    unknown = np.array([name not in known for name in arrays], dtype=bool)[owner]
    cluster[unknown] = assign(np.ascontiguousarray(rows[unknown]), points)[0] if unknown.any() else -1
    names = tuple(columns) if columns is not None and len(columns) == points.shape[1] else ()
    scene = Scene(list(arrays), rows, owner, cluster, points, true, sizes, [len(X) for X in arrays.values()], names)
    draw = strips if points.shape[1] == 1 else maps
    figure, handles = draw(scene)
    draw_legend(figure, handles)
    headline(figure.axes[0], "\n".join(wrap(title, 52)))
    caption(figure, words_below(scene), 9.5)
    return figure


def _labels(arrays: Mapping[str, FloatArray], labels: Mapping[str, ArrayLike], k: int) -> dict[str, IntArray]:
    """Return the labels of the sites that have them, or raise UserError where they do not fit the rows or the k clusters."""
    known = {}
    for name in arrays.keys() & labels.keys():
        own = np.asarray(labels[name])
        fits = own.shape == (len(arrays[name]),) and (own.dtype.kind in "iu" or not own.size)
        if not fits or (own.size and (own.max() >= k or own.min() < -1)):
            raise UserError(
                f"labels of site {name!r}: expected {len(arrays[name])} integers from -1 to {k - 1}, one for each of its rows; "
                f"got shape {own.shape} of {own.dtype}."
            )
        known[name] = own.astype(np.int64)
    return known


def _sample(
    arrays: list[FloatArray], labels: list[IntArray | None], max_points: int
) -> tuple[FloatArray, IntArray, IntArray]:
    """Choose at most max_points rows of all sites together, in random order, the same every time; return their sites and labels, too."""
    starts = np.cumsum([0, *(len(X) for X in arrays)])
    chosen = np.random.default_rng(0).permutation(starts[-1])[:max_points]
    owner = np.searchsorted(starts, chosen, side="right") - 1
    rows, cluster = np.empty((len(chosen), arrays[0].shape[1])), np.full(len(chosen), -1, dtype=np.int64)
    for i, (X, own) in enumerate(zip(arrays, labels, strict=True)):
        mine = owner == i
        rows[mine] = X[chosen[mine] - starts[i]]
        if own is not None:
            cluster[mine] = own[chosen[mine] - starts[i]]
    return rows, np.asarray(owner, dtype=np.int64), cluster


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
