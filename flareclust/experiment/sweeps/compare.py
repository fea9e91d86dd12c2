"""The page compare.html of a study: mean and standard deviation over the seeds, comparable cells side by side.

Cells are comparable if all their axes but the first two (algorithm and partition) agree, so they have the same data and
k; in measures that look at distances also if their columns are scaled alike. The page needs no other file and
no script.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

from flareclust.experiment.sweeps.clusters import STYLE, clusters_side_by_side
from flareclust.experiment.sweeps.report import reasons, spread
from flareclust.experiment.sweeps.trials import Cell, TrialRun, by_cell
from flareclust.plotting.style import INK, PALETTE, SOFT
from flareclust.protocol import registry

COMPARE = "compare.html"

#: Measures that say how good a clustering is, with what is better; others, such as the number of rounds, have no best.
_HIGHER = ("ari", "nmi", "purity", "accuracy", "simplified_silhouette")
_LOWER = ("l2", "mse_matched", "inertia", "davies_bouldin")
#: Measures of distances, which are others where columns are scaled.
_DISTANCES = ("inertia", "simplified_silhouette", "davies_bouldin")

_ROW, _LEFT, _BARS, _RIGHT = 22, 230, 330, 170
_STYLE = (
    f"body{{font:14px/1.5 system-ui,sans-serif;color:{INK};max-width:780px;margin:1.5em auto;padding:0 1em}}"
    "h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #ccc}h3{font-size:1em;margin-bottom:0}"
    "svg{width:100%;height:auto;display:block}figure{margin:0 0 1em;break-inside:avoid}"
    f"p.note{{color:{SOFT}}}div.failed{{border-left:4px solid {PALETTE[2]};padding-left:.8em}}"
)


def compare_page(name: str, done: Sequence[TrialRun], ordered: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        name: of the study.
        done: what all trials came to.
        ordered: names of the measures, the main ones first.
    """
    cells, units = by_cell(done), _units(done)
    series = list(dict.fromkeys(map(_series, cells)))
    seeds = len({one.trial.seed for one in done})
    parts = [
        f"<h1>{escape(name)}</h1>",
        f"<p>{len(done)} trials, {len(cells)} cells, {seeds} {'seed' if seeds == 1 else 'seeds'}.</p>",
        _failed(done),
    ]
    for about, members in _groups(cells).items():
        if about:
            parts.append(f"<h2>{escape(', '.join(f'{axis} {value}' for axis, value in about))}</h2>")
        for measure in ordered:
            parts += _charts(measure, [cell for cell in members if measure in cell.mean], units, series)
        parts.append(clusters_side_by_side(_by_rank(members, ordered), done, list(members[0].cell)[:2]))
    note = "Marks are means over the seeds, bars one standard deviation to each side. The best mean is bold."
    parts.append(f'<p class="note">{note}</p>')
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    title = f"<title>{escape(name)}</title><style>{_STYLE}{STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}{title}</head><body>{"".join(parts)}</body></html>\n'


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
) -> list[str]:
    """Return the charts of a measure: one for all cells, or one for each unit."""
    by_unit: dict[str, list[Cell]] = {}
    for cell in cells:
        unit = units.get(tuple(cell.cell.values()), "") if measure in _DISTANCES else ""
        by_unit.setdefault(unit, []).append(cell)
    better = "; larger is better" if measure in _HIGHER else "; smaller is better" if measure in _LOWER else ""
    return [
        f"<figure><h3>{escape(' '.join([measure.replace('_', ' '), unit]).strip())}{better}</h3>{_chart(measure, some, series)}</figure>"
        for unit, some in by_unit.items()
    ]


def _chart(measure: str, cells: Sequence[Cell], series: Sequence[str]) -> str:
    """Return a drawing with a line per cell: what it is, its mean with a bar of the deviation, both in numbers."""
    low = min(cell.mean[measure] - cell.std[measure] for cell in cells)
    high = max(cell.mean[measure] + cell.std[measure] for cell in cells)
    width = (high - low) or abs(high) or 1.0
    best = _best(measure, cells)
    lines, previous = [], None
    height = _ROW * (len(cells) + len({_split(cell) for cell in cells}))
    y = 0.0
    for cell in sorted(cells, key=lambda cell: [_split(c) for c in cells].index(_split(cell))):
        if (split := _split(cell)) != previous:
            y, previous = y + _ROW, split
            lines.append(f'<text x="0" y="{y - 6:g}" fill="{SOFT}">{escape(split)}</text>')
        y += _ROW
        mean, std = cell.mean[measure], cell.std[measure]
        places = [_LEFT + 8 + (_BARS - 16) * (value - low) / width for value in (mean - std, mean, mean + std)]
        lines.append(
            _line(cell, places, y - _ROW / 2, series.index(_series(cell)), spread(cell, measure), cell is best)
        )
    size = f'viewBox="0 0 {_LEFT + _BARS + _RIGHT} {height:g}"'
    words = escape(f"{measure.replace('_', ' ')} of {len(cells)} cells")
    return f'<svg {size} font-size="13" role="img" aria-label="{words}">{"".join(lines)}</svg>'


def _line(cell: Cell, places: Sequence[float], y: float, number: int, numbers: str, best: bool) -> str:
    left, mean, right = places
    colour, weight = PALETTE[number % len(PALETTE)], ' font-weight="bold"' if best else ""
    name = _series(cell)
    short = name if len(name) <= 32 else name[:31] + "…"
    return (
        f"<g{weight}><title>{escape(name)}: {escape(numbers)}, {cell.n} trials</title>"
        f'<text x="12" y="{y + 4:g}">{escape(short)}</text>'
        f'<line x1="{_LEFT}" x2="{_LEFT + _BARS}" y1="{y:g}" y2="{y:g}" stroke="#e5e5e5"/>'
        f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:g}" y2="{y:g}" stroke="{colour}" stroke-width="3"/>'
        f'<circle cx="{mean:.1f}" cy="{y:g}" r="4.5" fill="{colour}"/>'
        f'<text x="{_LEFT + _BARS + 12}" y="{y + 4:g}">{escape(numbers)}</text></g>'
    )


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


def _failed(done: Sequence[TrialRun]) -> str:
    found = reasons(done)
    if not found:
        return ""
    lines = "".join(f"<li>{escape(first)} ({n} trials): {escape(reason)}</li>" for reason, n, first in found[:10])
    return (
        f'<div class="failed"><b>{sum(n for _, n, _ in found)} of {len(done)} trials failed</b><ul>{lines}</ul></div>'
    )
