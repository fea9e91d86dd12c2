"""Outcomes of clusters in words, tables and curves, for the report and the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, FloatArray
from flareclust.evaluation import profile_words
from flareclust.evaluation.outcomes import ClusterOutcomes, outcomes_of
from flareclust.experiment.plotting.style import cluster_colour
from flareclust.experiment.reports.html import cluster_cell
from flareclust.experiment.reports.table import Cell, Table, numbers

#: Size of the curves, and where their frame begins and ends, in the picture's own units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 574, 10, 330

#: Times at which numbers at risk are shown.
_TICKS = 6


@dataclass(frozen=True)
class OutcomeView:
    """What a view shows of outcomes.

    Attributes:
        title: what the outcome is.
        table: a line per cluster.
        tests: a sentence per test.
        notes: what to know before the numbers are used.
        curves: of times, what the template draws; None for other outcomes.
        at_risk: of times, rows at risk by cluster and time; None for other outcomes.
        unit: of times, "" where it is not known, and for other outcomes.
    """

    title: str
    table: Table
    tests: Sequence[str]
    notes: Sequence[str]
    curves: dict[str, Any] | None = None
    at_risk: Table | None = None
    unit: str = ""


def view_of_outcomes(arrays: Mapping[str, Array], row_name: str = "rows") -> OutcomeView | None:
    """Return what is shown of the outcomes in a result's arrays, whose rows are called so; None where it has none."""
    found = outcomes_of(arrays)
    if found is None:
        return None
    unit = f" ({found.unit})" if found.unit else ""
    tests = [test.sentence for test in found.tests()] or [f"no test: {found.why_no_test}"]
    notes = list(_notes(found, row_name))
    if found.form.kind == "time":
        title = f"Time until {found.name.replace('=', ' is ', 1)}{unit}"
        return OutcomeView(
            title, _survival_table(found, row_name), tests, notes, _curves(found), _at_risk(found), found.unit
        )
    table_of = _mean_table if found.form.kind == "number" else _share_table
    return OutcomeView(f"{found.name}{unit}", table_of(found, row_name), tests, notes)


def outcome_lines(arrays: Mapping[str, Array], row_name: str = "rows") -> Iterator[str | Table]:
    """Give the table and the sentences for a terminal; nothing for a result without outcomes."""
    view = view_of_outcomes(arrays, row_name)
    if view is not None:
        yield view.title
        yield view.table
        yield from view.tests
        yield from view.notes


def _notes(found: ClusterOutcomes, row_name: str) -> Iterator[str]:
    """Give what to know of the numbers, a sentence each."""
    said = [(found.rows == 0, f"too few {row_name} with a known outcome at each site to be counted")]
    if found.form.kind == "time":
        last = f"{found.form.times[-1]:g}{found.unit and f' {found.unit}'}"
        said += [(found.gone, f"nobody is there until {last}, so the share without the event is not known then")]
        calm = (found.rows > 0) & ~found.counts[1].any(axis=1) & (not found.changed)
        said += [(calm, "no event, so the share without it has no interval")]
    for where, what in said:
        if which := np.flatnonzero(where).tolist():
            yield f"{'clusters' if len(which) > 1 else 'cluster'} {', '.join(map(str, which))}: {what}"
    if found.form.kind in ("category", "ordered") and not found.changed:
        yield "each share is shown with its 95 % interval"
        parts = found.counts[0].sum(axis=0) / max(1, found.rows.sum())
        if found.tests() and (found.rows[:, None] * parts < 5).any():
            yield "some expected numbers are below 5, where the test is not reliable"
    if not found.changed:
        yield (
            "a small p says that outcomes differ between clusters, not why: clusters cause nothing, and what else differs between them, such "
            "as age, is not adjusted for"
        )


def _between(low: float, high: float, percent: bool = False) -> str:
    if not low < high:  # NaN, or values that are all alike
        return "–"  # noqa: RUF001
    show = profile_words.percent if percent else "{:.4g}".format
    return f"{show(low)} to {show(high)}"


def _table(found: ClusterOutcomes, row_name: str, heads: Sequence[str], lines: Sequence[Sequence[object]]) -> Table:
    """Return the table with a line per cluster: its rows, these columns, and last how many rows are in no outcome, where some are."""
    k, left_out = len(found.rows), found.not_counted
    last = ["not counted"] * bool(left_out.any())
    ends = [[f"{n:,}" for _ in last] for n in left_out]
    rows = [[cluster_cell(c, k), f"{n:,}", *lines[c], *ends[c]] for c, n in enumerate(found.rows)]
    counted = numbers(row_name + " (not exact)" * found.changed, *heads, *last)
    return Table([Cell("cluster"), *counted], rows, "became")


