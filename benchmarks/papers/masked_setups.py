"""The trials of the paper's set-ups: an algorithm or a baseline on a data set that is assigned anew for every seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.papers.masked_values import SetUp
from benchmarks.papers.samples import at_most
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.datasets import Dataset, load
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import OneTable
from flareclust.experiment.prepared import Prepared, in_places, names_of, tables_of
from flareclust.experiment.sweeps import trials as study_trials

#: Rows of the larger data sets in the quick form.
QUICK_ROWS = 3_000
#: The accuracy in percent under one name for all algorithms, what a site and the server need, what the sites send.
ACCURACY, SECONDS, MEGABYTES = "percent_right", "seconds", "megabytes"
#: 1 where all local clusters were grouped rightly, else 0: its mean is the share of seeds.
PERFECT = "grouped_rightly"


@dataclass(frozen=True)
class Method:
    """An algorithm of the registry with settings, under the name that tables use for it."""

    name: str
    algorithm: str
    params: Mapping[str, Any] = field(default_factory=dict)


CENTRAL = Method("central", "central")


def masked_as_printed(set_up: SetUp) -> Method:
    """Return Algorithm 1 as in section 6.2: the assumption's method, three rounds whatever they move, step size 0.8."""
    params = {"method": set_up.method, "rounds": 3, "tol": 0.0, "alpha": 0.8, **set_up.local}
    return Method("masked", "masked", params)


def proxy_as_printed(set_up: SetUp) -> Method:
    """Return Algorithm 2 as in section 6.3: Gaussians, w = 2."""
    return Method("proxy", "proxy", {"w": 2.0, "distribution": "gaussian", **set_up.local})


def loaded(set_ups: Sequence[SetUp], quick: bool = False) -> dict[str, Dataset]:
    """Return the data sets of set-ups by their names, each loaded once; in the quick form some rows of large ones."""
    names = dict.fromkeys(set_up.data for set_up in set_ups)
    return {name: at_most(load(name), QUICK_ROWS) if quick else load(name) for name in names}


def experiment(set_up: SetUp, method: Method, dataset: Dataset, seed: int) -> Experiment:
    """Return the experiment of a method on a set-up; the seed is that of the split, too."""
    return Experiment(
        algorithm=method.algorithm,
        data=dataset.name,
        partition=set_up.partition,
        seed=seed,
        engine="inprocess",
        params=dict(method.params),
    )


def trials(set_up: SetUp, method: Method, dataset: Dataset, seeds: int) -> list[study_trials.Trial]:
    """Return a run per seed, in the cell (data, assumption, method)."""
    cell = {**set_up.cell, "method": method.name}
    return [
        _with_cost(study_trials.experiment_trial(experiment(set_up, method, dataset, seed), cell, OneTable(dataset)))
        for seed in range(seeds)
    ]


def _with_cost(trial: study_trials.Trial) -> study_trials.Trial:
    """Return a trial whose cost is among what means over seeds are taken of, and its accuracy under one name."""

    def measure() -> study_trials.TrialResult:
        found = trial.measure()
        right = next((found.final[name] for name in ("e2", "e5", "accuracy") if name in found.final), None)
        grouped = next((found.final[name] for name in ("e1", "e4") if name in found.final), None)
        more = {
            PERFECT: None if grouped is None else float(grouped == 1),
            ACCURACY: None if right is None else 100 * right,
            SECONDS: found.cost["seconds_local_max"] + found.cost["seconds_merge"],
            MEGABYTES: found.cost["bytes_up"] / 1e6,
        }
        return replace(found, final={**found.final, **more})

    return replace(trial, measure=measure)


def in_all_columns(prepared: Prepared) -> tuple[list[FloatArray], list[IntArray]]:
    """Return the sites' rows (n_i, D) in the data set's columns, NaN for those that a site lacks, and their classes (n_i,).

    Raises:
        UserError: the data set has no classes.
    """
    dataset, index = prepared.dataset, prepared.index
    if dataset is None or dataset.y is None or index is None:
        raise UserError("the set-ups of this paper need a data set with classes")
    tables = tables_of(prepared)
    return [in_places(table, names_of(dataset)) for table in tables.values()], [
        dataset.y[index[site]] for site in tables
    ]
