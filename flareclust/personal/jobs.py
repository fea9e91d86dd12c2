"""Personalised models as NVFlare jobs: one for the clustering, then one of federated averaging for each cluster; or one of IFCA.

The jobs are those of `flareclust.personal.executor` and `aggregator`, through the controller of all other jobs. Random
numbers and the order of sums are those of `flareclust.personal.methods`, so that the linear models are the same bit for bit.
Networks are the same up to rounding: in one process, the devices of a cluster are one product of matrices.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import site_name
from flareclust.core.client_selection import Selection
from flareclust.data.tables import Rows, Table
from flareclust.executors.kfed import site_number
from flareclust.federation.exchanges import refusal_texts
from flareclust.personal.aggregator import CHOSEN, TESTS
from flareclust.personal.clusters import Parts, Run
from flareclust.personal.learners import WEIGHTS, shaped, stacked_models
from flareclust.personal.methods import Course, OnRound, divided
from flareclust.personal.rows import CLASS_COLUMN, Split
from flareclust.personal.settings import TRAINED_BY, PersonalSettings
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import LOSSES, TRAIN

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


def job_algorithm(method: str) -> Algorithm:
    """Return what a job of a method runs."""
    return IFCA if method == "ifca" else FEDAVG


#: The column with rows held out; those that are neither this nor the class are numbered.
_TEST = "held_out"


def train_in_jobs(settings: PersonalSettings, split: Split, run: Run, on_round: OnRound) -> Course:
    """Cluster the devices and train a model in each cluster, in jobs one after the other.

    Args:
        settings: of the methods kfed, global and ifca.
        split: the devices' rows; each device is a site of the jobs that it is in.
        run: the engine.
        on_round: called for every round when all jobs are done.

    Raises:
        UserError: a setting does not fit, or a device has a name that no site can have.
        JobFailed: a job failed, such as for want of sites: each needs its own quorum in every round, by default more
            than half. Sites that are lost are left out of it from then on.
    """
    for name in split.names:
        site_name(name)
    k, k_local, seed = settings.k or 1, settings.k_local, settings.seed
    (parts, spent), selection = divided(settings.method, split, k, k_local, seed, settings, run)
    start = settings.learner(split).start(1, stream(seed, 0, WEIGHTS))
    models = {name: np.repeat(value, int(parts.group.max()) + 1, axis=0) for name, value in start.items()}
    group = parts.group
    right, tested = np.zeros((2, settings.rounds, len(split.names)))
    lost, selected = list[str](), [set[str]() for _ in range(settings.rounds)]
    bytes_up, bytes_down = np.zeros((2, settings.rounds), dtype=np.int64)
    for j in np.unique(parts.group):
        outcome = _job(settings, split, parts, int(j), selection, run)
        if settings.method == "ifca":
            models = stacked_models(outcome.arrays[WEIGHTS], start, k)
            group = np.maximum(chosen_in(outcome, split.names), 0)
        else:
            for name, value in shaped(outcome.arrays[WEIGHTS], start).items():
                models[name][j] = value[0]
        found, rows = tests_of(outcome, split.names, settings.rounds)
        right, tested = right + found, tested + rows
        for names, there in zip(selected, trained_in(outcome), strict=True):
            names.update(there)
        of_model = "" if settings.method == "ifca" else f" (model {j})"
        lost += [text + of_model for text in refusal_texts(outcome.refused)]
        for way, total in (("bytes_up", bytes_up), ("bytes_down", bytes_down)):
            total += bytes_by_round(outcome, way)
    held = np.array([len(test) for test in split.test.values()])
    if not np.any(tested[-1] == held):
        raise JobFailed(f"no device was tested after the last round. {'; '.join(lost)}")
    accuracy = np.where(tested == held, right / held, np.nan)
    up, down = spent[0] + np.cumsum(bytes_up), spent[1] + np.cumsum(bytes_down)
    for index in range(settings.rounds):
        on_round(index + 1, accuracy[index], int(up[index]), int(down[index]))
    by_round = () if selection is None else [sorted(names) for names in selected]
    return Course(models, parts, group, accuracy, bytes_up, bytes_down, *spent, by_round, lost)


def _job(
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
    return run(job_algorithm(settings.method), params, sites, settings.job_options(len(sites)))


def _table(parts: Parts, p: int) -> Table:
    """Return the rows of a part with their class, those held out last."""
    train, test = parts.train[p], parts.test[p]
    X = np.concatenate([train.X, test.X])
    y, held = np.concatenate([train.y, test.y]), np.repeat([0.0, 1.0], [len(train), len(test)])
    columns = (*(f"x{i}" for i in range(X.shape[1])), CLASS_COLUMN, _TEST)
    return Table(np.column_stack([X, y, held]), columns)


def tests_of(outcome: Outcome, names: list[str], rounds: int) -> tuple[FloatArray, FloatArray]:
    """Return how many rows of each device got their class after each round, and how many were tested, (rounds, m) each."""
    place = {site_number(name): i for i, name in enumerate(names)}
    right, tested = np.zeros((2, rounds, len(names)))
    for site, round_, correct, rows in zip(*(outcome.arrays[name] for name in TESTS), strict=True):
        if round_ > 0:
            right[round_ - 1, place[int(site)]] += correct
            tested[round_ - 1, place[int(site)]] += rows
    return right, tested


def chosen_in(outcome: Outcome, names: list[str]) -> IntArray:
    """Return the model of IFCA that each device chose when it was last tested, (m,); -1 where none is known."""
    last = dict(zip(outcome.arrays[TESTS[0]].tolist(), outcome.arrays[CHOSEN].tolist(), strict=True))
    return np.array([last.get(site_number(name), -1) for name in names])


def trained_in(outcome: Outcome) -> list[list[str]]:
    """Return the sites that trained in each round of a job."""
    return [[str(site) for site in _listed(record["sites"])] for record in outcome.rounds if record["step"] == TRAIN]


def bytes_by_round(outcome: Outcome, way: str) -> IntArray:
    """Return the bytes of a job's rounds of training, (rounds,); as in one process, the last test is not counted."""
    found: dict[object, int] = {}
    for record in outcome.rounds:
        if record["step"] in (LOSSES, TRAIN):
            found[record["round"]] = found.get(record["round"], 0) + int(str(record[way]))
    return np.array(list(found.values()), dtype=np.int64)


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
