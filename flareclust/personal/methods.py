"""The methods that are compared: k-FED's personalised models, IFCA, one model for all, a model per device.

Sources: Dennis, Li, Smith, "Heterogeneity for the Win: One-Shot Federated Clustering" (2021), section 4.2.2 (k-FED, then federated
averaging per cluster); Ghosh et al., "An Efficient Framework for Clustered Federated Learning" (2020), Algorithm 1 (IFCA); McMahan
et al. (2017) (averaging).

All four are the same loop over parts, which are the devices' rows by cluster: each part trains a copy of one of the
models, and each model becomes the mean of its copies. They differ in the parts and in who chooses the model. The clustering is
flareclust's own algorithm "kfed"; nothing of it is repeated here.

Readings where the papers are open:
1. All devices take part in every round, unless they are selected; means are weighted by rows, as in federated averaging. IFCA's paper has plain means.
2. IFCA's devices choose by the loss on the rows that they train with. After the last round they choose once more, for
   the test; the models of that choice are those of a next round, so its bytes are not counted.
3. IFCA's models start from different weights, those of k-FED's clusters from the same.
4. Bytes are those of the weights, of k-FED also those of the one-shot clustering, counted before the first round. With
   client selection a candidate gets the weights and sends a number of 8 bytes, and gets them again to train.
5. With client selection each model's devices are selected among themselves; those of IFCA among all.
6. Rows held out are placed in k-FED's clusters as Definition 3.3 places a device's rows: with the nearest of its local centers.
7. A device with several local clusters (k' > 1) takes part in the training of each one's model with the rows of that
   cluster, and each row is predicted by the model of its cluster. Classes are not used for the clustering.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust._foundation.validation import check_choice, check_int
from flareclust.core.client_selection import POW_D_KFED, Selection, clusters_by_client
from flareclust.data.tables import Rows, Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.exchanges import refusal_texts
from flareclust.federation.executor import ClusteringExecutor
from flareclust.personal.learners import (
    LARGEST,
    NOT_FINITE,
    TRAINING,
    WEIGHTS,
    Learner,
    Weights,
    all_bounded,
    model_bytes,
    moved,
    picked,
)
from flareclust.personal.rows import Labelled, Split
from flareclust.personal.selection import SelectionSettings, check_fewer, check_method
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome, names_of_sites
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.schema import nbytes
from flareclust.protocol.task import StepName, Task

KFED = "kfed"

METHODS = (KFED, "ifca", "global", "local")
AVERAGING = ("models", "gradients")

#: All devices train in every round.
_EVERYONE = SelectionSettings()

#: What a loss that a device sends takes.
_LOSS_BYTES = 8

#: Called after each round with its number from 1, the accuracy of each device (m,) and the bytes up and down so far.
OnRound = Callable[[int, FloatArray, int, int], None]


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of devices, cut up by cluster; without clusters a device is one part.

    Attributes:
        device: (p,) position of the device whose rows they are.
        train: rows to train with.
        test: rows held out.
        group: (p,) the cluster; 0 where there are none.
        left_out: why devices took no part in the clustering, a sentence each; they are placed by what the others found.
    """

    device: IntArray
    train: list[Labelled]
    test: list[Labelled]
    group: IntArray
    left_out: Sequence[str] = ()

    @property
    def rows(self) -> IntArray:
        """Return the number of rows that each part trains with, (p,)."""
        return np.array([len(one) for one in self.train])


#: An engine: runs an algorithm with its parameters on the sites' rows.
Run = Callable[[Algorithm, Mapping[str, object], Mapping[str, Rows], JobOptions], Outcome]


