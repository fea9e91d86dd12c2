"""Many runs of the same kind: what one trial is, its data, how it is run here or in another process, and what trials come to.

Sweeps (`flareclust.experiment.sweeps.sweep`) and the re-runs of the papers (`benchmarks.papers`) are lists of trials. Who runs them, with
how many threads and what is tracked, is a `Runner`: `run_plain` here, or the Prefect flow of `flareclust.flows.sweep`.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.version import __version__
from flareclust.data import datasets
from flareclust.data.digest import digest_of
from flareclust.engines.options import Quorum
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import OneTable, Source, prepare, source_of
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.submit import submit
from flareclust.experiment.sweeps.cluster_means import ClusterMeans, cluster_means
from flareclust.experiment.tables.typed_files import schema_of
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
        settled: settings of its algorithm by default, or as its data say, such as `scale` from a schema; those in `params` come first.
    """

    cell: Mapping[str, str]
    seed: int
    params: Mapping[str, Any]
    measure: Callable[[], TrialResult]
    settled: Mapping[str, Any] = field(default_factory=dict)

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
    """A trial that is over: what it came to, or why it failed; `resumed` if an earlier run of the study had done it.

    `version` of flareclust is the one that ran it.
    """

    trial: Trial
    measured: TrialResult | None
    error: str | None = None
    resumed: bool = False
    version: str = __version__


#: Runs one trial of many; whatever happens in it is its result.
Attempt = Callable[[Trial], TrialRun]

#: Runs the missing trials of a study, each by the given function, and logs the study; returns what all came to.
RunMissing = Callable[[Attempt], list[TrialRun]]

#: Called with each trial as soon as it is over, also from several threads at once.
OnDone = Callable[[TrialRun], None]


#: Runs trials; the answers come in the order of the trials, failed ones among them.
Runner = Callable[[Sequence[Trial]], list[TrialRun]]


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
    if (measured := done.measured) is None:
        return done
    final = {name: None if v is None or not math.isfinite(v) else float(v) for name, v in measured.final.items()}
    cost = {name: float(v) for name, v in measured.cost.items() if math.isfinite(v)}
    rounds = [{name: float(v) for name, v in row.items() if math.isfinite(v)} for row in measured.rounds]
    return replace(done, measured=replace(measured, final=final, cost=cost, rounds=rounds))


@dataclass(frozen=True)
class _ExperimentMeasure:
    """Runs an experiment on the rows of a source and measures its result: the `measure` of a sweep's trial."""

    experiment: Experiment
    source: Source

    def __call__(self) -> TrialResult:
        """Run it."""
        prepared = prepare(self.experiment, self.source)
        outcome = submit(self.experiment, prepared)
        result = evaluate(self.experiment, prepared, outcome, 0.0)
        final = {**result.metrics, "centroids_found": float(result.centroids_found), "rounds": float(result.rounds)}
        cost = {f"bytes_{way}": float(size) for way, size in result.bytes.items()}
        cost |= {f"seconds_{name}": result.seconds[name] for name in ("local_max", "merge")}
        rounds = []
        for record in filter(is_round, outcome.rounds):
            traffic = {name: float(str(record[name])) for name in ("round", "bytes_up", "bytes_down")}
            rounds.append({**cast("dict[str, float]", record["diagnostics"]), **traffic})
        return TrialResult(final, cost, rounds, cluster_means(result))


def experiment_trial(experiment: Experiment, cell: Mapping[str, str], source: Source, **settled: Any) -> Trial:
    """Return the trial of a cell that runs an experiment on the rows of a source, in whatever engine it names."""
    decides = {"algorithm", "data", "k", "partition", "n_sites", "engine", "columns", "params", *Quorum.model_fields}
    chosen = {"k_range", "criterion"} if experiment.k_range else set()
    params = experiment.model_dump(mode="json", include=decides | chosen)
    return Trial(cell, experiment.seed, params, _ExperimentMeasure(experiment, source), settled)


