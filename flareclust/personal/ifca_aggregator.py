"""IFCA, the server's side: k models with different first weights, each the mean of what the sites that chose it have trained.

Source: Ghosh et al. (2020), Algorithm 1; see `flareclust.personal.ifca_executor`. Means are weighted by rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import Round
from flareclust.personal.aggregator import FedAvgAggregator
from flareclust.personal.ifca_executor import IFCAExecutor, IFCAParams
from flareclust.personal.learners import in_order
from flareclust.protocol.task import ROWS, SIZES

#: The model that a site chose, an entry for each test; -1 where it had too few rows to train with, and did not say.
CHOSEN = "tests_model"


class IFCAAggregator(FedAvgAggregator):
    """The server of IFCA.

    Result: as of federated averaging, with `weights` (k * s,) of all models, one after the other, and each by name, stacked
    (k, ...); `CHOSEN` beside the tests. `centroids` (k, s) are the weights.
    """

    params: IFCAParams

    steps = IFCAExecutor.steps

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Do as federated averaging does, and keep what the sites chose."""
        after = super().merge(round_, replies, rng)
        if round_.step in (SIZES, ROWS):
            nothing = np.zeros(0, dtype=np.int64)
            return replace(
                after, task={**after.task, "models": np.array(self.k)}, record={**after.record, CHOSEN: nothing}
            )
        chosen = np.array(
            [int(reply["counts"].argmax()) if reply["counts"].any() else -1 for reply in replies.values()],
            dtype=np.int64,
        )
        return replace(after, record={**after.record, CHOSEN: np.concatenate([round_.record[CHOSEN], chosen])})

    def averaged(self, before: FloatArray, sent: Sequence[Message]) -> FloatArray:
        """Return the weights of all models after a round; those of a model that no site chose are as before."""
        rows = in_order(reply["counts"].astype(np.float64) for reply in sent)[:, None]
        total = in_order(reply["weights"] for reply in sent).reshape(self.k, -1)
        means = np.divide(total, rows, out=before.reshape(self.k, -1).copy(), where=rows > 0)
        found: FloatArray = means.ravel()
        return found

    def result(self, round_: Round) -> Message:
        """Return the weights of all models by name, too."""
        found = super().result(round_)
        return {**found, **{f"weights.{name}": value for name, value in self.models(found).items()}}