@dataclass(frozen=True, eq=False)
class Course:
    """How the training went.

    Attributes:
        models: the final weights, stacked (k, ...); of the method local one per device.
        parts: the devices' rows as they were trained with.
        group: (p,) the model of each part in the end.
        accuracy: (rounds, m) share of each device's held-out rows that got their class, after each round; NaN where a device
            was not tested, since a job lost it.
        bytes_up: (rounds,) bytes of weights from all devices, each round.
        bytes_down: (rounds,) bytes of weights to all devices, each round.
        clustering_up: bytes of the one-shot clustering from all devices; 0 without one.
        clustering_down: the same to all devices.
        selected: the devices that trained in each round, where they are selected; else empty.
        lost: why devices were left out of jobs, a sentence each.
    """

    models: Weights
    parts: Parts
    group: IntArray
    accuracy: FloatArray
    bytes_up: IntArray
    bytes_down: IntArray
    clustering_up: int = 0
    clustering_down: int = 0
    selected: Sequence[Sequence[str]] = ()
    lost: Sequence[str] = ()


def train_models(
    method: str,
    learner: Learner[Any],
    split: Split,
    *,
    k: int,
    rounds: int,
    seed: int = 0,
    k_local: int = 1,
    averaging: str = "models",
    selecting: SelectionSettings = _EVERYONE,
    on_round: OnRound = lambda index, accuracy, up, down: None,
) -> Course:
    """Train the models of one method.

    Args:
        method: one of `METHODS`.
        learner: the kind of model.
        split: the devices' rows.
        k: number of clusters, of kfed, ifca and the selection pow-d-kfed.
        rounds: how often the devices train.
        seed: of everything random; methods with the same seed draw the same rows for the same parts.
        k_local: k', local clusters of a device, of k-FED.
        averaging: of IFCA: "models" that were trained locally, or "gradients" of all rows, one update a round.
        selecting: which devices train in a round.
        on_round: called after each round.

    Raises:
        UserError: a setting does not fit, such as more clusters than devices.
        JobFailed: the loss diverged, or k-FED failed.
    """
    check_choice("method", method, METHODS)
    check_choice("averaging", averaging, AVERAGING)
    check_int("rounds", rounds, minimum=1)
    parts, spent, selection = divided(method, split, k, k_local, seed, selecting)
    names = [split.names[i] for i in parts.device]
    loop = _Loop(method, learner, parts, names, averaging == "gradients", seed, selection)
    return loop.run(k, rounds, spent, on_round, [len(test) for test in split.test.values()])


def divided(
    method: str, split: Split, k: int, k_local: int, seed: int, selecting: SelectionSettings, run: Run | None = None
) -> tuple[Parts, tuple[int, int], Selection | None]:
    """Return the devices' rows as a method trains with them, the bytes that the clustering took, up and down, and how devices are
    chosen for a round, None for all of them.

    The arguments are those of `train_models`, and the engine to run k-FED in, None for this process.

    Raises:
        UserError: there are more clusters than the devices can have, a device has too few rows for k-FED, the method does not
            select devices in this way, or as many of them are to train in a round as there are.
        JobFailed: the rows cannot be clustered.
    """
    check_method(method, selecting.select)
    by_clusters = selecting.select == POW_D_KFED
    if method in (KFED, "ifca") or by_clusters:
        check_int("k", k, minimum=1)
        m = len(split.train)
        if k > m * (check_int("k_local", k_local, minimum=1) if method != "ifca" else 1):
            raise UserError(f"k is {k}, more clusters than {m} devices can have; use a smaller k, or more devices")
    check_fewer(selecting.per_round, selecting.candidates, [len(split.train)])
    if method != KFED and not by_clusters:
        return _whole(split), (0, 0), selecting.selection(None, seed)
    algorithm, params = registry.get(KFED), {"k_local": k_local}
    rows = {name: one.X for name, one in split.train.items()}
    executor, _ = algorithm.build(k, seed, params)
    _check_enough(rows, executor.min_count, placing=method == KFED)
    outcome = (run or run_inprocess)(algorithm, params, rows, JobOptions(k=k, seed=seed, assess=False))
    spent = outcome.bytes_up, outcome.bytes_down
    if method != KFED:
        return _whole(split, outcome), spent, selecting.selection(clusters_of_sites(outcome), seed)
    arrays = executor.placing(outcome.arrays)
    parts = _by_cluster(split, executor, outcome, arrays, seed)
    sizes = np.bincount(parts.group[parts.rows > 0])
    check_fewer(selecting.per_round, selecting.candidates, sizes[sizes > 0].tolist())
    placing = len(rows) * nbytes(arrays)  # the result goes to all devices, which place their rows by it
    return parts, (spent[0], spent[1] + placing), selecting.selection(None, seed)


