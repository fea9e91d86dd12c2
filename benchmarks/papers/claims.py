"""What a paper's text says of a comparison, where its figure has no numbers, and whether ours bears it out."""

from collections.abc import Mapping, Sequence
from math import hypot, isnan, sqrt
from typing import Literal

from benchmarks.papers.base import find_cell, reading
from flareclust.experiment.sweeps import trials as study_trials

#: Where a mean is said to be: near another, below it or above it; None where nothing is said.
Side = Literal["near", "below", "above"] | None


def value(cell: study_trials.Cell | None, metric: str) -> float:
    """Return the mean of a metric, NaN where there is none."""
    return float("nan") if cell is None else cell.mean.get(metric, float("nan"))


def spread(cell: study_trials.Cell | None, metric: str) -> float:
    """Return the standard deviation of a metric, 0 where there is none."""
    return 0.0 if cell is None else cell.std.get(metric, 0.0)


def verdict(gap: float, side: Side, close: float = 0.0, error: float = 0.0) -> str:
    """Return "agrees", "lower", "higher" or "undecided" for a gap to what is said; nothing where nothing is said.

    Args:
        gap: ours less what it is compared with.
        side: what is said of it.
        close: how far "near" reaches, in the unit of the gap.
        error: the gap's standard error; "below" and "above" are undecided within two of them.
    """
    match side:
        case "near":
            agrees = abs(gap) <= close
        case None:
            return ""
        case _ if abs(gap) <= 2 * error:
            return "undecided"
        case _:
            agrees = (gap > 0) == (side == "above")
    return "agrees" if agrees else "lower" if gap < 0 else "higher"


def compare(
    cell: study_trials.Cell | None,
    other: study_trials.Cell | None,
    metric: str,
    side: Side = None,
    close: float = 0.0,
    digits: int = 3,
) -> str:
    """Return how far a mean is from that of another cell, and whether that is what is said; nothing where one lacks."""
    gap = value(cell, metric) - value(other, metric)
    if cell is None or other is None or isnan(gap):
        return ""
    name = other.cell.get("method", "the other")
    return reading(f"{gap:+.{digits}f} to {name}", verdict(gap, side, close, standard_error(cell, other, metric)))


def standard_error(cell: study_trials.Cell, other: study_trials.Cell, metric: str) -> float:
    """Return the standard error of the difference of two means over seeds."""
    # Population deviations estimate a variance too small by (n - 1) / n.
    return hypot(*(spread(one, metric) / sqrt(max(one.n - 1, 1)) for one in (cell, other)))


def best_of(
    cells: Sequence[study_trials.Cell], group: Mapping[str, str], names: Sequence[str], metric: str, key: str = "method"
) -> study_trials.Cell | None:
    """Return the cell with the highest mean among those of a group that have one of these names; None without any."""
    found = [find_cell(cells, **{**group, key: name}) for name in names]
    known = [cell for cell in found if cell is not None and metric in cell.mean]
    return max(known, key=lambda cell: cell.mean[metric], default=None)
