"""What a study came to, for people: tables of means and deviations, reasons of failures, progress while it runs."""

import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import floor, log10
from threading import Lock
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from flareclust._foundation.csv_text import write_rows
from flareclust.experiment.reports.table import Cell as Head
from flareclust.experiment.reports.table import Table, numbers
from flareclust.experiment.reports.table import markdown as as_markdown
from flareclust.experiment.reports.terminal import table_of
from flareclust.experiment.sweeps.trials import Cell, TrialRun, by_cell

#: What the terminal shows, where it is there; the files have all measures.
_SHOWN = ("l2", "ari", "inertia", "centroids_found", "rounds")
_FIRST = (*_SHOWN[:3], "nmi", "purity", "accuracy", "mse_matched", "simplified_silhouette", "davies_bouldin")
_REASONS = 10
#: Deviations below this part of the mean are rounding.
_SAME = 1e-9


def markdown(cells: Sequence[Cell]) -> str:
    """Return all measures as a Markdown table of mean ± standard deviation, one row per cell."""
    return as_markdown(cells_table(cells, measures(cells)), lambda text: text.replace("|", "\\|"))


def cells_table(cells: Sequence[Cell], names: Sequence[str]) -> Table:
    """Return a line per cell: its place on the axes, how many trials it has, mean ± standard deviation of these measures."""
    axes = _axes(cells)
    heads = [*map(Head, axes), *numbers("trials", *(name.replace("_", " ") for name in names))]
    rows = [
        [*(cell.cell.get(axis, "") for axis in axes), _count(cell), *(spread(cell, name) for name in names)]
        for cell in cells
    ]
    return Table(heads, rows)


def comma_separated(cells: Sequence[Cell]) -> str:
    """Return all measures as comma-separated values with full precision: `l2_mean`, `l2_std`, ..."""
    text = io.StringIO()
    heads = [f"{name}_{what}" for name in measures(cells) for what in ("mean", "std")]
    heads = [*_axes(cells), "done", "failed", *heads]
    write_rows(text, [heads, *([values_of(cell).get(head, "") for head in heads] for cell in cells)])
    return text.getvalue()


def values_of(cell: Cell) -> dict[str, Any]:
    """Return a cell as plain values by the names of columns: `algorithm`, `done`, `failed`, `l2_mean`, `l2_std`, ..."""
    parts = {"mean": cell.mean, "std": cell.std}
    values = {f"{name}_{what}": value for what, part in parts.items() for name, value in part.items()}
    return {**cell.cell, "done": cell.n, "failed": cell.failed, **values}


def print_sweep(done: Sequence[TrialRun], places: Sequence[str]) -> None:
    """Print the table on stdout, with the reasons of failed trials and where everything is."""
    cells = by_cell(done)
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)  # a file or a pipe has no width to fit, and numbers must not be cut
    names = [name for name in _SHOWN if name in measures(cells)]
    table = cells_table(cells, names)
    heads = [Head("centroids", "n") if head.text == "centroids found" else head for head in table.heads]
    console.print(table_of(*heads, rows=table.rows))
    for line in filter(None, (failures(done).strip("\n"), *places)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def summary(done: Sequence[TrialRun]) -> dict[str, Any]:
    """Return counts, cells and reasons as plain values, for `--json`."""
    cells = [
        {"cell": dict(cell.cell), "done": cell.n, "failed": cell.failed, "mean": dict(cell.mean), "std": dict(cell.std)}
        for cell in by_cell(done)
    ]
    failed = sum(one.measured is None for one in done)
    return {
        "trials": len(done),
        "done": len(done) - failed,
        "failed": failed,
        "resumed": sum(one.resumed for one in done),
        "cells": cells,
        "reasons": [{"reason": reason, "trials": count, "first": first} for reason, count, first in reasons(done)],
    }


def reasons(done: Sequence[TrialRun]) -> list[tuple[str, int, str]]:
    """Return each different reason of failures, how many trials have it, and the first of them."""
    counts = Counter(str(one.error) for one in done if one.measured is None)
    first = {str(one.error): one.trial.name for one in reversed(done) if one.measured is None}
    return [(reason, count, first[reason]) for reason, count in counts.most_common()]


def measures(cells: Sequence[Cell]) -> list[str]:
    """Return the names of all qualities that some cell has, the main ones first."""
    names = {name for cell in cells for name in cell.mean}
    return sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))


def spread(cell: Cell, name: str) -> str:
    """Return `mean ± std` with as many digits as the deviation bears: `13,371 ± 412`, `8.939 ± 0.021 e12`."""
    if name not in cell.mean:
        return "-"
    mean, std = cell.mean[name], cell.std[name]
    size = max(abs(mean), std)
    std = 0.0 if std <= _SAME * size else std  # equal values, added up in floating point
    power = floor(log10(size)) if size else 0
    scaled = power >= 6 or power <= -4
    unit = 10.0**power if scaled else 1.0
    last = floor(log10(std / unit)) - 1 if std else floor(log10(size / unit)) - 4 if size / unit % 1 else 0
    digits = min(max(-last, 0), 6)
    text = f"{mean / unit:,.{digits}f} ± {std / unit:,.{digits if std else 0}f}"
    return f"{text} e{power}" if scaled else text


class _SweepProgress:
    """Counts trials and says how long the rest will take, going by those that were run now; call it with each.

    Attributes:
        n: trials that are over.
    """

    def __init__(self, total: int, show: Callable[[int, str], None]) -> None:
        self.total, self.n, self.failed, self.resumed = total, 0, 0, 0
        self._show, self._started, self._lock = show, time.monotonic(), Lock()

    def __call__(self, done: TrialRun) -> None:
        """Count a trial that is over, and show where things are."""
        with self._lock:
            self.n += 1
            self.failed += done.measured is None
            self.resumed += done.resumed
            run = self.n - self.resumed
            rest = (time.monotonic() - self._started) / run * (self.total - self.n) if run else 0.0
            failed = f"{self.failed} failed, " if self.failed else ""
            self._show(self.n, f"{failed}{_duration(rest)} left" if run else "done before")


@contextmanager
def sweep_progress(total: int) -> Iterator[_SweepProgress]:
    """Show on stderr how far a study is: a bar on a terminal, else a line for every tenth of it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        tenths = {-(-total * tenth // 10) for tenth in range(1, 11)}

        def line(n: int, text: str) -> None:
            if n in tenths:
                print(f"{n} of {total} trials, {text}", file=sys.stderr, flush=True)

        yield _SweepProgress(total, line)
        return
    columns = (TextColumn("{task.completed} of {task.total} trials"), BarColumn(30), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        yield _SweepProgress(total, lambda n, text: bar.update(task, completed=n, description=text))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def failures(done: Sequence[TrialRun]) -> str:
    """Return the failed trials in words, each different reason once; nothing if there are none."""
    found = reasons(done)
    if not found:
        return ""
    lines = [f"{sum(count for _, count, _ in found)} of {len(done)} trials failed:"]
    for reason, count, first in found[:_REASONS]:
        others = f" and {count - 1} more" if count > 1 else ""
        lines.append(f"- {first}{others}: {reason}")
    if len(found) > _REASONS:
        lines.append(f"- and {len(found) - _REASONS} other reasons")
    return "\n" + "\n".join(lines) + "\n"


def _axes(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell.cell))


def _count(cell: Cell) -> str:
    return f"{cell.n} of {cell.n + cell.failed}" if cell.failed else str(cell.n)
