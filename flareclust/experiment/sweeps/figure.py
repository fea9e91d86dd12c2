"""The figure of a study: a group per partition, a mark with its standard deviation per algorithm."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust.experiment.plotting import style
from flareclust.experiment.sweeps.report import comparable, series
from flareclust.experiment.sweeps.trials import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The first of these that the study has is drawn, with what stands at its axis.
_DRAWN = {"l2": "l2 distance to the true centroids", "ari": "adjusted Rand index", "inertia": "inertia"}
#: Eleven, for ten colours: a mark and its colour come together again after 110.
_MARKERS = "osD^vPXp*h<"
#: How every mark looks, and the bar of its deviation.
_MARK: Mapping[str, Any] = {"markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.4}
_BAR: Mapping[str, Any] = {"linestyle": "none", "elinewidth": 1.2, "capsize": 2}
#: Above this ratio of the largest to the smallest mean, the axis is logarithmic.
_WIDE = 20.0
_MOST_PANELS = 12


def sweep_figure(cells: Sequence[Cell], *, title: str = "", metric: str | None = None) -> "Figure":
    """Return a figure of mean and standard deviation of one quality, for `flareclust.experiment.plotting.style.save`.

    The cells' first axis (the algorithm) gives marks and colours, the second (the partition) gives the groups; every
    combination of further axes has a panel of its own, up to twelve of them. The quality, which at least one cell has, is by
    default l2 where it is known, else the adjusted Rand index, else the inertia, else the first in the alphabet.
    """
    known = {name for cell in cells for name in cell.mean}
    name, panels = metric or next((name for name in _DRAWN if name in known), min(known)), comparable(cells)
    shown = list(panels.items())[:_MOST_PANELS]
    columns = min(len(shown), 3)
    rows, groups = -(-len(shown) // columns), list(dict.fromkeys(map(_group, cells)))
    names = list(dict.fromkeys(map(series, cells)))
    width = max(6.0, min(1.2 + 0.16 * len(groups) * (len(names) + 2), 14.0)) if columns == 1 else 4.5 * columns
    figure = style.page(width + 2, 1 + 3.5 * rows)
    for number, (about, members) in enumerate(shown):
        axes = figure.add_subplot(rows, columns, number + 1, facecolor="white")
        _draw(axes, members, name, groups, names)
        axes.set_title(about, fontsize=9, color=style.SOFT, loc="left", parse_math=False)
        if number % columns == 0:
            axes.set_ylabel(_DRAWN.get(name, name.replace("_", " ")), color=style.INK, fontsize=9)
    handles = {line.get_label(): line for axes in figure.axes for line in axes.containers}
    found = [(handles[label], label) for label in names if label in handles]
    legend = figure.legend(*zip(*found, strict=True), loc="outside right upper", fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.suptitle(title, fontsize=12, color=style.INK, x=0.01, ha="left", parse_math=False)
    maximum = max(cell.n for cell in cells)
    note = "mean and standard deviation" + (f" of {maximum} trials" if maximum > 1 else "")
    if len(panels) > len(shown):
        note += f"; {len(panels) - len(shown)} more panels are not drawn"
    style.caption(figure, note)
    return figure


def _draw(axes: "Axes", cells: Sequence[Cell], name: str, groups: list[str], names: list[str]) -> None:
    present = [cell for cell in cells if name in cell.mean]
    means = np.array([cell.mean[name] for cell in present])
    log = bool(len(means) and means.min() > 0 and means.max() > _WIDE * means.min())
    axes.set_yscale("log" if log else "linear")
    step = 0.8 / max(len(names), 2)
    for number, label in enumerate(names):
        mine = [cell for cell in present if series(cell) == label]
        if not mine:
            continue
        x = [groups.index(_group(cell)) + (number - (len(names) - 1) / 2) * step for cell in mine]
        y, bars = [cell.mean[name] for cell in mine], _bars(mine, name, log)
        marker, colour = _MARKERS[number % len(_MARKERS)], style.PALETTE[number % len(style.PALETTE)]
        axes.errorbar(x, y, yerr=bars, label=label, marker=marker, color=colour, **_MARK, **_BAR)
    for edge in range(1, len(groups)):
        axes.axvline(edge - 0.5, color=style.SOFT, alpha=0.25, linewidth=0.6)
    axes.set_xticks(range(len(groups)), groups, fontsize=9)
    axes.set_xlim(-0.55, len(groups) - 0.45)
    axes.grid(axis="y", alpha=0.25, linewidth=0.6)
    axes.tick_params(labelsize=8, colors=style.SOFT)
    style.open_frame(axes)


def _bars(cells: Sequence[Cell], name: str, log: bool) -> list[list[float]]:
    """Return how far the bars reach down and up; on a logarithmic axis not to nought, where they would not be drawn."""
    up = [cell.std[name] for cell in cells]
    down = [min(std, 0.9 * cell.mean[name]) for std, cell in zip(up, cells, strict=True)] if log else up
    return [down, up]


def _group(cell: Cell) -> str:
    return [*cell.cell.values(), "", ""][1]
