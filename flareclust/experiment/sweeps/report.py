"""What a study came to, for people: tables of means and deviations, reasons of failures, progress while it runs."""

import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import floor, log10
from threading import Lock
from typing import Any

from rich.console import Console
from rich.progress import BarColumn

from flareclust._foundation.display import all_of
from flareclust._foundation.own_files import write_rows
from flareclust.experiment.reports.table import Cell as Head
from flareclust.experiment.reports.table import Table, markdown, numbers
from flareclust.experiment.reports.terminal import bar_of, table_of
from flareclust.experiment.sweeps.trials import Cell, TrialRun, by_cell

#: What the terminal shows, where it is there; the files have all measures.
_SHOWN = ("l2", "ari", "inertia", "centroids_found", "rounds")
_FIRST = (*_SHOWN[:3], "nmi", "purity", "accuracy", "mse_matched", "simplified_silhouette", "davies_bouldin")
_REASONS = 10
#: Deviations below this part of the mean are rounding.
_SAME = 1e-9


@dataclass(frozen=True)
class StudySummary:
    """What a study came to; its files, the terminal, `--json` and MLflow show of it what they have room for.

    Attributes:
        done: all trials.
        cells: what those of each cell came to together.
    """

    done: Sequence[TrialRun]
    cells: Sequence[Cell]

    @classmethod
    def of(cls, done: Sequence[TrialRun]) -> "StudySummary":
        """Return what trials came to."""
        return cls(done, by_cell(done))

    @property
    def axes(self) -> list[str]:
        """Return the names of what the cells range over."""
        return list(dict.fromkeys(name for cell in self.cells for name in cell.cell))

    @cached_property
    def measures(self) -> list[str]:
        """Return the names of all qualities that some cell has, the main ones first."""
        names = {name for cell in self.cells for name in cell.mean}
        return sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))

    @cached_property
    def reasons(self) -> list[tuple[str, int, str]]:
        """Return each different reason of failures, how many trials have it, and the first of them."""
        counts = Counter(str(one.error) for one in self.done if one.measured is None)
        first = {str(one.error): one.trial.name for one in reversed(self.done) if one.measured is None}
        return [(reason, count, first[reason]) for reason, count in counts.most_common()]

    @property
    def failed(self) -> int:
        """Return how many trials failed."""
        return sum(one.measured is None for one in self.done)

    @property
    def failure(self) -> str:
        """Return how many trials failed, in words: `3 of 240 trials failed`."""
        return f"{self.failed} of {len(self.done)} trials failed"

    def failures(self) -> str:
        """Return the failed trials in words, each different reason once; nothing if there are none."""
        if not self.failed:
            return ""
        lines = [f"{self.failure}:"]
        for reason, count, first in self.reasons[:_REASONS]:
            others = f" and {count - 1} more" if count > 1 else ""
            lines.append(f"- {first}{others}: {reason}")
        if len(self.reasons) > _REASONS:
            lines.append(f"- and {len(self.reasons) - _REASONS} other reasons")
        return "\n" + "\n".join(lines) + "\n"

    def notes(self) -> str:
        """Return the failed trials in words, and that trials are of several versions; nothing where neither is so."""
        versions = Counter(one.version for one in self.done if one.measured is not None)
        if len(versions) < 2:
            return self.failures()
        said = all_of([f"{version} ({count})" for version, count in sorted(versions.items())])
        return (
            f"{self.failures()}\nThe trials were run with several versions of flareclust, {said}: numbers may differ by the version. "
            "To run all of them with this one, choose another folder with --out, and another name for MLflow.\n"
        )

    def table(self, names: Sequence[str], most: int | None = None) -> Table:
        """Return a line per cell, the first `most`: its place on the axes, how many trials it has, mean ± standard deviation of measures."""
        heads = [*map(Head, self.axes), *numbers("trials", *(name.replace("_", " ") for name in names))]
        rows = [
            [*(cell.cell.get(axis, "") for axis in self.axes), cell.count, *(spread(cell, name) for name in names)]
            for cell in self.cells[:most]
        ]
        return Table(heads, rows)

    def markdown(self) -> str:
        """Return all measures as a Markdown table of mean ± standard deviation, one row per cell."""
        return markdown(self.table(self.measures), lambda text: text.replace("|", "\\|"))

    def values(self) -> list[dict[str, Any]]:
        """Return each cell as plain values by the names of columns: `algorithm`, `done`, `failed`, `l2_mean`, `l2_std`, ..."""
        rows = []
        for cell in self.cells:
            means = {f"{name}_mean": value for name, value in cell.mean.items()}
            stds = {f"{name}_std": value for name, value in cell.std.items()}
            rows.append({**cell.cell, "done": cell.n, "failed": cell.failed, **means, **stds})
        return rows

    def comma_separated(self) -> str:
        """Return `values` as comma-separated values with full precision."""
        text, values = io.StringIO(), [f"{name}_{what}" for name in self.measures for what in ("mean", "std")]
        heads = [*self.axes, "done", "failed", *values]
        write_rows(text, [heads, *([row.get(head, "") for head in heads] for row in self.values())])
        return text.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return counts, cells and reasons as plain values."""
        return {
            "trials": len(self.done),
            "done": len(self.done) - self.failed,
            "failed": self.failed,
            "resumed": sum(one.resumed for one in self.done),
            "cells": [one.to_json() for one in self.cells],
            "reasons": [{"reason": reason, "trials": count, "first": first} for reason, count, first in self.reasons],
        }


def print_sweep(done: Sequence[TrialRun], places: Sequence[str]) -> None:
    """Print the table on stdout, with the reasons of failed trials and where everything is."""
    found, console = StudySummary.of(done), Console()
    if not console.is_terminal:
        console = Console(width=240)  # a file or a pipe has no width to fit, and numbers must not be cut
    table = found.table([name for name in _SHOWN if name in found.measures])
    heads = [Head("centroids", "n") if head.text == "centroids found" else head for head in table.heads]
    console.print(table_of(*heads, rows=table.rows))
    for line in filter(None, (found.notes().strip("\n"), *places)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def comparable(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return cells of the same data and k together, by all their axes but the first two (algorithm and partition), in words."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(", ".join(f"{axis} {value}" for axis, value in list(cell.cell.items())[2:]), []).append(cell)
    return groups


def series(cell: Cell) -> str:
    """Return the value of the first axis, which has a mark or a line and a colour of its own."""
    return next(iter(cell.cell.values()), "")


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
    columns = "{task.completed} of {task.total} trials", BarColumn(30), "{task.description}"
    with bar_of(*columns, about="starting", total=total) as update:
        yield _SweepProgress(total, lambda n, text: update(completed=n, description=text))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
