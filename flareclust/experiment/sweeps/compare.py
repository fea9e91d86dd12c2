"""compare.html, the page that compares the cells of a study: mean and standard deviation over the seeds, comparable cells side by side.

Cells are comparable if all their axes but the first two (algorithm and partition) agree, so they have the same data and
k; in measures that look at distances also if their columns are scaled alike. The page needs no other file and
no script.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flareclust.experiment.reports.html import render
from flareclust.experiment.sweeps.clusters import clusters_side_by_side
from flareclust.experiment.sweeps.report import StudySummary, spread
from flareclust.experiment.sweeps.trials import Cell, TrialRun
from flareclust.plotting.style import PALETTE
from flareclust.protocol import registry

COMPARE = "compare.html"

#: Measures that say how good a clustering is, with what is better; others, such as the number of rounds, have no best.
_HIGHER = ("ari", "nmi", "purity", "accuracy", "simplified_silhouette")
_LOWER = ("l2", "mse_matched", "inertia", "davies_bouldin")
#: Measures of distances, which are others where columns are scaled.
_DISTANCES = ("inertia", "simplified_silhouette", "davies_bouldin")

#: Height of a line, and where its bars begin and how wide they are; the template has the latter two, too.
_ROW, _LEFT, _BARS = 22, 230, 330


def compare_page(name: str, found: StudySummary) -> str:
    """Return the page of a study of this name as HTML."""
    done, cells, ordered, units = found.done, found.cells, found.measures, _units(found.done)
    series = list(dict.fromkeys(map(_series, cells)))
    groups = [
        {
            "about": ", ".join(f"{axis} {value}" for axis, value in about),
            "charts": [
                chart
                for measure in ordered
                for chart in _charts(measure, [cell for cell in members if measure in cell.mean], units, series)
            ],
            "clusters": clusters_side_by_side(_by_rank(members, ordered), done, list(members[0].cell)[:2]),
        }
        for about, members in _groups(cells).items()
    ]
    return render(
        "compare.html",
        name=name,
        found=found,
        seeds=len({one.trial.seed for one in done}),
        groups=groups,
    )


def _groups(cells: Sequence[Cell]) -> dict[tuple[tuple[str, str], ...], list[Cell]]:
    """Return the cells by what they have in common: all axes but the first two."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(list(cell.cell.items())[2:]), []).append(cell)
    return groups


def _by_rank(cells: Sequence[Cell], ordered: Sequence[str]) -> list[Cell]:
    """Return the cells, the best by the first measure that has a better side first."""
    measure = next((name for name in ordered if name in (*_HIGHER, *_LOWER)), None)
    if measure is None:
        return list(cells)
    sign = -1.0 if measure in _HIGHER else 1.0
    return sorted(cells, key=lambda cell: sign * cell.mean[measure] if measure in cell.mean else math.inf)


def _units(done: Sequence[TrialRun]) -> dict[tuple[str, ...], str]:
    """Return how the columns of each cell were scaled, in words; nothing for those that were not."""
    units = {}
    for one in done:
        algorithm, own = one.trial.params.get("algorithm"), one.trial.params.get("params") or {}
        settings = {**registry.get(algorithm).parameters(), **own} if algorithm in registry.algorithms() else dict(own)
        scale = settings.get("scale", "none")
        units[tuple(one.trial.cell.values())] = "" if scale == "none" else f"of scaled columns ({scale})"
    return units


def _charts(
    measure: str, cells: Sequence[Cell], units: Mapping[tuple[str, ...], str], series: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the charts of a measure: one for all cells, or one for each unit."""
    by_unit: dict[str, list[Cell]] = {}
    for cell in cells:
        unit = units.get(tuple(cell.cell.values()), "") if measure in _DISTANCES else ""
        by_unit.setdefault(unit, []).append(cell)
    better = "; larger is better" if measure in _HIGHER else "; smaller is better" if measure in _LOWER else ""
    return [
        {"heading": " ".join([measure.replace("_", " "), unit]).strip() + better, **_chart(measure, some, series)}
        for unit, some in by_unit.items()
    ]


def _chart(measure: str, cells: Sequence[Cell], series: Sequence[str]) -> dict[str, Any]:
    """Return a drawing with a line per cell: what it is, its mean with a bar of the deviation, both in numbers."""
    low = min(cell.mean[measure] - cell.std[measure] for cell in cells)
    high = max(cell.mean[measure] + cell.std[measure] for cell in cells)
    width = (high - low) or abs(high) or 1.0
    best = _best(measure, cells)
    lines, previous, y = [], None, 0.0
    splits = [_split(cell) for cell in cells]
    for cell in sorted(cells, key=lambda cell: splits.index(_split(cell))):
        above = "" if (split := _split(cell)) == previous else split
        y, previous = y + _ROW * (2 if split != previous else 1), split
        name, mean, std = _series(cell), cell.mean[measure], cell.std[measure]
        left, middle, right = (
            f"{_LEFT + 8 + (_BARS - 16) * (value - low) / width:.1f}" for value in (mean - std, mean, mean + std)
        )
        lines.append(
            {
                "split": above,
                "split_y": f"{y - _ROW - 6:g}",
                "name": name,
                "short": name if len(name) <= 32 else name[:31] + "…",
                "numbers": spread(cell, measure),
                "trials": cell.n,
                "y": f"{y - _ROW / 2:g}",
                "text_y": f"{y - _ROW / 2 + 4:g}",
                "left": left,
                "mean": middle,
                "right": right,
                "colour": PALETTE[series.index(name) % len(PALETTE)],
                "best": cell is best,
            }
        )
    label = f"{measure.replace('_', ' ')} of {len(cells)} cells"
    return {"label": label, "height": _ROW * (len(cells) + len(set(splits))), "lines": lines}


def _best(measure: str, cells: Sequence[Cell]) -> Cell | None:
    """Return the cell with the best mean; None for measures without a better side, or of one cell alone."""
    if len(cells) < 2 or measure not in (*_HIGHER, *_LOWER):
        return None
    sign = -1.0 if measure in _LOWER else 1.0
    return max(cells, key=lambda cell: sign * cell.mean[measure] if math.isfinite(cell.mean[measure]) else -math.inf)


def _series(cell: Cell) -> str:
    return next(iter(cell.cell.values()), "")


def _split(cell: Cell) -> str:
    return next(iter(list(cell.cell.values())[1:2]), "all rows")
