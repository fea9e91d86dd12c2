"""An entry that takes no time, for the tests of re-running papers."""

import math

from benchmarks.papers import base, figures
from benchmarks.papers.base import Entry, Line, Report
from flareclust._foundation.errors import JobFailed
from flareclust.experiment.sweeps import trials as study_trials


def toy_trial(seed, value=1.0, cell="a", fail=False, calls=None):
    def measure():
        if calls is not None:
            calls.append((cell, seed))
        if fail:
            raise JobFailed("no site sent a reply that could be used")
        return study_trials.TrialResult({"l2": value + seed})

    return study_trials.Trial({"cell": cell}, seed, {"value": value}, measure)


def toy_entry(name="toy-table1", covers=("toy-figure1",), fail=(), calls=None):
    def run(study):
        cells = study.cells([toy_trial(seed, fail=seed in fail, calls=calls) for seed in range(study.seeds)])
        figure, (axes,) = figures.panels(["l2"])
        figures.bars(axes, ["a"], {"ours": [cells[0].mean.get("l2", math.nan)]})
        lines = [Line({"cell": "a"}, "2.0", base.mean_std(cells[0], "l2"), "defaults; agrees")]
        return Report(name, f"Toy: {name}", lines, figure, ["It does not reproduce."], "About the toy.")

    return Entry(name, covers, "a toy", run)
