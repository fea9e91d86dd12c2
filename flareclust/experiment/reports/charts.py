"""Maps of rows: points of clusters in two directions, as paths for an SVG."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.experiment.plotting.style import cluster_colour

#: So many rows are drawn on the map, and on that of each site.
_MOST_POINTS, _MOST_SITE_POINTS = 4000, 400

#: The part of the rows that the map is wide enough for; the others are drawn at its border.
_COVERED = (0.3, 99.7)

#: Size of a map, in its own units; the template has it, too.
_WIDTH, _HEIGHT = 600, 420


class RowMap:
    """A map of rows in two directions, the same for all sites.

    Args:
        sites: rows (n_i, d) by site, in the units in which they were clustered.
        labels: their clusters (n_i,); -1 for none.
        centroids: (k, d), likewise.
        columns: names (d,).
    """

    def __init__(
        self,
        sites: Mapping[str, FloatArray],
        labels: Mapping[str, IntArray],
        centroids: FloatArray,
        columns: Sequence[str],
    ) -> None:
        self.sites = {site: rows for site, rows in sites.items() if site in labels and len(labels[site]) == len(rows)}
        self.labels, self.k = labels, len(centroids)
        rows = np.concatenate(list(self.sites.values())) if self.sites else np.empty((0, centroids.shape[1]))
        self.mean, self.directions = _plane(rows, centroids.shape[1])
        self.axes = [_named(direction, columns) for direction in self.directions]
        at = (rows - self.mean) @ self.directions.T
        ends: FloatArray = np.percentile(at, _COVERED, axis=0) if len(at) else np.array([[0.0, 0.0], [1.0, 1.0]])
        self.low, self.high = ends
        self.centroids = self._places(centroids)

    def whole(self) -> dict[str, Any]:
        """Return the map of all sites, with the clusters' numbers: its `paths`, `size` of dots and `numbers` above them."""
        rows = np.concatenate(list(self.sites.values()))
        labels = np.concatenate([self.labels[site] for site in self.sites])
        numbers = [{"text": c, "x": f"{x:.0f}", "y": f"{y + 5:.0f}"} for c, (x, y) in enumerate(self.centroids)]
        return self._drawing(rows, labels, _MOST_POINTS, 4.5, numbers)

    def of(self, site: str) -> dict[str, Any]:
        """Return the map of one site."""
        return self._drawing(self.sites[site], self.labels[site], _MOST_SITE_POINTS, 11.0)

    def _drawing(
        self, rows: FloatArray, labels: IntArray, most: int, size: float, numbers: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        chosen = np.random.default_rng(0).permutation(len(rows))[:most]
        at, own, paths = self._places(rows[chosen]), labels[chosen], []
        for c in range(-1, self.k):
            if (own == c).any():
                dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in at[own == c])
                paths.append({"d": dots, "colour": "#bbb" if c < 0 else cluster_colour(c, self.k)})
        return {"paths": paths, "size": size, "numbers": numbers}

    def _places(self, rows: FloatArray) -> FloatArray:
        """Return where rows are on the page (n, 2)."""
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        part = np.clip(((rows - self.mean) @ self.directions.T - self.low) / width, 0, 1)
        x, y = 16 + part[:, 0] * (_WIDTH - 32), _HEIGHT - 16 - part[:, 1] * (_HEIGHT - 32)
        return np.column_stack([x, y])


def _plane(rows: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean (d,) of the rows and two directions (2, d) in which they vary most."""
    part = rows[np.random.default_rng(0).permutation(len(rows))[:2000]]
    mean = part.mean(axis=0) if len(part) else np.zeros(d)
    if d <= 2:
        return mean, np.eye(2, d)
    directions = np.linalg.svd(np.vstack([part - mean, np.zeros((2, d))]), full_matrices=False)[2][:2]
    largest = np.abs(directions).argmax(axis=1)
    return mean, directions * np.where(directions[[0, 1], largest] < 0, -1.0, 1.0)[:, None]


def _named(direction: FloatArray, columns: Sequence[str]) -> str:
    """Return the columns that make most of a direction, with the sign of each; in words where there are none, or too many."""
    if not direction.any():
        return "nothing"
    order = np.argsort(-np.abs(direction))[:3]
    signed = [f"{'+' if direction[j] > 0 else '−'} {columns[j]}" for j in order if abs(direction[j]) > 0.25]  # noqa: RUF001
    return ", ".join(signed).removeprefix("+ ") or "a mixture of many columns"
