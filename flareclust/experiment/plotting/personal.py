"""A picture of personalised models: the accuracy of the devices after each round."""

from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.experiment.plotting.style import INK, PALETTE, caption, headline, open_frame, page

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve(accuracy: FloatArray, method: str) -> "Figure":
    """Draw the mean accuracy over the devices, and the band in which the middle half of the devices lies.

    Accuracies (rounds, m) are from 0 to 1; NaN where a device was not tested.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = page(7, 4)
    axes = figure.add_subplot(1, 1, 1)
    rounds = 1 + np.flatnonzero(~np.isnan(accuracy).all(axis=1))
    known = accuracy[rounds - 1]
    low, high = np.nanquantile(known, (0.25, 0.75), axis=1)
    marker = "o" if len(rounds) == 1 else None  # a line of one point is not seen
    axes.plot(rounds, np.nanmean(known, axis=1), color=PALETTE[0], linewidth=1.6, marker=marker, gid="mean")
    axes.fill_between(rounds, low, high, color=PALETTE[0], alpha=0.2, linewidth=0, gid="half")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("round", color=INK)
    axes.set_ylabel("accuracy on held-out rows", color=INK)
    open_frame(axes)
    headline(axes, f"{method}: {100 * np.nanmean(accuracy[-1]):.1f} % after {len(accuracy)} rounds")
    caption(figure, f"mean over {accuracy.shape[1]} devices, and the band of the middle half of them")
    return figure
