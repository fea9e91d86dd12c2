"""Personalised models as NVFlare jobs: run one after the other, written for provisioned sites, and read back from there.

For kfed there is a job for the clustering, then one of federated averaging for each cluster; for ifca, and one model for all, a
single one. They are those of `flareclust.personal.executor` and `aggregator`, through the controller of all other jobs. Random
numbers and the order of sums are those of `flareclust.personal.methods`, so that the linear models are the same bit for bit.
Networks are the same up to rounding: in one process, the devices of a cluster are one product of matrices.

At provisioned sites the rows stay there: what is known of them is how many were held out, and how many of these got their class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import site_name
from flareclust.core.client_selection import Selection
from flareclust.data.tables import Rows, Table
from flareclust.engines.late_sites import read_finished
from flareclust.executors.kfed import site_number
from flareclust.federation.exchanges import refusal_texts
from flareclust.personal.aggregator import CHOSEN, TESTS, FedAvgAggregator
from flareclust.personal.learners import WEIGHTS, Weights
from flareclust.personal.methods import KFED, Course, OnRound, Parts, Run, clusters_of_sites, divided
from flareclust.personal.result import PersonalResult, usual_warnings
from flareclust.personal.rows import CLASS_COLUMN, Split
from flareclust.personal.selection import ALL, check_fewer
from flareclust.personal.settings import TRAINED_BY, ExportSettings, PersonalSettings
from flareclust.platform.job import build_job, export_job
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import StepName

#: Neither is an algorithm of the registry, since they make no clusters.
FEDAVG = Algorithm(
    "fedavg",
    "Federated averaging of one model",
    "flareclust.personal.executor.FedAvgExecutor",
    "flareclust.personal.aggregator.FedAvgAggregator",
    source="McMahan et al. (2017), Algorithm 1",
)

IFCA = Algorithm(
    "ifca",
    "Iterative federated clustering: a model per cluster, which the sites choose",
    "flareclust.personal.executor.IFCAExecutor",
    "flareclust.personal.aggregator.IFCAAggregator",
    source="Ghosh et al. (2020), Algorithm 1",
)

#: How the names of the arrays begin that hold weights by name.
_BY_NAME = f"{WEIGHTS}."

#: The column with rows held out; those that are neither this nor the class are numbered.
_TEST = "held_out"

#: Where NVFlare puts a job's result within what it downloads.
_WORKSPACE = "workspace"


def _algorithm_of(method: str) -> Algorithm:
    """Return what a job of a method runs."""
    return IFCA if method == "ifca" else FEDAVG


# ---- what a job has found ----


@dataclass(frozen=True, eq=False)
class _Trained:
    """What a job has trained, and how its m sites were tested.

    Attributes:
        models: weights by name, stacked (k, ...).
        right: (rounds, m) rows that got their class after each round.
        tested: (rounds, m) rows that were tested.
        chosen: (m,) the number of each site's model; -1 where it is not known.
        selected: the sites that trained in each round.
        sent: (2, rounds) bytes up and down; as in one process, the last test is not counted.
    """

    models: Weights
    right: FloatArray
    tested: FloatArray
    chosen: IntArray
    selected: list[list[str]]
    sent: IntArray

    @classmethod
    def of(cls, outcome: Outcome, algorithm: Algorithm, names: Sequence[str], k: int, rounds: int) -> "_Trained":
        """Return what a job of so many models and rounds has found for these sites."""
        place, arrays = {site_number(name): i for i, name in enumerate(names)}, outcome.arrays
        by_model = algorithm is IFCA
        right, tested = np.zeros((2, rounds, len(names)))
        for site, round_, correct, rows in zip(*(arrays[name] for name in TESTS), strict=True):
            if round_ > 0:
                right[round_ - 1, place[int(site)]] += correct
                tested[round_ - 1, place[int(site)]] += rows
        chosen = np.zeros(len(names), dtype=np.int64)
        if by_model:
            last = dict(zip(arrays[TESTS[0]].tolist(), arrays[CHOSEN].tolist(), strict=True))
            chosen = np.array([last.get(site_number(name), -1) for name in names])
        models = {  # as they are kept by name: the kind of model, which may need an extra, is not needed
            name.removeprefix(_BY_NAME): value.reshape(k, *value.shape[1 if by_model else 0 :])
            for name, value in arrays.items()
            if name.startswith(_BY_NAME)
        }
        if not models:
            raise LookupError(_BY_NAME)
        trained = [one["sites"] for one in outcome.rounds if one["step"] == StepName.TRAIN]
        selected = [list(map(str, there)) if isinstance(there, list | tuple) else [] for there in trained]
        sent: dict[object, IntArray] = {}
        for record in outcome.rounds:
            if record["step"] in (StepName.LOSSES, StepName.TRAIN):
                both = np.array([int(str(record[way])) for way in ("bytes_up", "bytes_down")])
                sent[record["round"]] = sent.get(record["round"], 0) + both
        return cls(models, right, tested, chosen, selected, np.array(list(sent.values())).reshape(-1, 2).T)


# ---- jobs one after the other ----


def train_in_jobs(settings: PersonalSettings, split: Split, run: Run, on_round: OnRound) -> Course:
    """Cluster the devices and train a model in each cluster, in jobs one after the other.

    The settings are of the methods kfed, global and ifca. Each device is a site of the jobs that it is in, which `run` runs;
    `on_round` is called for every round when all jobs are done.

    Raises:
        UserError: a setting does not fit, or a device has a name that no site can have.
        JobFailed: a job failed, such as for want of sites: each needs its own quorum in every round, by default more
            than half. Sites that are lost are left out of it from then on.
    """
    for name in split.names:
        site_name(name)
    k, seed, algorithm = settings.k or 1, settings.seed, _algorithm_of(settings.method)
    parts, spent, selection = divided(settings.method, split, k, settings.k_local, seed, settings, run)
    start = settings.learner(split).start(1, stream(seed, 0, WEIGHTS))
    models = {name: np.repeat(value, int(parts.group.max()) + 1, axis=0) for name, value in start.items()}
    group = parts.group
    right, tested = np.zeros((2, settings.rounds, len(split.names)))
    lost, selected = list[str](), [set[str]() for _ in range(settings.rounds)]
    sent = np.zeros((2, settings.rounds), dtype=np.int64)
    for j in np.unique(parts.group):
        outcome = _run_job(settings, split, parts, int(j), selection, run)
        found = _Trained.of(outcome, algorithm, split.names, k if algorithm is IFCA else 1, settings.rounds)
        if algorithm is IFCA:
            models, group = found.models, np.maximum(found.chosen, 0)
        else:
            for name, value in found.models.items():
                models[name][j] = value[0]
        right, tested, sent = right + found.right, tested + found.tested, sent + found.sent
        for names, there in zip(selected, found.selected, strict=True):
            names.update(there)
        of_model = "" if algorithm is IFCA else f" (model {j})"
        lost += [text + of_model for text in refusal_texts(outcome.refused)]
    held = np.array([len(test) for test in split.test.values()])
    if not np.any(tested[-1] == held):
        raise JobFailed(f"no device was tested after the last round. {'; '.join(lost)}")
    accuracy = np.where(tested == held, right / held, np.nan)
    for index, so_far in enumerate(np.cumsum(sent, axis=1).T):
        on_round(index + 1, accuracy[index], *(so_far + spent).tolist())
    by_round = () if selection is None else [sorted(names) for names in selected]
    return Course(models, parts, group, accuracy, sent[0], sent[1], *spent, by_round, lost)


def _run_job(
    settings: PersonalSettings, split: Split, parts: Parts, j: int, selection: Selection | None, run: Run
) -> Outcome:
    """Train the model of cluster j by the rows of its devices in that cluster; IFCA's models by all rows."""
    members = [int(p) for p in np.flatnonzero(parts.group == j)]
    names = [split.names[parts.device[p]] for p in members]
    sites: Mapping[str, Rows] = {name: _table(parts, p) for name, p in zip(names, members, strict=True)}
    params: dict[str, Any] = {
        "model": settings.model,
        **{name: getattr(settings, name) for name in TRAINED_BY},
        "rounds": settings.rounds,
        "classes": max(split.classes, 2),
        "class_column": CLASS_COLUMN,
        "test_column": _TEST,
        "min_count": 1,  # as in one process, where nothing is sent
        "places": dict(zip(names, members, strict=True)),
        "parts": len(parts.group),
    }
    if selection is not None and selection.m < int((parts.rows[members] > 0).sum()):
        params |= {**settings.selection_params(), "clusters": selection.clusters}
    return run(_algorithm_of(settings.method), params, sites, settings.job_options(len(sites)))


