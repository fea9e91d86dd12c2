"""Networks at devices: one tensor program over all of them. Needs the extra `deep`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.deep.threads import one_torch_thread, seeded
from flareclust.personal.learners import Among, Learner, Weights, picked
from flareclust.personal.local_training import Devices, averaged_round, correct, losses, make_devices, train
from flareclust.personal.rows import Labelled


@dataclass(frozen=True)
class Perceptron(Learner[Devices]):
    """A learner: a network with one hidden layer, trained by stochastic gradient descent.

    Attributes:
        batch: rows of an update; None for all rows of a device.
        loss_rows: at most so many rows of a device, its first ones, count for a loss; None for all. Devices' rows must
            then be in no particular order.
    """

    columns: int
    classes: int
    hidden: int = 200
    lr: float = 0.01
    updates: int = 10
    batch: int | None = 10
    loss_rows: int | None = None

    def start(self, count: int, rng: np.random.Generator) -> Weights:
        """Return the weights of `count` different networks (count, ...) float32."""
        networks = [self._network(int(rng.integers(2**31))) for _ in range(count)]
        return {
            name: np.stack([dict(one.named_parameters())[name].detach().numpy() for one in networks])
            for name, _ in networks[0].named_parameters()
        }

    def hold(self, rows: Sequence[Labelled]) -> Devices:
        """Return the rows of the parts as one padded tensor."""
        return make_devices([one.X for one in rows], [one.y for one in rows], empty=True)

    def train(self, weights: Weights, data: Devices, rng: np.random.Generator, among: Among | None = None) -> Weights:
        """Return the weights of each part after its local updates."""
        with one_torch_thread():
            how = self._how(rng, among)
            trained = train(self._network(), _tensors(weights), data, batch=self.batch, **how)
        return {name: value.numpy() for name, value in trained.items()}

    def round(
        self,
        models: Weights,
        group: IntArray,
        data: Devices,
        rows: IntArray,
        rng: np.random.Generator,
        among: Among | None = None,
    ) -> Weights:
        """Return the models after a round of federated averaging."""
        if self.batch is None:
            return super().round(models, group, data, rows, rng, among)
        with one_torch_thread():
            how = self._how(rng, among)
            after = averaged_round(_tensors(models), torch.from_numpy(group), data, batch=self.batch, **how)
        return {name: value.numpy() for name, value in after.items()}

    def losses(self, models: Weights, data: Devices) -> FloatArray:
        """Return the mean cross-entropy of each model on each part's rows, (k, p)."""
        some = data if self.loss_rows is None else data.first(self.loss_rows)
        with one_torch_thread():
            each = (_copies(models, j, len(data)) for j in range(len(next(iter(models.values())))))
            return np.stack([losses(self._network(), model, some).double().numpy() for model in each])

    def correct(self, models: Weights, group: IntArray, data: Devices) -> IntArray:
        """Return how many rows of each part get their class, (p,)."""
        right, groups = np.zeros(len(data), dtype=np.int64), np.unique(group)
        with one_torch_thread():
            if len(groups) == len(data):  # one by one would take longer than a copy of the weights
                return correct(self._network(), _tensors(picked(models, group)), data).numpy()
            for j in groups:
                at = np.flatnonzero(group == j)
                own = _copies(models, int(j), len(at))
                right[at] = correct(self._network(), own, data.take(torch.from_numpy(at))).numpy()
        return right

    def full_gradient(self) -> "Perceptron":
        """Return a learner with a single update by all rows."""
        return replace(self, updates=1, batch=None)

    def _how(self, rng: np.random.Generator, among: Among | None) -> dict[str, Any]:
        """Return the settings of local training."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        return {"updates": self.updates, "lr": self.lr, "generator": generator, "among": among}

    def _network(self, seed: int = 0) -> nn.Module:
        """Return a network with one hidden layer of rectified units, its weights drawn by a seed."""
        with seeded(seed):
            return nn.Sequential(nn.Linear(self.columns, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.classes))


def _copies(models: Weights, j: int, m: int) -> dict[str, Tensor]:
    """Return the weights of one model for each of m devices, as views."""
    return {name: torch.from_numpy(value[j]).expand(m, *value.shape[1:]) for name, value in models.items()}


def _tensors(weights: Weights) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in weights.items()}
