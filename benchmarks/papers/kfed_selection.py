"""k-FED, figure 4: the clients of a round of federated averaging at random, by loss, and by loss and clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, SEEDS, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import compare, value
from benchmarks.papers.selection_data import CHARACTERS, CONTEXT, PIECE, STRIDE, Population, speakers, two_classes
from benchmarks.papers.selection_settings import Settings
from flareclust._foundation.extras import require
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray
from flareclust.core.client_selection import METHODS, POW_D, POW_D_KFED, RANDOM
from flareclust.experiment.trials import Cell, Trial, TrialResult, TrialRun, by_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Seeds of a study with the usual number of them: each takes minutes, and the order of the curves shows with five.
MOST_SEEDS = 5
#: Rounds that an accuracy is the mean of: those of single rounds jump where clients differ.
MEAN_OF = 5
#: Rounds at the end that the final accuracies are the means of.
LAST = 10
#: The target: this share of what random selection reaches in the end.
SHARE = 0.95
#: What the text of the paper says of the variance over devices on FEMNIST, in percent of that of random selection.
VARIANCE = "35 % below random, on FEMNIST"

_making = Lock()


@dataclass(frozen=True)
class Setting:
    """A population of devices and how a model is trained on it.

    Attributes:
        data: "mnist" or "shakespeare".
        devices: how many there are.
        rows: of all devices, where that is a choice.
        training: see there.
    """

    data: str
    devices: int
    rows: int | None
    training: Settings

    @property
    def cell(self) -> dict[str, str]:
        """Return what its lines are found by."""
        return {"data": self.data, "d": str(self.training.d)}

    def population(self, seed: int) -> Population:
        """Return the devices of a seed."""
        rng = stream(seed, 0, "partition")
        return speakers(self.devices, rng) if self.rows is None else two_classes(self.devices, self.rows, rng)


def settings(quick: bool) -> list[Setting]:
    """Return the settings of the figure; they were chosen with seeds 100 and 101, which are none of its own."""
    digits = Settings(rounds=100, m=10, d=20, updates=10, batch=32, lr=0.05, k=10, k_local=2)
    letters = Settings(rounds=60, m=10, d=20, updates=20, batch=32, lr=0.5, k=10, k_local=4)
    if quick:
        return [Setting("mnist", 60, 4_000, replace(digits, rounds=15))]
    mnist = Setting("mnist", 500, 30_000, digits)
    return [mnist, replace(mnist, training=replace(digits, d=50)), Setting("shakespeare", 109, None, letters)]


def figure4(study: Study) -> Report:
    """Train with the three methods, and compare the rounds that they need."""
    require("deep", "the figure on client selection")
    chosen, seeds = settings(study.quick), min(study.seeds, MOST_SEEDS) if study.seeds == SEEDS else study.seeds
    trials = [_trial(one, method, seed) for one in chosen for method in METHODS for seed in range(seeds)]
    done = study.done(trials)
    targets = {one: _target(done, one) for one in chosen}
    cells = by_cell([_with_rounds(run, targets[one]) for one in chosen for run in _of(done, one)])
    return Report(
        "kfed-figure4",
        "k-FED, Figure 4: client selection",
        [line for one in chosen for line in _lines(cells, one, targets[one])],
        _picture(done, targets),
        [note for one in chosen for note in _notes(cells, one, targets[one])],
        _about(chosen),
        seeds=seeds,
    )


# ---- the runs ----


def _trial(setting: Setting, method: str, seed: int) -> Trial:
    def measure() -> TrialResult:
        from benchmarks.papers.selection_training import run

        # The clusters do not depend on d: settings that differ by it alone have the same.
        population, clusters = _prepared(
            setting.data, setting.devices, setting.rows, seed, replace(setting.training, d=1)
        )
        course = run(population, method, setting.training, seed, clusters)
        final = {
            "accuracy": float(course.accuracy[-LAST:].mean()),
            "variance": float(course.devices[-LAST:].mean(axis=0).var()),
            "clusters": float(course.clusters.mean()),
        }
        rounds = [{"round": number, "accuracy": float(one)} for number, one in enumerate(course.accuracy, start=1)]
        return TrialResult(final, {}, rounds)

    params = {"data": setting.data, "devices": setting.devices, "rows": setting.rows, **asdict(setting.training)}
    return Trial({**setting.cell, "method": method}, seed, {**params, "method": method}, measure)


def _prepared(
    data: str, devices: int, rows: int | None, seed: int, training: Settings
) -> tuple[Population, list[list[int]]]:
    """Return the devices of a seed and their clusters; the methods share them, and the trials that run side by side wait."""
    with _making:
        return _make(data, devices, rows, seed, training)


@cache
def _make(
    data: str, devices: int, rows: int | None, seed: int, training: Settings
) -> tuple[Population, list[list[int]]]:
    from benchmarks.papers.selection_training import clusters_of

    population = Setting(data, devices, rows, training).population(seed)
    clusters = clusters_of(population, training, seed)
    return replace(population, described={}), clusters  # which is as large as the rows, and all seeds are kept


def _of(done: Sequence[TrialRun], setting: Setting, method: str | None = None) -> list[TrialRun]:
    wanted = setting.cell if method is None else {**setting.cell, "method": method}
    return [run for run in done if wanted.items() <= run.trial.cell.items()]


def _curves(done: Sequence[TrialRun], setting: Setting, method: str) -> FloatArray:
    """Return the accuracies of each run that did not fail, means of `MEAN_OF` rounds, (seeds, rounds - MEAN_OF + 1)."""
    runs = [run.measured for run in _of(done, setting, method) if run.measured is not None]
    return np.array([_smooth([one["accuracy"] for one in measured.rounds]) for measured in runs])


def _smooth(accuracies: Sequence[float]) -> FloatArray:
    return np.convolve(accuracies, np.ones(MEAN_OF) / MEAN_OF, "valid")


def _target(done: Sequence[TrialRun], setting: Setting) -> float:
    found = [run.measured.final["accuracy"] for run in _of(done, setting, RANDOM) if run.measured is not None]
    return SHARE * float(np.mean(found)) if found else float("nan")  # type: ignore[arg-type]


def _with_rounds(run: TrialRun, target: float) -> TrialRun:
    """Return a run with the first round that reaches the target, or one more than there are, and whether it does."""
    if run.measured is None:
        return run
    found = _smooth([one["accuracy"] for one in run.measured.rounds]) >= target
    needed = float(np.argmax(found) + MEAN_OF) if found.any() else float(len(run.measured.rounds) + 1)
    final = {**run.measured.final, "rounds_needed": needed, "reached": float(found.any())}
    return replace(run, measured=replace(run.measured, final=final))


# ---- the report ----

#: Measures: what a line calls them, digits, unit, what is said of pow-d, and of pow-d with k-FED's clusters.
_MEASURES: Mapping[str, tuple[str, int, float, str, str]] = {
    "rounds_needed": ("rounds to the target", 1, 1.0, "fewer than random", "fewer than pow-d"),
    "variance": ("variance over devices, 1e-4", 1, 1e-4, "below random", VARIANCE),
    "accuracy": ("accuracy in the end, percent", 1, 0.01, NOTHING, NOTHING),
}


def _lines(cells: Sequence[Cell], setting: Setting, target: float) -> list[Line]:
    lines = []
    for measure, (heading, digits, unit, of_pow_d, of_kfed) in _MEASURES.items():
        for method in METHODS:
            cell = find_cell(cells, **setting.cell, method=method)
            before = POW_D if (method, measure) == (POW_D_KFED, "rounds_needed") else RANDOM
            other = find_cell(cells, **setting.cell, method=before)
            paper = {RANDOM: NOTHING, POW_D: of_pow_d, POW_D_KFED: of_kfed}[method]
            told = "" if method == RANDOM else _scaled(cell, other, measure, unit, paper != NOTHING)
            if measure == "rounds_needed" and cell is not None and cell.n:
                told = reading(f"{value(cell, 'reached') * cell.n:.0f} of {cell.n} runs reach {target:.3f}", told)
            ours = mean_std(cell, measure, digits, unit)
            lines.append(Line({**setting.cell, "measure": heading, "method": method}, paper, ours, told))
    return lines


def _scaled(cell: Cell | None, other: Cell | None, measure: str, unit: float, said: bool) -> str:
    """Return `compare` of two cells in the unit of their line."""

    def scaled(one: Cell | None) -> Cell | None:
        if one is None or measure not in one.mean:
            return None
        return replace(one, mean={measure: one.mean[measure] / unit}, std={measure: one.std[measure] / unit})

    return compare(scaled(cell), scaled(other), measure, "below" if said else None, digits=1)


def _notes(cells: Sequence[Cell], setting: Setting, target: float) -> list[str]:
    found = {method: find_cell(cells, **setting.cell, method=method) for method in METHODS}
    if any(cell is None or "rounds_needed" not in cell.mean for cell in found.values()):
        return []
    rounds = {method: value(cell, "rounds_needed") for method, cell in found.items()}
    seen = {method: value(cell, "clusters") for method, cell in found.items()}
    gap = rounds[POW_D] - rounds[POW_D_KFED]
    words = "fewer" if gap > 0 else "more" if gap < 0 else "different"
    ours = (
        f"{abs(gap):.1f} {words} rounds than pow-d to {target:.3f}"
        if gap
        else f"as many rounds as pow-d to {target:.3f}"
    )
    spread = 1 - value(found[POW_D_KFED], "variance") / value(found[RANDOM], "variance")
    needed = ", ".join(f"{name} {number:.1f}" for name, number in rounds.items())
    covered = ", ".join(f"{number:.1f} ({name})" for name, number in seen.items())
    note = (
        f"{setting.data}, d = {setting.training.d}: with k-FED's clusters {ours} ({needed}). The variance over devices is "
        f"{abs(100 * spread):.0f} % {'below' if spread > 0 else 'above'} that of random selection. The clients of a round have "
        f"{covered} of k-FED's {setting.training.k} clusters together."
    )
    return [note]


def _about(chosen: Sequence[Setting]) -> str:
    one = chosen[0].training
    return (
        "The paper's figure has no printed numbers and names neither m, d, k nor the clusters of a device. Here m = "
        f"{one.m} clients train in a round, of d candidates. The digits: MNIST for the ten classes of FEMNIST; "
        f"{chosen[0].devices} devices with two classes each, sizes and shares of the classes by a power law, a network with "
        f"hidden layers of 64 and 30 units (that of Cho and others). Shakespeare: 109 speakers of the small text, drawn among "
        f"those with {CHARACTERS} characters and more; the next character from the {CONTEXT} before it, by embeddings and one "
        f"hidden layer of 128 units, which is not the LSTM of LEAF; every {STRIDE}th position is a row. A fifth of each device's "
        f"rows is held out. k-FED has k = {one.k}, {one.lloyd_rounds} Lloyd rounds at the server, and k' = {one.k_local} on the pixels "
        f"of MNIST, 4 on the frequencies of characters in pieces of {PIECE} of Shakespeare. Candidates are drawn in proportion to "
        "their rows, as random clients are, and models count equally, as in Cho and others. Accuracy is that over all held-out rows, "
        f"as the mean of {MEAN_OF} rounds; the target is {100 * SHARE:.0f} % of what random selection has in its last {LAST} rounds; a "
        "run that does not reach it counts as one round more than there are. The variance is that of the devices' accuracies. "
        "Step sizes and rounds were chosen with seeds 100 and 101, which are not among these."
    )


def _picture(done: Sequence[TrialRun], targets: Mapping[Setting, float]) -> "Figure":
    titles = [f"{one.data}, d = {one.training.d}" for one in targets]
    figure, all_axes = figures.panels(titles, columns=3, size=(4.0, 3.0))
    for axes, (setting, target) in zip(all_axes, targets.items(), strict=True):
        for number, method in enumerate(METHODS):
            curves = _curves(done, setting, method)
            if len(curves):
                x = np.arange(MEAN_OF, setting.training.rounds + 1)[::2]
                mean, std = curves.mean(axis=0)[::2], curves.std(axis=0)[::2]
                figures.line(axes, x, mean, std, label=method, number=number)
        if np.isfinite(target):
            axes.axhline(target, linestyle=":", linewidth=1, color=figures.PAPER_COLOUR, label="target")
        axes.set_xlabel("round", fontsize=8)
    all_axes[0].set_ylabel("accuracy", fontsize=8)
    figures.legend(figure, all_axes[0])
    return figure