def _table(parts: Parts, p: int) -> Table:
    """Return the rows of a part with their class, those held out last."""
    train, test = parts.train[p], parts.test[p]
    X = np.concatenate([train.X, test.X])
    y, held = np.concatenate([train.y, test.y]), np.repeat([0.0, 1.0], [len(train), len(test)])
    columns = (*(f"x{i}" for i in range(X.shape[1])), CLASS_COLUMN, _TEST)
    return Table(np.column_stack([X, y, held]), columns)


# ---- jobs for provisioned sites ----


def export_jobs(settings: ExportSettings, folder: Path) -> list[Path]:
    """Write the jobs of a method: `folder`/cluster-0 and so on for kfed, `folder`/ifca, or `folder`/global.

    A job of a cluster goes to its sites only, at most all of which a round can need.

    Args:
        settings: what to train, and at which sites.
        folder: where to write; each job's own folder there must be new, or hold an older export.

    Raises:
        UserError: the clusters are none of k-FED, a site has rows of several clusters, or a job's folder cannot be written.
    """
    clusters = None
    if settings.clusters is not None:
        outcome, about = read_finished(Path(settings.clusters))
        if about["algorithm"] != KFED:
            raise UserError(
                f"{Path(settings.clusters)} has a result of {about['algorithm']}; personalised models need one of {KFED}"
            )
        clusters = clusters_of_sites(outcome)
    if settings.method != KFED:
        params = {**settings.selection_params(), "clusters": clusters}
        return [_export(folder / settings.method, settings, params, settings.sites)]
    by_cluster, written = _sites_by_cluster(clusters or {}), []
    check_fewer(settings.per_round, settings.candidates, [len(sites) for sites in by_cluster.values()])
    for cluster, sites in by_cluster.items():
        params = {"cluster": cluster}
        if settings.per_round is not None and settings.per_round < len(sites):
            params |= settings.selection_params()
        written.append(_export(folder / f"cluster-{cluster}", settings, params, sites))
    return written