def _check_enough(rows: Mapping[str, FloatArray], needed: int, *, placing: bool) -> None:
    """Raise UserError where k-FED would lack so many devices that it ends, or one whose rows are to be placed by its own clusters."""
    few = [name for name, X in rows.items() if len(X) < needed]
    if 2 * len(few) >= len(rows):
        raise UserError(
            f"kfed needs {needed} rows to train with at more than half of the devices, and {len(few)} of {len(rows)} have fewer, "
            f"such as {few[0]}; use fewer devices, or a smaller test_share"
        )
    if few and placing:
        raise UserError(
            f"{few[0]} has {len(rows[few[0]])} of the {needed} rows to train with that kfed needs at every device, and "
            f"{len(few)} of {len(rows)} devices have fewer; use fewer devices, or a smaller test_share"
        )


def _whole(split: Split, clustering: Outcome | None = None) -> Parts:
    """Return each device as one part."""
    m = len(split.train)
    left_out = () if clustering is None else refusal_texts(clustering.refused)
    whole = list(split.train.values()), list(split.test.values())
    return Parts(np.arange(m), *whole, np.zeros(m, dtype=np.int64), left_out)


def _by_cluster(split: Split, executor: ClusteringExecutor, outcome: Outcome, arrays: Message, seed: int) -> Parts:
    """Return the rows of each device by their cluster in k-FED's result, of which `arrays` place them."""
    context = SiteContext(executor.min_count)
    device, train, test, group = [], [], [], []
    for i, name in enumerate(split.names):
        seen = split.train[name].X
        every = np.concatenate([seen, split.test[name].X])
        rows = SiteRows(Table(every), stream(seed, 0, name), context=context, computed=seen)
        own, held = np.split(executor.labels(Task(StepName.ASSESS, 1, arrays, name), rows), [len(seen)])
        for cluster in np.unique(np.concatenate([own, held])):
            device.append(i)
            group.append(int(cluster))
            train.append(split.train[name].take(own == cluster))
            test.append(split.test[name].take(held == cluster))
    return Parts(np.array(device), train, test, np.array(group), refusal_texts(outcome.refused))


def clusters_of_sites(outcome: Outcome) -> dict[str, list[int]]:
    """Return the clusters that each site has rows of, from a result of k-FED."""
    senders = names_of_sites(outcome, StepName.CLUSTER)
    return clusters_by_client(outcome.arrays["tau"], outcome.arrays["received_site"], senders)


