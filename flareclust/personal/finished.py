"""The result of personalised models from the downloads of finished jobs at provisioned sites.

Rows are at the sites: what is known of them is how many were held out, and how many of these got their class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.engines.late_sites import read_finished
from flareclust.federation.exchanges import refusal_texts
from flareclust.personal.aggregator import FedAvgAggregator
from flareclust.personal.jobs import FEDAVG, IFCA, bytes_by_round, chosen_in, tests_of, trained_in
from flareclust.personal.learners import WEIGHTS, Weights
from flareclust.personal.result import PersonalResult, usual_warnings
from flareclust.personal.selection import ALL
from flareclust.protocol.outcome import Outcome

#: Where NVFlare puts a job's result within what it downloads.
_WORKSPACE = "workspace"

#: How the names of the arrays begin that hold weights by name.
_BY_NAME = f"{WEIGHTS}."


@dataclass(frozen=True, eq=False)
class _Job:
    """A finished job: its folder, its result, and what is read from that."""

    folder: Path
    outcome: Outcome
    about: dict[str, Any]
    models: Weights
    classes: int
    #: (rounds, m) rows that got their class, and rows tested.
    right: FloatArray
    tested: FloatArray
    #: (m,) the model of each site, of this job; -1 where it is not known.
    chosen: IntArray

    @property
    def cluster(self) -> int | None:
        """Return the number of k-FED's cluster whose sites it is of; None for other sites, and in jobs of earlier releases."""
        number: int | None = self.about["params"].get("cluster")
        return number

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what the jobs of one method have in common."""
        params = self.about["params"]
        shapes = [(name, value.shape[1:]) for name, value in self.models.items()]
        return (
            self.about["algorithm"],
            self.cluster is None,
            params.get("model"),
            len(self.right),
            self.classes,
            shapes,
        )


def read_jobs(folders: Sequence[str | Path]) -> PersonalResult:
    """Return models, accuracies and choices of the sites from the results of finished jobs.

    Args:
        folders: of k-FED the results of all clusters' jobs, one for each model in this order; of IFCA, or of one model for
            all, that of the one job. Each is a folder as `nvflare job download` leaves it, or its `workspace`.

    Raises:
        UserError: a folder has no result of personalised models, the results do not go together, a site is in two of them, or
            none was tested.
    """
    if not folders:
        raise UserError("no folders: expected the results of finished jobs of personalised models")
    jobs = [_read(Path(folder)) for folder in folders]
    first = jobs[0]
    _check_together(jobs)
    clusters = [job.cluster for job in jobs]
    of_kfed = len(jobs) > 1 or first.cluster is not None
    method = "ifca" if first.about["algorithm"] == IFCA.name else "kfed" if of_kfed else "global"
    names = [site for job in jobs for site in job.outcome.sites]
    before = np.cumsum([0, *(_count(job.models) for job in jobs)])
    used = [
        {int(start + model): None} if model >= 0 else {}
        for start, job in zip(before[:-1], jobs, strict=True)
        for model in job.chosen
    ]
    tested = np.concatenate([job.tested for job in jobs], axis=1)
    with np.errstate(invalid="ignore"):
        accuracy = np.concatenate([job.right for job in jobs], axis=1) / tested
    if not (tested[-1] > 0).any():
        raise UserError(
            f"{first.folder}: no site tested its models, as with fewer rows held out than min_count; the weights are in its "
            "result.npz as weights.*"
        )
    up, down = (int(sum(bytes_by_round(job.outcome, way).sum() for job in jobs)) for way in ("bytes_up", "bytes_down"))
    params = {name: value for name, value in first.about["params"].items() if name not in ("cluster", "clusters")}
    about = {"method": method, "k": int(before[-1]), "seed": first.about["seed"]}
    return PersonalResult(
        settings={**params, **about, **({} if first.cluster is None else {"clusters": clusters})},
        names=names,
        classes=list(range(first.classes)),
        models={name: np.concatenate([job.models[name] for job in jobs]) for name in first.models},
        models_of=dict(zip(names, used, strict=True)),
        accuracy=accuracy,
        selected=_selected(jobs),
        bytes={"up": up, "down": down, "clustering_up": 0, "clustering_down": 0},
        seconds=sum(job.outcome.seconds_local + job.outcome.seconds_merge for job in jobs),
        warnings=[
            *(text for job in jobs for text in (*refusal_texts(job.outcome.refused), *job.outcome.warnings)),
            *usual_warnings(len({model for own in used for model in own}), int(before[-1]), accuracy),
        ],
    )


def _read(folder: Path) -> _Job:
    if (folder / _WORKSPACE).is_dir():
        folder = folder / _WORKSPACE
    outcome, about = read_finished(folder)
    algorithm = {line.name: line for line in (FEDAVG, IFCA)}.get(about["algorithm"])
    if algorithm is None:
        raise UserError(
            f"{folder} has a result of {about['algorithm']}; expected one of a job that `flareclust personalise --export` wrote"
        )
    _, aggregator = algorithm.build(about["k"], about["seed"], about["params"])
    assert isinstance(aggregator, FedAvgAggregator)
    k = int(about["k"])
    try:
        models = {  # as they are kept by name: the kind of model, which may need an extra, is not needed
            name.removeprefix(_BY_NAME): value.reshape(k, *value.shape[1 if algorithm is IFCA else 0 :])
            for name, value in outcome.arrays.items()
            if name.startswith(_BY_NAME)
        }
        _count(models)
        right, tested = tests_of(outcome, outcome.sites, aggregator.params.rounds)
        m = len(outcome.sites)
        chosen = chosen_in(outcome, outcome.sites) if algorithm is IFCA else np.zeros(m, dtype=np.int64)
        classes = int(outcome.arrays["model"][1])
    except (LookupError, StopIteration, ValueError, TypeError) as error:
        raise UserError(f"{folder} is no result of {algorithm.name}, or was edited: {type(error).__name__}") from None
    return _Job(folder, outcome, about, models, classes, right, tested, chosen)


def _check_together(jobs: Sequence[_Job]) -> None:
    """Raise UserError where the jobs are not those of one k-FED."""
    first, *others = jobs
    if others and first.about["algorithm"] == IFCA.name:
        raise UserError(f"{first.folder} has all models of IFCA; read its result by itself")
    owner: dict[str, Path] = {}
    numbers = [job.cluster for job in jobs if job.cluster is not None]
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise UserError(f"cluster {twice[0]} is there twice; give the result of each cluster's job once")
    for job in jobs:
        if job.kind != first.kind:
            raise UserError(
                f"{first.folder} and {job.folder} differ in the method, the kind of model, its columns, its classes or the rounds; read "
                "each by itself, or export the jobs of all clusters together, with --classes"
            )
        for site in job.outcome.sites:
            if site in owner:
                raise UserError(
                    f"{site} is in {owner[site]} and in {job.folder}; give the result of each cluster's job once"
                )
            owner[site] = job.folder


def _selected(jobs: Sequence[_Job]) -> list[list[str]]:
    """Return the sites that trained in each round, over all jobs; none where all jobs have all of them train."""
    if all(job.about["params"].get("select", ALL) == ALL for job in jobs):
        return []
    by_job = [trained_in(job.outcome) for job in jobs]
    return [sorted(site for there in by_round for site in there) for by_round in zip(*by_job, strict=True)]


def _count(models: Weights) -> int:
    return len(next(iter(models.values())))
