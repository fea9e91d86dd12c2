"""k-FED, figure 4: the clients of a round of federated averaging at random, by loss, and by loss and clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, SEEDS, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import Side, value, verdict
from benchmarks.papers.selection_data import CHARACTERS, CONTEXT, PIECE, STRIDE, Population
from benchmarks.papers.selection_settings import CLASSES, Setting, Settings, settings
from flareclust._foundation.extras import require
from flareclust._foundation.typing import FloatArray
from flareclust.core.client_selection import METHODS, POW_D, POW_D_KFED, RANDOM
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Seeds of a study with the usual number of them: each takes minutes, and the order of the curves shows with five.
MOST_SEEDS = 5
#: Rounds that an accuracy is the mean of: those of single rounds jump where clients differ.
MEAN_OF = 5
#: Rounds at the end that the final accuracies are the means of.
LAST = 10
#: The targets: these shares of what random selection reaches in the end.
SHARES = (0.5, 0.75, 0.95)
#: What the text of the paper says of the variance over devices on FEMNIST, in percent of that of random selection.
VARIANCE = "35 % below random, on FEMNIST"

_making = Lock()


def figure4(study: Study) -> Report:
    """Train with the three methods, and compare the rounds that they need."""
    require("deep", "the figure on client selection")
    chosen, seeds = settings(study.quick), min(study.seeds, MOST_SEEDS) if study.seeds == SEEDS else study.seeds
    trials = [_trial(one, method, seed) for one in chosen for method in one.methods for seed in range(seeds)]
    done = study.done(trials)
    ends = {one: _end_of_random(done, one) for one in chosen}
    judged = [_with_rounds(run, ends[one]) for one in chosen for run in _of(done, one)]
    return Report(
        "kfed-figure4",
        "k-FED, Figure 4: client selection",
        [line for one in chosen for line in _lines(judged, one, ends[one])],
        _picture(done, ends),
        [note for one in chosen for note in _notes(judged, one)],
        _about(chosen),
        seeds=seeds,
    )


# ---- the runs ----


def _trial(setting: Setting, method: str, seed: int) -> study_trials.Trial:
    def measure() -> study_trials.TrialResult:
        from benchmarks.papers.selection_training import run

        # The clusters do not depend on d: settings that differ by it alone have the same.
        population, clusters = _prepared(
            setting.data, setting.devices, setting.rows, seed, replace(setting.training, d=1)
        )
        if method == CLASSES:
            clusters = [sorted(set(own.tolist())) for own in population.classes]
        course = run(population, POW_D_KFED if method == CLASSES else method, setting.training, seed, clusters)
        final = {
            "accuracy": float(course.accuracy[-LAST:].mean()),
            "variance": float(course.devices[-LAST:].mean(axis=0).var()),
            "clusters": float(course.clusters.mean()),
        }
        rounds = [{"round": number, "accuracy": float(one)} for number, one in enumerate(course.accuracy, start=1)]
        return study_trials.TrialResult(final, {}, rounds)

    params = {"data": setting.data, "devices": setting.devices, "rows": setting.rows, **asdict(setting.training)}
    return study_trials.Trial({**setting.cell, "method": method}, seed, {**params, "method": method}, measure)


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


def _of(
    done: Sequence[study_trials.TrialRun], setting: Setting, method: str | None = None
) -> list[study_trials.TrialRun]:
    wanted = setting.cell if method is None else {**setting.cell, "method": method}
    return [run for run in done if wanted.items() <= run.trial.cell.items()]


def _curves(done: Sequence[study_trials.TrialRun], setting: Setting, method: str) -> FloatArray:
    """Return the accuracies of each run that did not fail, means of `MEAN_OF` rounds, (seeds, rounds - MEAN_OF + 1)."""
    runs = [run.measured for run in _of(done, setting, method) if run.measured is not None]
    return np.array([_smooth([one["accuracy"] for one in measured.rounds]) for measured in runs])


def _smooth(accuracies: Sequence[float]) -> FloatArray:
    return np.convolve(accuracies, np.ones(MEAN_OF) / MEAN_OF, "valid")


def _end_of_random(done: Sequence[study_trials.TrialRun], setting: Setting) -> float:
    """Return the accuracy of random selection in its last rounds, the mean over seeds."""
    found = [run.measured.final["accuracy"] for run in _of(done, setting, RANDOM) if run.measured is not None]
    return float(np.mean(found)) if found else float("nan")  # type: ignore[arg-type]


def _with_rounds(run: study_trials.TrialRun, end: float) -> study_trials.TrialRun:
    """Return a run with what its course came to: the mean over all rounds, and the first round that reaches each target.

    Where a run does not reach one, that is one round more than there are.
    """
    if run.measured is None:
        return run
    curve, final = _smooth([one["accuracy"] for one in run.measured.rounds]), dict(run.measured.final)
    final["course"] = float(curve.mean())
    for share in SHARES:
        reached = curve >= share * end
        final[_needed(share)] = float(np.argmax(reached) + MEAN_OF if reached.any() else len(run.measured.rounds) + 1)
    return replace(run, measured=replace(run.measured, final=final))


def _needed(share: float) -> str:
    return f"rounds_{100 * share:.0f}"


# ---- the report ----


@dataclass(frozen=True)
class Measure:
    """A measure: its heading, digits and unit, and where the paper says that pow-d is beside random, k-FED beside pow-d."""

    heading: str
    digits: int
    unit: float
    side: Side


_MEASURES: Mapping[str, Measure] = {
    **{_needed(share): Measure(f"rounds to {100 * share:.0f} %", 1, 1.0, "below") for share in SHARES},
    "course": Measure("accuracy, mean over rounds, percent", 1, 0.01, "above"),
    "accuracy": Measure("accuracy in the end, percent", 1, 0.01, None),
    "variance": Measure("variance over devices, 1e-4", 1, 1e-4, "below"),
}


def _lines(judged: Sequence[study_trials.TrialRun], setting: Setting, end: float) -> list[Line]:
    cells, lines = study_trials.by_cell(judged), []
    for name, measure in _MEASURES.items():
        for method in setting.methods if name not in ("accuracy", "variance") else METHODS:
            cell = find_cell(cells, **setting.cell, method=method)
            against = RANDOM if method == POW_D or name == "variance" else POW_D
            side = None if method == CLASSES else measure.side
            paper = NOTHING if side is None or method == RANDOM else f"{side} {against}"
            if (name, method) == ("variance", POW_D_KFED):
                paper = VARIANCE
            told = "" if method == RANDOM else _told(judged, setting, (method, against), name, side)
            heading = (
                f"{measure.heading} ({SHARES[list(_MEASURES).index(name)] * end:.3f})"
                if "rounds_" in name
                else measure.heading
            )
            ours = mean_std(cell, name, measure.digits, measure.unit)
            lines.append(Line({**setting.cell, "measure": heading, "method": method}, paper, ours, told))
    return lines


def _differences(
    judged: Sequence[study_trials.TrialRun], setting: Setting, methods: tuple[str, str], name: str
) -> FloatArray:
    """Return by how much a method's measure is above that of another with the same seed, (seeds,)."""
    found = [
        {run.trial.seed: run.measured.final[name] for run in _of(judged, setting, method) if run.measured is not None}
        for method in methods
    ]
    return np.array(
        [found[0][seed] - found[1][seed] for seed in sorted(found[0].keys() & found[1].keys())], dtype=float
    )  # type: ignore[operator]


