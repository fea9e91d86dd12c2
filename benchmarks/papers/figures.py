"""Figures of results, in one style and without pyplot: panels, lines with their spread, bars beside the paper's."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from flareclust.experiment.plotting.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Dots per inch of the saved figures: their PNG files stay small.
DPI = 80
#: Colours of a saved figure, which make a third of its bytes.
COLOURS = 128
#: What the paper's own values are drawn in.
PAPER_COLOUR = "#1a1a1a"


def panels(
    titles: Sequence[str], columns: int = 2, size: tuple[float, float] = (4.6, 3.2)
) -> "tuple[Figure, list[Axes]]":
    """Return a figure with one pair of axes per title, `size` inches each."""
    from matplotlib.figure import Figure

    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=DPI, layout="constrained", facecolor="white")
    all_axes: list[Axes] = [figure.add_subplot(rows, columns, number + 1) for number in range(len(titles))]
    for axes, title in zip(all_axes, titles, strict=True):
        axes.set_title(title, fontsize=10, loc="left", parse_math=False)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure, all_axes


def line(axes: "Axes", x: ArrayLike, mean: ArrayLike, std: ArrayLike | None = None, *, label: str, number: int) -> None:
    """Draw means against x, with a band of one standard deviation where there is one.

    Args:
        axes: where.
        x: (p,) values on the x axis.
        mean: (p,) means.
        std: (p,) standard deviations, or None.
        label: for the legend.
        number: of the colour.
    """
    from matplotlib.ticker import MaxNLocator

    colour = PALETTE[number % len(PALETTE)]
    middle = np.asarray(mean, dtype=np.float64)
    axes.plot(np.asarray(x), middle, marker="o", markersize=3, linewidth=1.3, color=colour, label=label)
    if axes.get_xscale() == "linear" and np.array_equal(np.asarray(x), np.round(np.asarray(x))):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if std is not None:
        spread = np.asarray(std, dtype=np.float64)
        axes.fill_between(np.asarray(x), middle - spread, middle + spread, color=colour, alpha=0.15, linewidth=0)


def paper_line(axes: "Axes", x: ArrayLike, mean: ArrayLike, label: str = "paper") -> None:
    """Draw the paper's own values: black, dashed."""
    axes.plot(np.asarray(x), np.asarray(mean), "--", linewidth=1, color=PAPER_COLOUR, label=label)


def bars(
    axes: "Axes",
    names: Sequence[str],
    ours: Mapping[str, Sequence[float]],
    spread: Mapping[str, Sequence[float]] | None = None,
    paper: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw groups of bars, one group per name and one bar per series; the paper's value is a black mark across a bar.

    Args:
        axes: where.
        names: of the groups, along the x axis.
        ours: heights by series, one per group; NaN for none.
        spread: standard deviations in the same form.
        paper: the paper's values in the same form, for the series that it has.
    """
    width = 0.8 / max(len(ours), 1)
    for number, (series, heights) in enumerate(ours.items()):
        x = np.arange(len(names)) - 0.4 + (number + 0.5) * width
        error = None if spread is None or series not in spread else np.asarray(spread[series])
        style = {"elinewidth": 0.6, "ecolor": "#555555"}
        colour = PALETTE[number % len(PALETTE)]
        axes.bar(x, np.asarray(heights), width * 0.92, yerr=error, color=colour, label=series, error_kw=style)
        if paper is not None and series in paper:
            marks = np.asarray(paper[series], dtype=np.float64)
            axes.hlines(marks, x - width / 2, x + width / 2, color=PAPER_COLOUR, linewidth=1.4)
    axes.set_xticks(np.arange(len(names)), names)


def legend(figure: "Figure", axes: "Axes", paper: bool = False) -> None:
    """Put one legend below all panels, from the series of one of them."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if paper and "paper" not in labels:
        handles, labels = [*handles, Line2D([], [], color=PAPER_COLOUR, linewidth=1.4)], [*labels, "paper"]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), fontsize=8, frameon=False)


def save(figure: "Figure", path: Path) -> Path:
    """Write a PNG without time stamp or program version: the same figure gives the same bytes."""
    from PIL import Image  # which matplotlib needs, too

    drawn = BytesIO()
    figure.savefig(drawn, dpi=DPI)
    colours = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    colours.save(path, "PNG", optimize=True)
    return path