@dataclass(frozen=True)
class Cell:
    """What the trials of one cell came to: per metric mean and population standard deviation over those that have it."""

    cell: Mapping[str, str]
    mean: Mapping[str, float]
    std: Mapping[str, float]
    n: int
    failed: int

    @property
    def count(self) -> str:
        """Return how many trials it has, in words: `10`, `8 of 10` where some failed."""
        return f"{self.n} of {self.n + self.failed}" if self.failed else str(self.n)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        about = {"cell": dict(self.cell), "done": self.n, "failed": self.failed}
        return {**about, "mean": dict(self.mean), "std": dict(self.std)}


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


def is_known(text: str) -> bool:
    """Return whether this names a data set, and not a file or folder."""
    return text.partition(":")[0] in datasets.names()


def data_name(text: str) -> str:
    """Return what a data set is called in tables: its name, or that of its file or folder."""
    return text if is_known(text) else Path(text).name or text


def load_source(experiment: Experiment) -> tuple[Source, str]:
    """Return where the rows of a trial come from, loaded unless each site has a file of its own, and the digest of what it holds;
    raise UserError for data that cannot be loaded, or are a folder that is to be split.
    """
    asked = experiment.rows
    source, folder = source_of(asked), Path(asked.data)
    about = f"{schema_of(asked).fingerprint} {asked.truth}" if asked.typed else ""
    if not isinstance(source, OneTable):
        return source, digest_of(about, [folder] if folder.is_dir() else [])  # without a folder, `prepare` says so
    if folder.is_dir() and not is_known(asked.data):
        raise UserError(f'{asked.data} is a folder; for one file per site say partitions = "none"')
    source = source.loaded(asked)
    dataset = source.dataset
    assert dataset is not None
    arrays = (dataset.X, dataset.y, dataset.centroids, dataset.owners)
    return source, digest_of(about, [array for array in arrays if array is not None])


def _trial_message(trial: Trial) -> dict[str, Any]:
    """Return what another process needs to run a trial of a sweep, with absolute paths; raise UserError for any other trial."""
    if not isinstance(trial.measure, _ExperimentMeasure):
        raise UserError("only the trials of a sweep can run in other processes; use threads")
    experiment = trial.measure.experiment.model_dump(mode="json")
    for name in ("data", "table_schema"):
        if (path := experiment[name]) is not None and not (name == "data" and is_known(path)):
            experiment[name] = str(Path(path).absolute())
    return {"cell": dict(trial.cell), "experiment": experiment, "data_digest": trial.params["data_digest"]}


def measure_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Run the trial that a message describes; return what it came to as JSON values, or why it failed."""
    experiment = Experiment(**message["experiment"])

    def measure() -> TrialResult:
        source, digest = load_source(experiment)
        if digest != message["data_digest"]:
            differ = f"the data {experiment.data} of this worker differ from those of the sweep"
            raise UserError(f"{differ}; give every worker the same files")
        return _ExperimentMeasure(experiment, source)()

    done = attempt_any(Trial(message["cell"], experiment.seed, {}, measure))
    return {"error": done.error} if done.measured is None else done.measured.to_json()


def attempt_elsewhere(trial: Trial, measure: Callable[[dict[str, Any]], dict[str, Any]]) -> TrialRun:
    """Run one trial of many in another process, where `measure` has `measure_message` answer what `_trial_message` describes.

    A process that is lost costs this trial and no other.
    """
    try:
        answer = measure(_trial_message(trial))
    except FlareclustError as error:
        return TrialRun(trial, None, str(error))
    except Exception as error:  # whatever a cluster raises where a worker is gone
        log.info("%s was lost", trial.name, exc_info=True)
        return TrialRun(trial, None, f"its worker did not finish it: {type(error).__name__}: {error}")
    if "error" in answer:
        return TrialRun(trial, None, answer["error"])
    return TrialRun(trial, TrialResult.from_json(answer))
