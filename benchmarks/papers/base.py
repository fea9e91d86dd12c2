"""What a re-run of a paper's table or figure is: an entry that makes trials, has them run, and writes a report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What stands where the paper has no value, or we have none.
NOTHING = "-"

#: Trials that run side by side.
WORKERS = 2

#: Seeds of a full study and of a quick one.
SEEDS, QUICK_SEEDS = 10, 2


@dataclass(frozen=True)
class Line:
    """One line of a report's table.

    Attributes:
        cells: what it is about: `{"data": "s1", "split": "iid", "method": "feca"}`; the keys are column headings.
        paper: the paper's value as it is printed there, `NOTHING` where it has none.
        ours: ours in the same form, with its standard deviation where the paper's has one.
        reading: how the paper was read for it, and whether the two agree.
    """

    cells: Mapping[str, str]
    paper: str
    ours: str
    reading: str = ""


@dataclass(frozen=True)
class Report:
    """What an entry came to. An entry fills in the first six; `run_entry` the others.

    Attributes:
        name: of the entry.
        title: one line.
        lines: the table.
        figure: made without pyplot, of results only (never rows of a data set that somebody owns); or None.
        notes: what does not reproduce and why, and what else a reader must know; a plain sentence or two each.
        about: what was run and what the columns hold, a short paragraph.
        seeds: how many.
        seconds: wall time.
        failed: how many trials failed; the first reason is among the notes.
        quick: whether fewer seeds and smaller data were used.
    """

    name: str
    title: str
    lines: Sequence[Line]
    figure: "Figure | None" = None
    notes: Sequence[str] = ()
    about: str = ""
    seeds: int = 0
    seconds: float = 0.0
    failed: int = 0
    quick: bool = False


@dataclass(frozen=True)
class Study:
    """How entries are to be run. An entry calls `done` or `cells` once: each call is a study of its own to a runner.

    Attributes:
        seeds: how many seeds, from 0.
        quick: whether to use smaller data or fewer settings where an entry is slow.
        runner: runs the trials.
        features: an npz with a user's own features `X` (n, d) and classes `y` (n,), for entries that can use it.
    """

    seeds: int = SEEDS
    quick: bool = False
    runner: study_trials.Runner = study_trials.run_plain
    features: Path | None = None

    def done(self, trials: Sequence[study_trials.Trial]) -> list[study_trials.TrialRun]:
        """Run the trials; return what each came to, in their order."""
        return self.runner(trials)

    def cells(self, trials: Sequence[study_trials.Trial]) -> list[study_trials.Cell]:
        """Run the trials; return means and standard deviations per cell, in the order of their first trials."""
        return study_trials.by_cell(self.done(trials))


@dataclass(frozen=True)
class Entry:
    """One or several tables and figures of a paper that come from the same runs.

    Attributes:
        name: `<paper>-table1`, `<paper>-figure5`, ...: what a user types.
        covers: further names by which it is found: tables and figures made from the same runs.
        title: one line.
        run: makes the report.
        extra: of the package, that it needs; None for none.
    """

    name: str
    covers: tuple[str, ...]
    title: str
    run: Callable[[Study], Report] = field(repr=False)
    extra: str | None = None

    @property
    def paper(self) -> str:
        """Return the paper's short name: `feca`."""
        return self.name.partition("-")[0]


def run_entry(entry: Entry, study: Study) -> Report:
    """Run an entry, measure its time and count what failed."""
    failures: list[study_trials.TrialRun] = []

    def counted(trials: Sequence[study_trials.Trial]) -> list[study_trials.TrialRun]:
        done = study.runner(trials)
        failures.extend(one for one in done if one.measured is None)
        return done

    started = perf_counter()
    report = entry.run(replace(study, runner=counted))
    notes = list(report.notes)
    if failures:
        notes.append(f"{len(failures)} runs failed; the first, {failures[0].trial.name}: {failures[0].error}")
    return replace(
        report,
        name=entry.name,
        notes=notes,
        seeds=report.seeds or study.seeds,  # an entry may use fewer, and says so
        seconds=perf_counter() - started,
        failed=len(failures),
        quick=study.quick,
    )


# ---- what the tables are written with ----


def find_cell(cells: Sequence[study_trials.Cell], **wanted: str) -> study_trials.Cell | None:
    """Return the first cell that has these values, or None."""
    return next((cell for cell in cells if all(cell.cell.get(key) == value for key, value in wanted.items())), None)


def mean_std(cell: study_trials.Cell | None, metric: str, digits: int = 1, scale: float = 1.0) -> str:
    """Return `mean ± std` of a metric divided by `scale`; `NOTHING` where no trial has it."""
    if cell is None or metric not in cell.mean:
        return NOTHING
    return f"{cell.mean[metric] / scale:.{digits}f} ± {cell.std[metric] / scale:.{digits}f}"


def mean_only(cell: study_trials.Cell | None, metric: str, digits: int = 2, scale: float = 1.0) -> str:
    """Return the mean of a metric divided by `scale`; `NOTHING` where no trial has it."""
    return NOTHING if cell is None or metric not in cell.mean else f"{cell.mean[metric] / scale:.{digits}f}"


@dataclass(frozen=True)
class Value:
    """A mean and a standard deviation as a paper prints them.

    Attributes:
        mean: the mean.
        std: population standard deviation over `n` runs; None where none is printed.
        digits: behind the point, as printed.
        n: number of runs.
    """

    mean: float
    std: float | None = None
    digits: int = 1
    n: int = 10

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f}{spread}"


def agreement(paper: Value | None, cell: study_trials.Cell | None, metric: str, scale: float = 1.0) -> str:
    """Say in a few words whether our mean is the paper's: "agrees", "lower" or "higher"; nothing where one is missing.

    They agree where the means differ by at most two standard errors of their difference and what rounding can do.
    Standard errors are those of the means over the seeds (Welch); a paper's missing deviation is taken to be ours.
    """
    if paper is None or cell is None or metric not in cell.mean:
        return ""
    mean, std = cell.mean[metric] / scale, cell.std[metric] / scale
    theirs = std if paper.std is None else paper.std
    # Population deviations estimate a variance too small by (n - 1) / n.
    error = np.sqrt(theirs**2 / max(paper.n - 1, 1) + std**2 / max(cell.n - 1, 1))
    if abs(mean - paper.mean) <= 2 * error + 0.5 * 10.0**-paper.digits:
        return "agrees"
    return "lower" if mean < paper.mean else "higher"


def agreements(
    papers: Sequence[Value | None], cell: study_trials.Cell | None, metrics: Sequence[str], scale: float = 1.0
) -> str:
    """Return `agreement` of several metrics at once: that of the first that differs, else "agrees", else nothing."""
    words = [agreement(paper, cell, metric, scale) for paper, metric in zip(papers, metrics, strict=True)]
    return next((word for word in words if word in ("lower", "higher")), "agrees" if "agrees" in words else "")


def reading(*parts: str) -> str:
    """Return what stands in a line's last column: the settings, then whether it agrees, where that is known."""
    return "; ".join(part for part in parts if part)


def with_found(text: str, cell: study_trials.Cell | None) -> str:
    """Return `text` with the mean number of centroids found, which an l2 must never be read without."""
    if cell is None or "centroids_found" not in cell.mean:
        return text
    return f"{text}, {cell.mean['centroids_found']:.1f}".removesuffix(".0") + " found"
