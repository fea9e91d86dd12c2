"""Draw the pictures of docs/partial-features.md: the scheme of the method, and those of the page's own example.

    python -m benchmarks.pages.partial_features

The scheme shows invented sites. The example has the data that come with scikit-learn.
"""

import os
import re
import runpy
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Ellipse, Rectangle

import flareclust
from benchmarks.pages import DOCS
from flareclust.experiment.plotting.style import PALETTE
from flareclust.experiment.plotting.style import save as save_figure
from flareclust.experiment.results.picture import merge_picture

PAGE, IMAGES = DOCS / "partial-features.md", DOCS / "images"

INK, SOFT, UNKNOWN = "#2b2b2b", "#6b6b6b", "#c8c8c8"
COLUMNS = ("age", "crp", "iron", "lactate", "sodium", "urea")
#: Which columns each invented site has, and which of the two clusters each of its rows is of.
SITES = {
    "north": ((0, 1, 2, 3), (0, 0, 1, 0, 1)),
    "south": ((2, 3, 4), (1, 1, 0, 1, 0)),
    "west": ((3, 5), (1, 1, 1)),
}
TONES = (PALETTE[0], PALETTE[1])


def grid(axes: Axes, top: float, columns: Iterable[int], clusters: Iterable[int], height: float) -> None:
    """Draw a table whose lines have the colours of their clusters, from `top` downwards."""
    held = set(columns)
    for i, cluster in enumerate(clusters):
        for j in range(len(COLUMNS)):
            y = top - (i + 1) * height
            if j in held:
                axes.add_patch(Rectangle((j, y), 0.92, 0.86 * height, color=TONES[cluster], alpha=0.85, lw=0))
            else:
                axes.add_patch(Rectangle((j, y), 0.92, 0.86 * height, facecolor="none", edgecolor="#dddddd", lw=0.6))


def panel(figure: Figure, where: tuple[float, float, float, float], title: str, high: float) -> Axes:
    """Return empty axes of six columns and `high` lines with a title."""
    axes = figure.add_axes(where)
    axes.set_xlim(-0.1, len(COLUMNS))
    axes.set_ylim(0, high)
    axes.axis("off")
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    return axes


def name_columns(axes: Axes, y: float) -> None:
    """Write the names of the columns below `y`."""
    for j, name in enumerate(COLUMNS):
        axes.text(j + 0.46, y, name, ha="center", va="top", fontsize=7, color=SOFT, rotation=90)


def scheme() -> Figure:
    """Return the picture of both algorithms: what sites have, what they send, and what the server makes of it."""
    figure = Figure(figsize=(10, 5.2), dpi=130, facecolor="white")
    left = panel(figure, (0.06, 0.12, 0.22, 0.78), "1  rows, in each site's own columns", 16.2)
    middle = panel(figure, (0.39, 0.58, 0.22, 0.32), "2  masked: means with gaps", 7.6)
    lower = panel(figure, (0.39, 0.05, 0.22, 0.42), "2  proxy: points of distributions", 7.6)
    right = panel(figure, (0.75, 0.38, 0.22, 0.30), "3  k centroids over all columns", 3.4)

    top = 16.0
    for site, (columns, clusters) in SITES.items():
        grid(left, top, columns, clusters, 1.0)
        left.text(-0.25, top - len(clusters) / 2, site, ha="right", va="center", fontsize=9, color=INK)
        top -= len(clusters) + 1.4
    name_columns(left, top + 1.2)

    y = 7.4
    for site, (columns, clusters) in SITES.items():
        present = sorted(set(clusters))
        grid(middle, y, columns, present, 1.0)
        middle.text(-0.25, y - len(present) / 2, site, ha="right", va="center", fontsize=8, color=SOFT)
        y -= len(present) + 0.7

    clouds(lower)
    grid(right, 3.2, range(len(COLUMNS)), (0, 1), 1.2)
    right.add_patch(Rectangle((5, 2.0), 0.92, 1.03, facecolor=UNKNOWN, edgecolor="#7d7d7d", hatch="////", lw=0))
    name_columns(right, 0.7)
    figure.text(
        0.75,
        0.33,
        "Each entry is the mean over the sites that\nhave the column. Grey: no site with this\ncolumn has rows of the cluster; it stays\nunknown.",
        fontsize=8,
        color=SOFT,
        va="top",
    )
    for start, end in (
        ((0.29, 0.60), (0.345, 0.70)),
        ((0.29, 0.44), (0.345, 0.26)),
        ((0.63, 0.70), (0.72, 0.56)),
        ((0.63, 0.26), (0.72, 0.46)),
    ):
        figure.add_artist(
            ConnectionPatch(start, end, "figure fraction", "figure fraction", arrowstyle="-|>", color=SOFT, lw=1.2)
        )
    return figure


def clouds(axes: Axes) -> None:
    """Draw a cloud of proxies for every cluster of every site, and what attracts what."""
    rng = np.random.default_rng(4)
    where = [
        ("north", 0, (0.9, 6.0)),
        ("south", 0, (1.6, 2.6)),
        ("north", 1, (4.0, 4.2)),
        ("south", 1, (5.3, 6.4)),
        ("west", 1, (4.8, 1.3)),
    ]
    for a, b in ((0, 1), (2, 3), (2, 4)):
        ends = np.array([where[a][2], where[b][2]])
        axes.plot(ends[:, 0], ends[:, 1], color=TONES[where[a][1]], lw=2.2, alpha=0.6, zorder=1)
    for site, cluster, center in where:
        x, y = (np.array(center) + rng.normal(size=(30, 2)) * (0.22, 0.35)).T
        axes.add_patch(Ellipse(center, 1.1, 1.75, facecolor="white", edgecolor=TONES[cluster], lw=1.1, zorder=2))
        axes.scatter(x, y, s=4, color=TONES[cluster], lw=0, zorder=3)
        axes.text(center[0], center[1] - 1.0, site, ha="center", va="top", fontsize=7, color=SOFT, zorder=3)


def example() -> dict[str, Figure]:
    """Return the pictures of the page's example, whose first block of Python writes the sites' files."""
    first = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)[0]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("clinics.py").write_text(first, encoding="utf-8")
            runpy.run_path("clinics.py")
            sites = {path.stem: str(path) for path in sorted(Path("sites").iterdir())}
            masked = flareclust.run("masked", data=sites, k=2, scale="standard")
            proxy = flareclust.run("proxy", data=sites, k=2, scale="standard")
        finally:
            os.chdir(before)
    return {"partial_coverage.png": masked.plot(), "partial_tree.png": merge_picture(proxy.arrays, 2, 2.0)}


if __name__ == "__main__":
    for file, figure in {"partial_features.png": scheme(), **example()}.items():
        save_figure(figure, IMAGES / file)
