"""A picture of the choice of k: what was measured for every k, and what each rule makes of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.evaluation import criteria
from flareclust.experiment.plotting.style import INK, PALETTE, SOFT, open_frame, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Per rule the field of `KSelection` that it looks at, what stands beside its panel, and its colour.
_PANELS = {
    "calinski-harabasz": ("calinski_harabasz", "Caliński-\nHarabasz", PALETTE[5]),
    "silhouette": ("silhouette", "simplified\nsilhouette", PALETTE[0]),
    "davies-bouldin": ("davies_bouldin", "Davies-\nBouldin", PALETTE[1]),
    "elbow": ("inertia", "inertia", PALETTE[2]),
    "separation": ("separated", f"share with\nc_rs > {criteria.SEPARATED}", PALETTE[4]),
}


def choice_picture(selection: criteria.KSelection | Mapping[int, float], own_rule: str = "") -> "Figure":
    """Draw the measures that are known over k with the k that their rules pick, and the distribution of c_rs for every k.

    Without c_rs the measures take the whole width. The right side has the form of Figure 5 of Dennis et al. (2021): a box per k over all pairs of its clusters, from
    the lower to the upper quartile, with whiskers from the 5th to the 95th percentile, and a line at c0. An algorithm with a rule
    of its own has one value for every k, of which it picks the least.
    """
    from matplotlib.ticker import MaxNLocator

    figure = page(10, 6)
    if isinstance(selection, criteria.KSelection):
        ks, ratios = selection.k, selection if len(selection.ratios) else None
        found = [(rule, *_PANELS[rule], criteria.choose(selection, rule)) for rule in criteria.measured(selection)]
        measures = [(rule, getattr(selection, field), *rest) for rule, field, *rest in found]
    else:
        ks, ratios, values = np.array([*selection]), None, np.array([*selection.values()])
        measures = [(own_rule, values, own_rule.upper(), PALETTE[0], int(values.argmin()))]
    grid = figure.add_gridspec(len(measures), 2, width_ratios=(1.0, 1.1))
    panels: list[Axes] = []
    for row, (rule, values, label, colour, best) in enumerate(measures):
        place = grid[row, :] if ratios is None else grid[row, 0]
        axes = figure.add_subplot(place, sharex=panels[0] if panels else None)
        _draw_measure(axes, ks, values, best, rule, colour)
        axes.set_ylabel(label, fontsize=9, color=INK)
        axes.tick_params(labelbottom=row == len(measures) - 1)
        panels.append(axes)
    panels[0].set_title("what the rules look at", fontsize=12, color=INK, loc="left")
    if ratios is not None:
        pairs = figure.add_subplot(grid[:, 1])
        _draw_ratios(pairs, ratios)
        panels.append(pairs)
    for axes in panels:
        open_frame(axes)
        axes.tick_params(labelsize=8, colors=SOFT)
        axes.yaxis.get_offset_text().set_fontsize(8)
        axes.set_xlim(ks.min() - 0.5, ks.max() + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    for axes in panels[len(measures) - 1 :]:
        axes.set_xlabel("number of clusters k", fontsize=9, color=INK)
    return figure


def _draw_measure(axes: "Axes", k: IntArray, values: FloatArray, best: int, rule: str, colour: str) -> None:
    """Draw one measure, with a mark and a line at the k that the rule picks."""
    axes.axvline(k[best], color=SOFT, linewidth=0.8, linestyle="--", zorder=1)
    axes.plot(k, values, color=colour, linewidth=1.4, marker="o", markersize=3, zorder=2, gid="measure")
    axes.plot(k[[best]], values[[best]], "D", color=colour, markeredgecolor=INK, markersize=7, zorder=3, gid="chosen")
    words = axes.text(1.0, 1.0, f"{rule}: k = {k[best]}", transform=axes.transAxes, ha="right", va="bottom")
    words.set(fontsize=9, color=INK, gid="rule")
    axes.margins(y=0.15)


def _draw_ratios(axes: "Axes", selection: criteria.KSelection) -> None:
    """Draw a box per k over the ratios of its pairs of clusters, and the line that the separation rule compares with."""
    axes.boxplot(
        [selection.ratios[selection.ratios_of == k] for k in np.unique(selection.ratios_of)],
        positions=np.unique(selection.ratios_of),
        whis=(5, 95),
        showfliers=False,
        manage_ticks=False,
        patch_artist=True,
        widths=0.6,
        boxprops={"facecolor": PALETTE[3], "edgecolor": SOFT, "linewidth": 0.8, "gid": "box"},
        medianprops={"color": INK, "linewidth": 1.2, "gid": "median"},
        whiskerprops={"color": SOFT, "linewidth": 0.8},
        capprops={"color": SOFT, "linewidth": 0.8},
    )
    axes.axhline(criteria.SEPARATED, color=INK, linewidth=0.9, linestyle="--", gid="c0")
    words = axes.text(
        1.01, criteria.SEPARATED, f"c0 = {criteria.SEPARATED}", transform=axes.get_yaxis_transform(), va="center"
    )
    words.set(fontsize=9, color=INK)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("c_rs of the pairs of clusters", fontsize=9, color=INK)
    axes.set_title("how far apart the clusters are", fontsize=12, color=INK, loc="left")
