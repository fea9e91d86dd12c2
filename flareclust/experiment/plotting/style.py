"""What all pictures have in common: colours, page, frame, and how they are saved.

Figures are made without pyplot, so nothing global is touched and threads may draw at the same time.
"""

import colorsys
import io
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Ten colours that stay apart under the common colour-vision deficiencies (M. Petroff, arXiv:2107.02270).
PALETTE = ("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd")
#: Of words and lines, and of those that matter less.
INK, SOFT = "#1a1a1a", "#555555"


def page(width: float, height: float) -> "Figure":
    """Return an empty white figure of so many inches at 150 dots per inch."""
    return _figure_class()(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")


@cache
def _figure_class() -> "type[Figure]":
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that a notebook shows although it was made without pyplot."""

        def _repr_png_(self) -> bytes:
            return png(self)

    return NotebookFigure


def png(figure: "Figure", dpi: int = 80) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def open_frame(axes: "Axes", sides: Iterable[str] = ("top", "right")) -> None:
    """Leave out these sides of the frame."""
    axes.spines[list(sides)].set_visible(False)


def headline(axes: "Axes", title: str, **how: Any) -> None:
    """Print the title of a picture above its axes, as it is (no mathematical notation)."""
    axes.set_title(title, fontsize=13, color=INK, loc="left", parse_math=False, **how)


def caption(figure: "Figure", words: str, size: float = 8) -> None:
    """Print what a picture shows below it, in so many points."""
    figure.supxlabel(words, fontsize=size, color=SOFT)


def colours(m: int) -> list[str]:
    """Return m colours: the palette while it lasts, then even steps of a colour map of rising lightness."""
    if m <= len(PALETTE):
        return list(PALETTE[:m])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 0.95, m))]


def cluster_colour(cluster: int, k: int) -> str:
    """Return the colour of one of k clusters; of more than the palette has, neighbours are far apart on the circle of hues."""
    if k <= len(PALETTE):
        return PALETTE[cluster]
    hue, lightness = cluster * 137.508 % 360, (0.38, 0.52, 0.64)[cluster % 3]
    parts = colorsys.hls_to_rgb(hue / 360, lightness, 0.6)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def ink_on(colour: str) -> str:
    """Return black or white, whichever is easier to read on a colour such as "#3f90da" (by its luminance as WCAG has it)."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return "white" if linear @ [0.2126, 0.7152, 0.0722] < 0.179 else INK


def shortened(name: str, width: int = 24) -> str:
    """Return a name that has room beside a picture."""
    return name if len(name) <= width else f"{name[: width - 1]}…"


def save(figure: "Figure", path: str | Path) -> Path:
    """Write a PNG without time stamp or program version: the same figure gives the same bytes; UserError for another suffix."""
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise UserError(f"path: expected a file name that ends in .png; got {target.name!r}.")
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # each further drawing would shift the axes a little
    figure.savefig(target, format="png", dpi=figure.dpi, facecolor="white", metadata={"Software": None})
    return target