def _told(
    judged: Sequence[study_trials.TrialRun], setting: Setting, methods: tuple[str, str], name: str, side: Side
) -> str:
    """Say how far a method is from another, and whether the paper's words hold: a paired comparison over the seeds."""
    gaps = _differences(judged, setting, methods, name) / _MEASURES[name].unit
    if not len(gaps):
        return ""
    error = float(gaps.std(ddof=1)) / len(gaps) ** 0.5 if len(gaps) > 1 else float("inf")
    return reading(f"{gaps.mean():+.1f} to {methods[1]}", verdict(float(gaps.mean()), side, error=error))


def _notes(judged: Sequence[study_trials.TrialRun], setting: Setting) -> list[str]:
    cells, parts = study_trials.by_cell(judged), []
    for share in SHARES:
        gaps = _differences(judged, setting, (POW_D_KFED, POW_D), _needed(share))
        if not len(gaps):
            return []
        parts.append(
            f"{gaps.mean():+.1f} to {100 * share:.0f} % (fewer in {(gaps < 0).sum()}, more in {(gaps > 0).sum()} of {len(gaps)} seeds)"
        )
    seen = [
        f"{value(find_cell(cells, **setting.cell, method=method), 'clusters'):.1f} ({method})" for method in METHODS
    ]
    note = (
        f"{setting.data}, d = {setting.training.d}: rounds of pow-d with k-FED's clusters beside those of pow-d: {', '.join(parts)}. "
        f"The clients of a round have {', '.join(seen)} of k-FED's {setting.training.k} clusters together."
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
        f"of MNIST, 4 on the frequencies of characters in pieces of {PIECE} of Shakespeare. `{CLASSES}` has the two classes of a "
        "device in the place of its clusters. Candidates are drawn in proportion to their rows, as random clients are, and models "
        f"count equally, as in Cho and others. Accuracy is that over all held-out rows, as the mean of {MEAN_OF} rounds; targets are "
        f"shares of what random selection has in its last {LAST} rounds, and a run that does not reach one counts as one round more "
        "than there are. The variance is that of the devices' accuracies. All methods have the same devices, first network and "
        "candidates for a seed, so they are compared seed by seed. Step sizes and rounds were chosen with seeds 100 and 101, which "
        f"are not among these; the target of {100 * SHARES[-1]:.0f} % was set before the runs, the lower ones and the mean over rounds "
        "were added when the curves were seen to differ early on."
    )


def _picture(done: Sequence[study_trials.TrialRun], ends: Mapping[Setting, float]) -> "Figure":
    titles = [f"{one.data}, d = {one.training.d}" for one in ends]
    figure, all_axes = figures.panels(titles, columns=3, size=(4.0, 3.0))
    for axes, (setting, end) in zip(all_axes, ends.items(), strict=True):
        for number, method in enumerate(setting.methods):
            curves = _curves(done, setting, method)
            if len(curves):
                x = np.arange(MEAN_OF, setting.training.rounds + 1)[::2]
                mean, std = curves.mean(axis=0)[::2], curves.std(axis=0)[::2]
                figures.line(axes, x, mean, std, label=method, number=number)
        for share in SHARES if np.isfinite(end) else ():
            label = "targets" if share == SHARES[0] else None
            axes.axhline(share * end, linestyle=":", linewidth=1, color=figures.PAPER_COLOUR, label=label)
        axes.set_xlabel("round", fontsize=8)
    all_axes[0].set_ylabel("accuracy", fontsize=8)
    figures.legend(figure, all_axes[0])
    return figure
