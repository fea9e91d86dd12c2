"""Lloyd's algorithm on noisy sums: starts, radii and steps. Nothing here sees a row; sites run it on their own sums, too.

Source: Blum, Dwork, McSherry, Nissim, Practical Privacy: The SuLQ Framework (2005), section 5 (k-means from noisy sums
and counts); Su et al., Differentially Private K-Means Clustering (2016).
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust.core.assessment import distances_between
from flareclust.core.dp.box import Box
from flareclust.core.dp.sums import COUNT, UNIT, ClusterSums

#: Share of the columns' deviations that the random start is drawn with.
_SPREAD = 0.5

#: The share of the squared length of sums that noise alone explains, from which on they are shrunk.
_NOISY = 0.5

#: Fewer rows than that many standard deviations of their own noise are not taken for rows.
_SURE = 2.0


class Moments(NamedTuple):
    """Estimates for all rows from noisy sums: how many there are, the mean (d,), the standard deviation by column (d,)."""

    rows: float
    mean: FloatArray
    deviation: FloatArray


def moments(values: FloatArray, box: Box, noise: float = 0.0) -> Moments:
    """Return the estimates from the noisy `moment_sums` of all sites in total (1 + 2 d,), in units; the mean lies in the box.

    They are about the box; `noise` is the standard deviation of the noise of each.
    """
    d, middle, half = len(box.low), box.middle, box.half
    rows = max(float(values[0]), 1.0)
    mean = shrunk(values[1 : 1 + d], noise) / rows
    variance = np.clip(values[1 + d :] / rows - mean**2, 0, 1)
    return Moments(rows, box.clip((middle + half * mean)[None])[0], half * np.sqrt(variance))


def shrunk(values: FloatArray, noise: float) -> FloatArray:
    """Return sums (d,) shrunk toward 0 by as much as noise alone moves them away from it, where that is most of their length.

    The estimate of James and Stein (1961); below one half it is not worth what it adds to the error of the mean's direction.
    """
    of_noise = max(len(values) - 2, 0) * noise**2 / max(float((values**2).sum()), 1e-300)
    return values if of_noise < _NOISY else values * max(1 - of_noise, 0.0)


def spread_start(found: Moments, box: Box, k: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return k points about the mean of all rows (k, d), and the radii to begin with (k,): the rows' deviation from it."""
    away = rng.normal(size=(k, len(box.low))) * found.deviation * _SPREAD
    points, widest = box.clip(found.mean + away - away.mean(axis=0)), widest_radius(box, k)
    radius = float(np.clip(np.sqrt((found.deviation**2).sum()), widest / 100, widest))
    return points, np.full(k, radius)


def widest_radius(box: Box, k: int) -> float:
    """Return the radius beyond which rows are clipped at the latest: that of the bounds, by the d-th root of k."""
    return box.half / float(k ** (1 / len(box.low)))


def half_way(centroids: FloatArray, box: Box) -> FloatArray:
    """Return for each centroid (k, d) half the distance to the next one (k,), within sane bounds by the box."""
    widest = widest_radius(box, len(centroids))
    if len(centroids) == 1:
        return np.full(1, widest)
    gaps = distances_between(centroids)
    np.fill_diagonal(gaps, np.inf)
    nearest: FloatArray = gaps.min(axis=1) / 2
    return np.clip(nearest, widest / 100, widest)


def next_centroids(
    centroids: FloatArray,
    radii: FloatArray,
    sums: ClusterSums,
    noise: float,
    done: int,
    box: Box,
    toward: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the centroids (k, d) after one noisy update, within the box, and the rows of each (k,), possibly below 0.

    Args:
        centroids: those that the sums are about (k, d).
        radii: of their sums (k,).
        sums: noisy, in total over the sites.
        noise: standard deviation of the noise of each of the shifts, in radii; that of the rows is UNIT / COUNT times it.
        done: updates before this one. The step is 2 / (done + 2) of the way, so that noise averages out over rounds.
        box: where centroids can be.
        toward: a point (d,) about which centroids are shrunk by as much as noise has moved them away from it (James and
            Stein 1961); None for no shrinking.
    """
    d, rows = centroids.shape[1], sums.rows
    sure = sure_rows(rows, noise)
    behind = np.where(sure, rows, 1)
    goal = centroids + sums.shifts / behind[:, None] * radii[:, None]
    if toward is not None and d > 2:
        variance, length = (noise / behind * radii) ** 2, np.maximum(((goal - toward) ** 2).sum(axis=1), 1e-300)
        goal = toward + (goal - toward) * np.maximum(1 - (d - 2) * variance / length, 0)[:, None]
    step = 2 / (done + 2)
    moved = np.where(sure[:, None], centroids + step * (goal - centroids), centroids)
    return box.clip(moved), rows


def sure_rows(rows: FloatArray, noise: float) -> BoolArray:
    """Return which clusters (k,) have more rows than noise explains; `noise` is that of the shifts, in radii."""
    return rows > max(_SURE * noise * UNIT / COUNT, 1)


def rms_radii(radii: FloatArray, sums: ClusterSums) -> FloatArray:
    """Return the root mean square distance of each cluster's rows (k,) from noisy sums, between 0 and `radii`."""
    return radii * np.sqrt(np.clip(sums.squares / np.maximum(sums.rows, 1), 0, 1))
