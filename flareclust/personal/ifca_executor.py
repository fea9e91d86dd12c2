"""IFCA, the device's side: choose the model with the smallest loss on own rows in every round, and train that one.

Source: Ghosh et al., "An Efficient Framework for Clustered Federated Learning" (2020), Algorithm 1, model averaging.

Reading: a site sends the weights of all k models, zeros but for the one that it has trained, so that sums over sites have
them by model, and secure sums mask the choice.
"""

from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core.client_selection import RANDOM
from flareclust.personal.executor import FedAvgExecutor, FedAvgParams, Tested, halves
from flareclust.personal.learners import Learner, Weights
from flareclust.personal.rows import Labelled
from flareclust.personal.selection import ALL, NO_ONE_LOSS
from flareclust.privacy.context import SiteContext
from flareclust.protocol.schema import counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import TEST, TRAIN, Task


class IFCAParams(FedAvgParams):
    """Parameters of IFCA; `k` is the number of models."""

    @model_validator(mode="after")
    def _without_losses(self) -> "IFCAParams":
        if self.select not in (ALL, RANDOM):
            raise UserError(f"select is {self.select}, and {NO_ONE_LOSS}")
        return self


class IFCAExecutor(FedAvgExecutor):
    """A site of IFCA."""

    params: IFCAParams

    steps = MappingProxyType(
        {
            **FedAvgExecutor.steps,
            TRAIN: Step(
                Tested(weights="p", counts=counts("k"), correct=counts(""), tested=counts("")), "local", summed=True
            ),
            TEST: Step(Tested(counts=counts("k"), correct=counts(""), tested=counts("")), "test", summed=True),
        }
    )

    def test(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Choose once more, and test the model chosen."""
        learner, model, chosen = self._received(task, data, context)
        rows = len(halves(data)[0])
        by_model = self.sent(np.zeros(0), rows if rows >= context.min_count else 0, chosen)
        return {"counts": by_model["counts"], **self._tested(learner, model, data, context)}

    def chosen(self, learner: Learner[Any], models: Weights, train: Labelled) -> int:
        """Return the number of the model with the smallest loss on the rows to train with."""
        return int(learner.losses(models, learner.hold([train]))[:, 0].argmin())

    def sent(self, weighted: FloatArray, rows: int, chosen: int) -> Message:
        """Return weights times rows (k * s,) and rows (k,) by model."""
        weights, by_model = np.zeros((self.k, len(weighted))), np.zeros(self.k, dtype=np.int64)
        weights[chosen], by_model[chosen] = weighted, rows
        return {"weights": weights.ravel(), "counts": by_model}
