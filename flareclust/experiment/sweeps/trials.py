"""Many runs of the same kind: what one trial is, how a list of them is run, and what they come to.

Sweeps (`flareclust.experiment.sweeps.sweep`) and the re-runs of the papers (`benchmarks.papers`) are lists of trials. Who runs them, with
how many threads and what is tracked, is a `Runner`: `run_plain` here, or the Prefect flow of `flareclust.flows.sweep`.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from flareclust._foundation.errors import FlareclustError
from flareclust.data.datasets import Dataset
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.submit import submit
from flareclust.experiment.sweeps.cluster_means import ClusterMeans, cluster_means
from flareclust.protocol.outcome import is_round

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialResult:
    """What a trial came to.

    Attributes:
        final: quality, by name; None where undefined. MLflow takes letters, digits, spaces and _ - . : / in all names.
        cost: seconds, bytes and the like.
        rounds: one mapping per round, its number under `round`.
        clusters: means of its clusters, where its rows are here and they are not too many; MLflow does not keep them.
    """

    final: Mapping[str, float | None]
    cost: Mapping[str, float] = field(default_factory=dict)
    rounds: Sequence[Mapping[str, float]] = ()
    clusters: ClusterMeans | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        more = {} if self.clusters is None else {"clusters": self.clusters.to_json()}
        return {"final": self.final, "cost": self.cost, "rounds": list(self.rounds), **more}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TrialResult":
        """Return what `to_json` gave, also of versions that kept no clusters; others of its names are not looked at."""
        clusters = ClusterMeans.from_json(values.get("clusters"))
        return cls(values["final"], values["cost"], values["rounds"], clusters)


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes:
        cell: what the means are taken over seeds for: `{"algorithm": "feca", "partition": "iid"}`; short texts.
        seed: of everything random in it.
        params: all that decides the result, as JSON values; the trial is found again by them.
        measure: does the work. It may raise; whatever a FlareclustError says is the user's to read.
    """

    cell: Mapping[str, str]
    seed: int
    params: Mapping[str, Any]
    measure: Callable[[], TrialResult]

    @property
    def name(self) -> str:
        """Return the name of its run: `feca/iid/s0`."""
        return "/".join([*self.cell.values(), f"s{self.seed}"])

    def key(self, study: str) -> str:
        """Return a fingerprint: the same for the same trial of the same study, also tomorrow."""
        text = json.dumps([study, dict(self.cell), self.seed, dict(self.params)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class TrialRun:
    """A trial that is over: what it came to, or why it failed; `resumed` if an earlier run of the study had done it."""

    trial: Trial
    measured: TrialResult | None
    error: str | None = None
    resumed: bool = False


#: Runs one trial of many; whatever happens in it is its result.
Attempt = Callable[[Trial], TrialRun]

#: Called with each trial as soon as it is over, also from several threads at once.
OnDone = Callable[[TrialRun], None]


class Runner(Protocol):
    """Runs trials; the answers come in the order of the trials, failed ones among them."""

    def __call__(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """Run all of them."""


def run_plain(trials: Sequence[Trial]) -> list[TrialRun]:
    """Run trials one after the other, without any tracking."""
    return [attempt(trial) for trial in trials]


def attempt(trial: Trial) -> TrialRun:
    """Run one trial; a failure that was foreseen is its result."""
    try:
        return TrialRun(trial, trial.measure())
    except FlareclustError as error:
        return TrialRun(trial, None, str(error))


def attempt_any(trial: Trial) -> TrialRun:
    """Run one trial of many, which must not end the others: a failure that was not foreseen is its result as well.

    What it measured is made storable: a quality that is not finite becomes None, other such numbers are left out.
    """
    try:
        done = attempt(trial)
    except Exception as error:  # a fault of one algorithm must not cost the trials of all others
        log.info("%s failed", trial.name, exc_info=True)
        return TrialRun(trial, None, f"unexpected {type(error).__name__}: {error}")
    return done if done.measured is None else replace(done, measured=_storable(done.measured))


def _storable(measured: TrialResult) -> TrialResult:
    final = {name: None if v is None or not math.isfinite(v) else float(v) for name, v in measured.final.items()}
    cost = {name: float(v) for name, v in measured.cost.items() if math.isfinite(v)}
    rounds = [{name: float(v) for name, v in row.items() if math.isfinite(v)} for row in measured.rounds]
    return replace(measured, final=final, cost=cost, rounds=rounds)


@dataclass(frozen=True)
class ExperimentMeasure:
    """Runs an experiment and measures its result: the `measure` of a sweep's trial.

    Attributes:
        experiment: what to run.
        dataset: its data, where they are in memory already; else they are loaded here.
    """

    experiment: Experiment
    dataset: Dataset | None = None

    def __call__(self) -> TrialResult:
        """Run it."""
        prepared = prepare(self.experiment, self.dataset)
        outcome = submit(self.experiment, prepared)
        result = evaluate(self.experiment, prepared, outcome, 0.0)
        final = {**result.metrics, "centroids_found": float(result.centroids_found), "rounds": float(result.rounds)}
        cost = {f"bytes_{way}": float(size) for way, size in result.bytes.items()}
        cost |= {f"seconds_{name}": result.seconds[name] for name in ("local_max", "merge")}
        rounds = [_numbers(record) for record in outcome.rounds if is_round(record)]
        return TrialResult(final, cost, rounds, cluster_means(result))


def experiment_trial(experiment: Experiment, cell: Mapping[str, str], dataset: Dataset | None = None) -> Trial:
    """Return the trial that runs an experiment in-process or in whatever engine it names.

    Args:
        experiment: what to run.
        cell: see `Trial`.
        dataset: its data, where they are in memory already; else they are loaded in the trial.
    """

    chosen = {"k_range", "criterion"} if experiment.k_range else set()
    decides = chosen | {"algorithm", "data", "k", "partition", "n_sites", "engine", "columns", "params", "min_sites"}
    params = experiment.model_dump(mode="json", include=decides)
    return Trial(cell, experiment.seed, params, ExperimentMeasure(experiment, dataset))


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what a round's record says about the clustering and the traffic."""
    own = {name: float(record[name]) for name in ("round", "bytes_up", "bytes_down")}
    return {**record["diagnostics"], **own}


@dataclass(frozen=True)
class Cell:
    """What the trials of one cell came to: per metric mean and population standard deviation over those that have it."""

    cell: Mapping[str, str]
    mean: Mapping[str, float]
    std: Mapping[str, float]
    n: int
    failed: int


def by_cell(done: Sequence[TrialRun]) -> list[Cell]:
    """Return one `Cell` per different `trial.cell`, in the order of their first trials."""
    groups: dict[tuple[tuple[str, str], ...], list[TrialRun]] = {}
    for one in done:
        groups.setdefault(tuple(one.trial.cell.items()), []).append(one)
    return [cell_of(dict(key), members) for key, members in groups.items()]


def cell_of(cell: Mapping[str, str], members: Sequence[TrialRun]) -> Cell:
    """Return what these trials came to together, as the cell of this name."""
    finals = [one.measured.final for one in members if one.measured is not None]
    names = list(dict.fromkeys(name for final in finals for name in final))
    values = {name: [v for final in finals if (v := final.get(name)) is not None] for name in names}
    mean = {name: float(np.mean(found)) for name, found in values.items() if found}
    std = {name: float(np.std(found)) for name, found in values.items() if found}
    return Cell(cell, mean, std, len(finals), len(members) - len(finals))
