"""The methods that are compared: k-FED's personalised models, IFCA, one model for all, a model per device.

Sources: Dennis, Li, Smith (2021), section 4.2.2 (k-FED, then federated averaging per cluster); Ghosh et al., "An
Efficient Framework for Clustered Federated Learning" (2020), Algorithm 1 (IFCA); McMahan et al. (2017) (averaging).

All four are the same loop over parts, which are the devices' rows by cluster: each part trains a copy of one of the
models, and each model becomes the mean of its copies. They differ in the parts and in who chooses the model.

Readings where the papers are open:
1. All devices take part in every round; means are weighted by rows, as in federated averaging. IFCA's paper has plain means.
2. IFCA's devices choose by the loss on the rows that they train with. After the last round they choose once more, for
   the test; the models of that choice are those of a next round, so its bytes are not counted.
3. IFCA's models start from different weights, those of k-FED's clusters from the same.
4. Bytes are those of the weights, of k-FED also those of the one-shot clustering, counted before the first round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_choice, check_int
from flareclust.personal.clusters import Clustering, Parts, clustered, whole
from flareclust.personal.learners import (
    LARGEST,
    TRAINING,
    WEIGHTS,
    Learner,
    Weights,
    all_bounded,
    model_bytes,
    moved,
    picked,
)
from flareclust.personal.rows import Split

METHODS = ("kfed", "ifca", "global", "local")
AVERAGING = ("models", "gradients")

#: Called after each round with its number from 1, the accuracy of each device (m,) and the bytes up and down so far.
OnRound = Callable[[int, FloatArray, int, int], None]


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
    clustering: Clustering | None = None,
    on_round: OnRound = lambda index, accuracy, up, down: None,
) -> Course:
    """Train the models of one method.

    Args:
        method: one of `METHODS`.
        learner: the kind of model.
        split: the devices' rows.
        k: number of clusters; the methods global and local do not use it.
        rounds: how often the devices train.
        seed: of everything random; methods with the same seed draw the same rows for the same parts.
        k_local: k', local clusters of a device, of k-FED.
        averaging: of IFCA: "models" that were trained locally, or "gradients" of all rows, one update a round.
        clustering: what `clustered` has returned for these devices, for k-FED; None to cluster them.
        on_round: called after each round.

    Raises:
        UserError: a setting does not fit, such as more clusters than devices.
        JobFailed: the loss diverged, or k-FED failed.
    """
    check_choice("method", method, METHODS)
    check_choice("averaging", averaging, AVERAGING)
    check_int("rounds", rounds, minimum=1)
    check_clusters(method, split, k, k_local)
    parts, spent = whole(split), (0, 0)
    if method == "kfed":
        parts, spent = clustering or clustered(split, k, k_local, seed)
    loop = _Loop(method, learner, parts, averaging == "gradients", seed)
    return loop.run(k, rounds, spent, on_round, [len(test) for test in split.test.values()], split.names)


def check_clusters(method: str, split: Split, k: int, k_local: int) -> None:
    """Raise UserError where there are more clusters than the devices can have."""
    if method in ("kfed", "ifca"):
        check_int("k", k, minimum=1)
        most = len(split.train) * (check_int("k_local", k_local, minimum=1) if method == "kfed" else 1)
        if k > most:
            raise UserError(
                f"k is {k}, more clusters than {len(split.train)} devices can have; use a smaller k, or more devices"
            )


@dataclass(frozen=True)
class _Loop:
    """Rounds of one method."""

    method: str
    learner: Learner[Any]
    parts: Parts
    gradients: bool
    seed: int

    def run(
        self, k: int, rounds: int, spent: tuple[int, int], on_round: OnRound, held: list[int], names: list[str]
    ) -> Course:
        rows, train, test = self.parts.rows, self.learner.hold(self.parts.train), self.learner.hold(self.parts.test)
        models = self._start(k)
        group = self._chosen(models, train)
        accuracy, size = [], model_bytes(models)
        up, down = self._bytes(size, k)
        for index in range(rounds):
            models = self._after(models, group, train, rows, stream(self.seed, index, TRAINING))
            _check_bounded(models, index, group, [names[i] for i in self.parts.device])
            group = self._chosen(models, train)
            right = np.bincount(self.parts.device, weights=self.learner.correct(models, group, test))
            accuracy.append(right / held)
            on_round(index + 1, accuracy[-1], spent[0] + (index + 1) * up, spent[1] + (index + 1) * down)
        costs = (np.full(rounds, up), np.full(rounds, down))
        return Course(models, self.parts, group, np.stack(accuracy), *costs, *spent)

    def _start(self, k: int) -> Weights:
        rng = stream(self.seed, 0, WEIGHTS)
        if self.method == "ifca":
            return self.learner.start(k, rng)
        count = {"global": 1, "local": len(self.parts.device)}.get(self.method, int(self.parts.group.max()) + 1)
        return {name: np.repeat(value, count, axis=0) for name, value in self.learner.start(1, rng).items()}

    def _after(self, models: Weights, group: IntArray, train: Any, rows: IntArray, rng: np.random.Generator) -> Weights:
        """Return the models after a round."""
        if self.method == "ifca" and self.gradients:
            learner = self.learner.full_gradient()
            return moved(models, learner.train(picked(models, group), train, rng), group, rows)
        return self.learner.round(models, group, train, rows, rng)

    def _chosen(self, models: Weights, train: Any) -> IntArray:
        if self.method == "ifca":
            return np.asarray(self.learner.losses(models, train).argmin(axis=0))
        return np.arange(len(self.parts.device)) if self.method == "local" else self.parts.group

    def _bytes(self, size: int, k: int) -> tuple[int, int]:
        """Return the bytes up and down of a round, over all devices."""
        if self.method == "local":
            return 0, 0
        senders = int((self.parts.rows > 0).sum())
        receivers = len(self.parts.device) * (k if self.method == "ifca" else 1)
        return senders * size, receivers * size


def _check_bounded(models: Weights, index: int, group: IntArray, names: list[str]) -> None:
    if all_bounded(models):
        return
    bad = [j for j in range(len(next(iter(models.values())))) if not all_bounded(picked(models, np.array([j])))]
    users = [name for name, j in zip(names, group, strict=True) if j in bad]
    raise JobFailed(
        f"round {index + 1}: the weights that {users[0]} and {len(users) - 1} others trained are beyond {LARGEST:g}, so the "
        "loss diverged; use a smaller lr, or scale the columns"
    )