@dataclass(frozen=True)
class _Loop:
    """Rounds of one method."""

    method: str
    learner: Learner[Any]
    parts: Parts
    names: list[str]
    gradients: bool
    seed: int
    selection: Selection | None = None

    def run(self, k: int, rounds: int, spent: tuple[int, int], on_round: OnRound, held: list[int]) -> Course:
        train, test = self.learner.hold(self.parts.train), self.learner.hold(self.parts.test)
        models = self._start(k)
        group = self._chosen(models, train)
        accuracy, size, selected = [], model_bytes(models), []
        sent = np.zeros((2, rounds), dtype=np.int64)
        for index in range(rounds):
            at, asked = self._taken(models, index)
            models = self._after(models, group, train, at, stream(self.seed, index, TRAINING))
            _check_bounded(models, index, group, self.names)
            group = self._chosen(models, train)
            right = np.bincount(self.parts.device, weights=self.learner.correct(models, group, test))
            accuracy.append(right / held)
            sent[:, index] = self._bytes(size, k, at, asked)
            selected.append(sorted({self.names[p] for p in at}))
            on_round(index + 1, accuracy[-1], *(np.array(spent) + sent.sum(axis=1)).tolist())
        course = Course(models, self.parts, group, np.stack(accuracy), sent[0], sent[1], *spent)
        return course if self.selection is None else replace(course, selected=selected)

    def _taken(self, models: Weights, index: int) -> tuple[IntArray, int]:
        """Return the parts (t,) that train in a round, in their order, and how many were asked for their loss before."""
        if self.selection is None:
            return np.arange(len(self.parts.device)), 0
        taken, asked = list[int](), 0
        for j in np.unique(self.parts.group):
            place = {self.names[p]: int(p) for p in np.flatnonzero(self.parts.group == j)}
            rows = {name: int(self.parts.rows[p]) for name, p in place.items() if self.parts.rows[p]}
            losses = partial(self._losses, picked(models, np.array([j])), place, index)
            chosen, candidates = self.selection.choose(rows, index, losses)
            taken += [place[name] for name in chosen]
            asked += candidates
        return np.sort(np.array(taken, dtype=np.int64)), asked

    def _start(self, k: int) -> Weights:
        rng = stream(self.seed, 0, WEIGHTS)
        if self.method == "ifca":
            return self.learner.start(k, rng)
        count = {"global": 1, "local": len(self.parts.device)}.get(self.method, int(self.parts.group.max()) + 1)
        return {name: np.repeat(value, count, axis=0) for name, value in self.learner.start(1, rng).items()}

    def _losses(self, model: Weights, place: Mapping[str, int], index: int, names: Sequence[str]) -> dict[str, float]:
        """Return the loss of a model (1, ...) on the rows to train with of each of these parts."""
        found = self.learner.losses(model, self.learner.hold([self.parts.train[place[name]] for name in names]))[0]
        if not np.isfinite(found).all():
            raise JobFailed(f"round {index + 1}: the loss of {names[int(np.isfinite(found).argmin())]} {NOT_FINITE}")
        return dict(zip(names, map(float, found), strict=True))

    def _after(self, models: Weights, group: IntArray, train: Any, at: IntArray, rng: np.random.Generator) -> Weights:
        """Return the models after a round in which the parts `at` train."""
        own, rows, among = group[at], self.parts.rows[at], None
        if self.selection is not None:
            train, among = self.learner.hold([self.parts.train[p] for p in at]), (at.tolist(), len(group))
        if self.method == "ifca" and self.gradients:
            return moved(models, self.learner.full_gradient().train(picked(models, own), train, rng), own, rows)
        return self.learner.round(models, own, train, rows, rng, among)

    def _chosen(self, models: Weights, train: Any) -> IntArray:
        if self.method == "ifca":
            return np.asarray(self.learner.losses(models, train).argmin(axis=0))
        return np.arange(len(self.parts.device)) if self.method == "local" else self.parts.group

    def _bytes(self, size: int, k: int, at: IntArray, asked: int) -> tuple[int, int]:
        """Return the bytes up and down of a round, over all devices."""
        if self.method == "local":
            return 0, 0
        senders = int((self.parts.rows[at] > 0).sum())
        receivers = (len(at) + asked) * (k if self.method == "ifca" else 1)
        return senders * size + asked * _LOSS_BYTES, receivers * size


def _check_bounded(models: Weights, index: int, group: IntArray, names: list[str]) -> None:
    if all_bounded(models):
        return
    users = [name for name, j in zip(names, group, strict=True) if not all_bounded(picked(models, np.array([j])))]
    raise JobFailed(
        f"round {index + 1}: the weights that {users[0]} and {len(users) - 1} others trained are beyond {LARGEST:g}, so the "
        "loss diverged; use a smaller lr, or scale the columns"
    )