def _sites_by_cluster(clusters: Mapping[str, Sequence[int]]) -> dict[int, list[str]]:
    """Return the names of the sites of each cluster; raise UserError where a site has rows of several."""
    if several := [site for site, own in clusters.items() if len(own) > 1]:
        raise UserError(
            f"{several[0]} has rows of {len(clusters[several[0]])} clusters, and a site trains with all of its rows; run k-FED "
            "with k_local=1"
        )
    found = sorted({cluster for own in clusters.values() for cluster in own})
    return {cluster: [site for site, own in clusters.items() if cluster in own] for cluster in found}


def _export(folder: Path, settings: ExportSettings, own: Mapping[str, object], sites: Sequence[str] | None) -> Path:
    """Write the job of this name for these sites, at most all of which a round can need; None for all that are connected."""
    options = settings.job_options(None if sites is None else len(sites))
    options = options if sites is None else options.simulated(sites)
    params = {name: getattr(settings, name) for name in ("model", "rounds", *TRAINED_BY, "test_share", "classes")}
    params |= {"class_column": settings.label or CLASS_COLUMN, **own}
    job = build_job(_algorithm_of(settings.method), params, options, job_name=folder.name, sites=sites)
    return export_job(job, folder)


# ---- the result of jobs at provisioned sites ----


@dataclass(frozen=True, eq=False)
class _Job:
    """A finished job: its folder, its result, and what is read from that."""

    folder: Path
    outcome: Outcome
    about: dict[str, Any]
    classes: int
    trained: _Trained

    @property
    def cluster(self) -> int | None:
        """Return the number of k-FED's cluster whose sites it is of; None for other sites."""
        number: int | None = self.about["params"].get("cluster")
        return number

    @property
    def models(self) -> int:
        """Return how many models it has trained."""
        return len(next(iter(self.trained.models.values())))

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what the jobs of one method have in common."""
        shapes = [(name, value.shape[1:]) for name, value in self.trained.models.items()]
        rounds, model = len(self.trained.right), self.about["params"].get("model")
        return (self.about["algorithm"], self.cluster is None, model, rounds, self.classes, shapes)


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
    of_kfed = len(jobs) > 1 or first.cluster is not None
    method = "ifca" if first.about["algorithm"] == IFCA.name else "kfed" if of_kfed else "global"
    names, before = [site for job in jobs for site in job.outcome.sites], np.cumsum([0, *(job.models for job in jobs)])
    used = [
        {int(start + model): None} if model >= 0 else {}
        for start, job in zip(before[:-1], jobs, strict=True)
        for model in job.trained.chosen
    ]
    tested = np.concatenate([job.trained.tested for job in jobs], axis=1)
    with np.errstate(invalid="ignore"):
        accuracy = np.concatenate([job.trained.right for job in jobs], axis=1) / tested
    if not (tested[-1] > 0).any():
        raise UserError(
            f"{first.folder}: no site tested its models, as with fewer rows held out than min_count; the weights are in its "
            "result.npz as weights.*"
        )
    up, down = sum(job.trained.sent.sum(axis=1) for job in jobs).tolist()
    params = {name: value for name, value in first.about["params"].items() if name not in ("cluster", "clusters")}
    about = {"method": method, "k": int(before[-1]), "seed": first.about["seed"]}
    clusters = {} if first.cluster is None else {"clusters": [job.cluster for job in jobs]}
    selects = any(job.about["params"].get("select", ALL) != ALL for job in jobs)
    by_round = zip(*(job.trained.selected for job in jobs), strict=True) if selects else ()
    return PersonalResult(
        settings={**params, **about, **clusters},
        names=names,
        classes=list(range(first.classes)),
        models={name: np.concatenate([job.trained.models[name] for job in jobs]) for name in first.trained.models},
        models_of=dict(zip(names, used, strict=True)),
        accuracy=accuracy,
        selected=[sorted(site for there in round_ for site in there) for round_ in by_round],
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
    try:
        trained = _Trained.of(outcome, algorithm, outcome.sites, int(about["k"]), aggregator.params.rounds)
        return _Job(folder, outcome, about, int(outcome.arrays["model"][1]), trained)
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"{folder} is no result of {algorithm.name}, or was edited: {type(error).__name__}") from None


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
