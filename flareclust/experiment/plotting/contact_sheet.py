"""Contact sheets: some images of each cluster, side by side.

They show the rows themselves: draw them where the rows may be seen.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.experiment.plotting.style import INK, caption, headline, open_frame, page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Images of a cluster, and clusters, that a sheet shows.
IMAGES, CLUSTERS = 12, 60

#: Pixels of the longer side of an image on the sheet: small ones are repeated, large ones averaged, about to these.
_SMALLEST_TILE, _LARGEST_TILE = 32, 96

#: Inches: width of an image, of the words beside a row of them, and room for the title and the caption.
_TILE, _WORDS, _MARGIN = 0.52, 1.3, 0.8


class _Cluster(NamedTuple):
    """What the sheet shows of one cluster: pixels (c, height, width, 3) of c of its images, and how many it has."""

    images: FloatArray
    size: int


def contact_sheet(
    sites: Mapping[str, FloatArray],
    labels: Mapping[str, IntArray],
    shape: tuple[int, int, int],
    k: int,
    *,
    title: str = "",
) -> "Figure":
    """Draw a row of images for each cluster, with the cluster's number and how many images it has at all sites.

    Images are drawn at random from all sites together, the same ones every time. Black is the least value of all images
    on the sheet (or 0, where that is less), white the largest.

    Args:
        sites: site name -> (n_i, height * width * channels) rows.
        labels: site name -> (n_i,) cluster of each row; -1 for none.
        shape: height, width and channels.
        k: number of clusters; the first 60 are shown.
        title: printed above.
    """
    chosen = _chosen(sites, labels, shape, min(k, CLUSTERS))
    canvas = _canvas(chosen, *_tile(shape))
    height, width = canvas.shape[:2]
    inches = IMAGES * _TILE
    figure = page(inches + _WORDS, inches * height / width + _MARGIN)
    axes = figure.add_subplot(facecolor="white")
    axes.imshow(canvas, interpolation="nearest", gid="images")
    axes.set_xticks([])
    step = height / len(chosen)
    words = [f"cluster {i}\n{one.size:,} image{'s' * (one.size != 1)}" for i, one in enumerate(chosen)]
    axes.set_yticks([step * (row + 0.5) for row in range(len(chosen))], words, fontsize=8, color=INK)
    axes.tick_params(length=0)
    open_frame(axes, axes.spines)
    headline(axes, title)
    of_all = "" if len(chosen) == k else f"; the first {len(chosen)} of {k} clusters"
    caption(figure, f"Up to {IMAGES} images of each cluster, drawn at random from all sites{of_all}")
    return figure


def _chosen(
    sites: Mapping[str, FloatArray], labels: Mapping[str, IntArray], shape: tuple[int, int, int], k: int
) -> list[_Cluster]:
    """Choose the images of each cluster that are shown, and bring all to values from 0 (black) to 1 (white)."""
    random, where = np.random.default_rng(0), np.concatenate([labels[site] for site in sites])
    starts = np.cumsum([0, *(len(X) for X in sites.values())])
    rows, found = list(sites.values()), []
    for cluster in range(k):
        members = np.flatnonzero(where == cluster)
        shown = np.sort(random.permutation(members)[:IMAGES])
        owner = np.searchsorted(starts, shown, side="right") - 1
        pixels = [_shrunk(rows[i][row - starts[i]].reshape(shape)) for i, row in zip(owner, shown, strict=True)]
        found.append(_Cluster(np.array(pixels), len(members)))
    values = [cluster.images for cluster in found if len(cluster.images)]
    low = min(0.0, *(float(part.min()) for part in values)) if values else 0.0
    high = max((float(part.max()) for part in values), default=1.0)
    scale = high - low if high > low else 1.0
    return [_Cluster((cluster.images - low) / scale, cluster.size) for cluster in found]


def _shrunk(image: FloatArray) -> FloatArray:
    """Return an image (height, width, channels) with the means of squares of pixels where it is large, and 3 channels."""
    factor = -(-max(image.shape[:2]) // _LARGEST_TILE)
    height, width = (max(1, size // factor) for size in image.shape[:2])
    if factor > 1 and min(image.shape[:2]) >= factor:
        blocks = image[: height * factor, : width * factor].reshape(height, factor, width, factor, -1)
        image = blocks.mean(axis=(1, 3))
    elif factor > 1:  # a strip thinner than one square
        image = image[::factor, ::factor]
    return np.broadcast_to(image, (*image.shape[:2], 3))


def _tile(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return height and width of an image on the sheet."""
    small = _shrunk(np.zeros(shape)).shape
    times = max(1, -(-_SMALLEST_TILE // max(small[:2])))
    return small[0] * times, small[1] * times


def _canvas(clusters: list[_Cluster], height: int, width: int) -> FloatArray:
    """Return the whole sheet (height, width, 3), white between the images."""
    gap = max(1, max(height, width) // 16)
    sheet = np.ones((len(clusters) * (height + gap), IMAGES * (width + gap), 3))
    for row, cluster in enumerate(clusters):
        for column, image in enumerate(cluster.images):
            times = height // image.shape[0]
            top, left = row * (height + gap) + gap // 2, column * (width + gap) + gap // 2
            sheet[top : top + height, left : left + width] = image.repeat(times, axis=0).repeat(times, axis=1)
    return sheet