def _survival_table(found: ClusterOutcomes, row_name: str) -> Table:
    own, lines = found.table(), []
    for c, (rows, median, share) in enumerate(zip(own["rows"], own["median"], own["survival"], strict=True)):
        middle = ("not reached" if np.isinf(median) else f"{median:g}") if rows else "–"  # noqa: RUF001
        after = profile_words.percent(share) if np.isfinite(share) else "–"  # noqa: RUF001
        lines.append([f"{own['events'][c]:,}", middle, after, _between(own["lower"][c], own["upper"][c], percent=True)])
    unit = f" {found.unit}" if found.unit else ""
    median = f"median ({found.unit})" if unit else "median"
    heads = ("events", median, f"without it at {found.form.times[-1]:g}{unit}", "95 % interval")
    return _table(found, row_name, heads, lines)


def _share_table(found: ClusterOutcomes, row_name: str) -> Table:
    own = found.table()
    shown = found.values[1:] if len(found.values) == 2 else found.values
    lines: list[list[Cell]] = [[] for _ in found.rows]
    for c, value, share, low, high in zip(
        *(own[name] for name in ("cluster", "value", "share", "lower", "upper")), strict=True
    ):
        if value in shown:
            known = np.isfinite(share)
            interval = [_between(low, high, percent=True)] if known else []
            text = profile_words.percent(share) if known else "–"  # noqa: RUF001
            lines[c].append(Cell(text, lines=interval, line_kind="spread"))
    return _table(found, row_name, shown, lines)


def _mean_table(found: ClusterOutcomes, row_name: str) -> Table:
    own = found.table()
    lines = [
        [
            *(f"{own[name][c]:.4g}" if np.isfinite(own[name][c]) else "–" for name in ("mean", "sd")),  # noqa: RUF001
            _between(own["lower"][c], own["upper"][c]),
        ]
        for c in range(len(found.rows))
    ]
    return _table(found, row_name, ("mean", "standard deviation", "95 % interval of the mean"), lines)


def _ticks(found: ClusterOutcomes) -> list[int]:
    """Return the places of the times that are written below the curves."""
    return sorted({round(at) for at in np.linspace(0, len(found.form.times) - 1, _TICKS)})


def _at_risk(found: ClusterOutcomes) -> Table:
    places, k = _ticks(found), len(found.rows)
    heads = [
        Cell(f"at risk at ({found.unit})" if found.unit else "at risk at"),
        *numbers(*(f"{found.form.times[at]:g}" for at in places)),
    ]
    rows = [[cluster_cell(c, k), *(f"{found.at_risk[c, at]:,}" for at in places)] for c in range(k)]
    return Table(heads, rows)


def _curves(found: ClusterOutcomes) -> dict[str, Any]:
    """Return the steps of each cluster's curve and its band, as paths of an SVG, and the marks of both axes."""
    times, k, (low, high) = found.form.times, len(found.rows), found.bands
    x, lines = _LEFT + (_RIGHT - _LEFT) * times / times[-1], []
    for c in range(k):
        there = found.at_risk[c] > 0
        if not there.any():
            continue
        end = int(there.sum())
        upper, lower = (_steps(x[:end], side[c, :end]) for side in (high, low))
        band = f"M{'L'.join(upper)}L{'L'.join(reversed(lower))}Z" if upper and lower and not found.changed else ""
        path = f"M{'L'.join(_steps(x[:end], found.survival[c, :end]))}"
        lines.append({"path": path, "band": band, "colour": cluster_colour(c, k)})
    marks = [{"x": f"{x[at]:.1f}", "text": f"{times[at]:g}"} for at in _ticks(found)]
    shares = [{"y": f"{_BOTTOM - (_BOTTOM - _TOP) * s / 4:.1f}", "text": f"{25 * s} %"} for s in range(5)]
    return {"lines": lines, "marks": marks, "shares": shares}


def _steps(x: FloatArray, share: FloatArray) -> list[str]:
    """Return the corners of a curve that stays until its next time; from 1 at the time 0, while it is known."""
    corners, before = [(float(_LEFT), float(_TOP))], float(_TOP)
    for at, value in zip(x.tolist(), share.tolist(), strict=True):
        if not np.isfinite(value):
            corners.append((at, before))
            break
        height = _BOTTOM - (_BOTTOM - _TOP) * value
        corners += [(at, before)] if height == before else [(at, before), (at, height)]
        before = height
    heights = [None, *(height for _, height in corners), None]  # corners between two of their own height say nothing
    kept = [one for i, one in enumerate(corners) if not heights[i] == one[1] == heights[i + 2]]
    return [f"{at:.1f} {height:.1f}" for at, height in kept]
