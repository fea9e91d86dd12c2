"""Clusters from noisy numbers of rows in the cells of a grid: what a server makes of them. Nothing here sees a row.

The noise of every cell is known, and independent of that of the others. So the numbers are smoothed as far as Stein's
estimate of the risk advises, cells that noise alone could explain are emptied (the universal threshold of Donoho and
Johnstone), and k-means runs on the centers of the others, weighted by what they hold.

Source: Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4 (EUGkM: a uniform grid);
Stein, Estimation of the Mean of a Multivariate Normal Distribution (1981); Donoho, Johnstone, Ideal Spatial Adaptation by
Wavelet Shrinkage (1994).
"""

import math

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.core.clusterers import weighted_kmeans
from flareclust.core.dp.box import Box
from flareclust.core.lloyd import sums_by_label

#: Cells for each cluster, and how many along a column there must be for a grid to say anything.
CELLS_PER_CLUSTER, LEAST_ALONG = 25, 4

#: Widths of the smoothing that are compared, in cells.
_WIDTHS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

#: Where the cells that stay hold less than this share of all rows, the rest is spread over the others: too much is unknown.
_KEPT = 0.3

#: So it is where the best smoothing has this width or more, as then no cluster stands out of the noise.
_BLURRED = 2.0

_STARTS = 30


def has_grid(k: int, d: int, cells: int | None = None) -> bool:
    """Return whether there are so few columns that a grid has `LEAST_ALONG` cells along each."""
    return bool((CELLS_PER_CLUSTER * k if cells is None else cells) >= LEAST_ALONG**d)


def grid_shape(box: Box, cells: int) -> tuple[int, ...]:
    """Return numbers of cells along the columns of a box (d,) so that cells are near to cubes, and near to `cells` in all.

    Columns that are shorter than a cell get one cell.
    """
    sides = box.high - box.low
    side = sides.max() / cells
    for _ in range(len(sides)):  # once more for each column that turns out to be shorter than a cell
        long = sides > side
        side = float(np.exp(np.log(sides[long]).mean()) / cells ** (1 / long.sum()))
        if (sides[long] > side).all():
            break
    return tuple(int(max(1, round(float(length)))) for length in sides / side)


def cell_centers(box: Box, shape: tuple[int, ...]) -> FloatArray:
    """Return the middles of the cells (cells, d), the last axis first to change."""
    axes = [lo + (np.arange(g) + 0.5) / g * (hi - lo) for lo, hi, g in zip(box.low, box.high, shape, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))


def denoised(noisy: FloatArray, sigma: float, k: int) -> FloatArray:
    """Return numbers of rows by cell without what noise alone explains: not negative, and above 0 in k cells or more.

    Both have the form of the grid; sigma is the standard deviation of the noise of each.
    """
    smooth, deviation, width = _smoothed(noisy, sigma)
    above = np.where(smooth > deviation * math.sqrt(2 * math.log(max(smooth.size, 2))), smooth, 0)
    total, inside = max(float(noisy.sum()), 1.0), float(above.sum())
    if inside < _KEPT * total or np.count_nonzero(above) < k or width >= _BLURRED:
        empty = above == 0
        above[empty] = max(total - inside, (1 - _KEPT) * total) / max(int(empty.sum()), 1)
    return above


def grid_clusters(
    noisy: FloatArray, sigma: float, centers: FloatArray, k: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return at most k centroids (k, d) of the rows behind noisy cells, and the rows behind each (k,).

    `noisy` has the form of the grid, sigma is its standard deviation, and `centers` are those of the cells (cells, d).
    """
    weights = denoised(noisy, sigma, k).ravel()
    occupied = weights > 0
    points, weights = centers[occupied], weights[occupied]
    centroids, labels = weighted_kmeans(points, weights, k, _STARTS, rng)
    return centroids, sums_by_label(labels, weights, len(centroids))


def _smoothed(noisy: FloatArray, sigma: float) -> tuple[FloatArray, float, float]:
    """Return the grid under the smoothing of the least estimated risk, the noise's standard deviation afterwards, and the width."""
    # Here, since it takes a quarter of a second, for which other jobs need not wait.
    from scipy.ndimage import gaussian_filter, gaussian_filter1d

    best, minimum = (noisy, sigma, 0.0), math.inf
    impulse = np.zeros(49)
    impulse[24] = 1
    for width in _WIDTHS:
        smooth = gaussian_filter(noisy, width, mode="nearest") if width else noisy
        kernel = gaussian_filter1d(impulse, width) if width else impulse
        along = sum(g > 1 for g in noisy.shape)
        # Stein: |y - S y|^2 + 2 sigma^2 trace(S) is the risk but for a constant. The trace is that of a grid without edges.
        risk = float(((noisy - smooth) ** 2).sum()) + 2 * sigma**2 * noisy.size * float(kernel[24]) ** along
        if risk < minimum:
            best, minimum = (smooth, sigma * float(np.sqrt((kernel**2).sum())) ** along, width), risk
    return best
