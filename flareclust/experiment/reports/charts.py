"""Charts of a report: tinted cells, bars and maps of rows, as markup without scripts."""

from collections.abc import Mapping, Sequence

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.experiment.reports.html_parts import Html, joined, tag
from flareclust.plotting.style import cluster_colour

#: So many rows are drawn on the map, and on that of each site.
_MOST_POINTS, _MOST_SITE_POINTS = 4000, 400

#: The part of the rows that the map is wide enough for; the others are drawn at its border.
_COVERED = (0.3, 99.7)

#: Size of a map, in its own units.
_WIDTH, _HEIGHT = 600, 420

#: With more clusters than this, their numbers have no room in a bar on a phone.
_MANY = 12

#: Standard deviations from which on a cell has the full colour.
_FULL = 2.0


def swatch(cluster: int, k: int) -> Html:
    """Return a small square in a cluster's colour."""
    return tag("span", class_="swatch", style=f"background:{cluster_colour(cluster, k)}")


def tinted(words: object, z: float, hint: str = "") -> Html:
    """Return a cell that is red above and blue below the mean of all rows, the more the further; grey where that is not known."""
    if not np.isfinite(z):
        return tag("td", words, class_="n", style="background:#eee")
    strength = min(abs(z) / _FULL, 1.0)
    r, g, b = (214, 96, 77) if z > 0 else (67, 147, 195)
    mixed = [round(255 + (c - 255) * strength) for c in (r, g, b)]
    style = f"background:rgb({mixed[0]},{mixed[1]},{mixed[2]})"
    return tag("td", words, class_="n", style=style, title=hint)


def meter(share: float) -> Html:
    """Return a short bar for a share."""
    return (
        tag("span", tag("span", style=f"width:{100 * share:.0f}%"), class_="meter") if np.isfinite(share) else Html("")
    )


def stacked(shares: Sequence[float]) -> Html:
    """Return a bar of the clusters' shares, with their numbers where they have room."""
    k = len(shares)
    parts = [
        tag(
            "span",
            c if share >= 0.06 else "",
            style=f"width:{100 * share:.2f}%;background:{cluster_colour(c, k)}",
            title=f"{c}: {100 * share:.1f} %",
        )
        for c, share in enumerate(shares)
        if share > 0
    ]
    return tag("div", *parts, class_="bar many" if k > _MANY else "bar")


def legend(k: int) -> Html:
    """Return which colour is which cluster."""
    return tag("div", *(tag("span", swatch(c, k), f"cluster {c}") for c in range(k)), class_="legend")


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

    def whole(self) -> Html:
        """Return the map of all sites, with the clusters' numbers."""
        rows = np.concatenate(list(self.sites.values()))
        labels = np.concatenate([self.labels[site] for site in self.sites])
        numbers = [
            tag("text", c, x=f"{x:.0f}", y=f"{y + 5:.0f}", text_anchor="middle", font_size=15, font_weight="bold",
                fill="#111", stroke="#fff", stroke_width=3.5, paint_order="stroke")
            for c, (x, y) in enumerate(self.centroids)
        ]  # fmt: skip
        return self._drawn(rows, labels, _MOST_POINTS, 4.5, *numbers)

    def of(self, site: str) -> Html:
        """Return the map of one site."""
        return self._drawn(self.sites[site], self.labels[site], _MOST_SITE_POINTS, 11.0)

    def _drawn(self, rows: FloatArray, labels: IntArray, most: int, size: float, *more: object) -> Html:
        chosen = np.random.default_rng(0).permutation(len(rows))[:most]
        at, own = self._places(rows[chosen]), labels[chosen]
        paths = []
        for c in range(-1, self.k):
            points = at[own == c]
            if len(points):
                d = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in points)
                stroke = "#bbb" if c < 0 else cluster_colour(c, self.k)
                paths.append(
                    tag(
                        "path",
                        d=d,
                        stroke=stroke,
                        stroke_width=size,
                        stroke_linecap="round",
                        stroke_opacity=0.7,
                        fill="none",
                    )
                )
        return tag("svg", *paths, joined(more), viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label="map of rows")

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
