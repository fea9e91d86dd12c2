"""HTML pages that stand alone: templates whose values are escaped, and the cells that only they show."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.display import number_or_dash, printable, rounded
from flareclust.evaluation import profile_words
from flareclust.experiment.plotting.style import cluster_colour
from flareclust.experiment.reports.table import Bar, Cell

if TYPE_CHECKING:
    from jinja2 import Environment

#: Standard deviations from which on a cell has the full colour.
_FULL = 2.0

#: With more clusters than this, their numbers have no room in a bar on a phone.
_MANY = 12


def render(template: str, **values: object) -> str:
    """Return a page of a template in `templates`; every value in it is escaped, and reads as its text."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("flareclust.experiment.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": profile_words.percent, "number_or_dash": number_or_dash}
    environment.filters["capitalised"] = lambda sentence: f"{sentence[:1].upper()}{sentence[1:]}"
    return environment


def cluster_cell(cluster: int, k: int, kind: str = "") -> Cell:
    """Return the cell with a cluster's name and colour."""
    return Cell(f"cluster {cluster}", kind, swatch=cluster_colour(cluster, k))


def tinted(words: object, z: float, hint: str = "", inner: str = "") -> Cell:
    """Return a cell that is red above and blue below the mean of all rows, the more the further; grey where that is not known."""
    if not np.isfinite(z):
        return Cell(words, "n", "background:#eee")
    strength = min(abs(z) / _FULL, 1.0)
    r, g, b = (round(255 + (c - 255) * strength) for c in ((214, 96, 77) if z > 0 else (67, 147, 195)))
    return Cell(words, "n", f"background:rgb({r},{g},{b})", hint, inner=inner)


def stacked(rows: Sequence[int]) -> Bar:
    """Return a bar of the clusters' shares of rows, with their numbers, and how many rows there are, where these have room."""
    k, total, parts = len(rows), max(sum(rows), 1), []
    for c, n in enumerate(rows):
        share, said = n / total, f"{n:,}"
        if n:
            style = f"width:{100 * share:.2f}%;background:{cluster_colour(c, k)}"
            text, more = (str(c), f": {said}") if share >= 0.06 else ("", "")
            hint = f"cluster {c}: {said} ({rounded(100 * share, 1)} %)"
            parts.append({"text": text, "more": more, "style": style, "hint": hint})
    return Bar(parts, k > _MANY)
