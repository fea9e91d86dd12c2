"""Federated averaging, the server's side: draw the first weights, average those that sites have trained.

Source: McMahan et al. (2017), Algorithm 1; see `flareclust.personal.executor`. Means are weighted by rows; a site
that is lost is left out from then on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.executors.kfed import site_number
from flareclust.personal.executor import SIZES, TEST, TRAIN, FedAvgExecutor, FedAvgParams
from flareclust.personal.learners import WEIGHTS, Learner, Weights, flat, in_order, stacked_models
from flareclust.personal.models import make_learner

#: What is kept of every test, an entry for each site and round: number of the site, round of the model, and rows.
TESTS = ("tests_site", "tests_round", "tests_correct", "tests_rows")


class FedAvgAggregator(ClusteringAggregator):
    """The server of federated averaging.

    Result: `weights` (p,), the same by name, `weights.<name>`, `model` (2,), the numbers of columns and classes, and the
    tests under `TESTS`. As every job has centroids, `centroids` (1, p) are the weights: a mean over the sites.
    """

    params: FedAvgParams

    steps = FedAvgExecutor.steps

    def begin(self) -> Round:
        """Ask for the numbers of columns and classes."""
        return Round(step=SIZES)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Do what follows on the sizes, on training, or on the last test."""
        if round_.step == SIZES:
            return self._begun(replies)
        record, rates = _with_tests(round_, replies)
        if round_.step == TEST:
            centroids = round_.task["weights"].reshape(self.k, -1)
            return Round({**round_.task, "centroids": centroids}, True, rates, record)
        weights = self.averaged(round_.task["weights"], self._sorted(replies))
        last = round_.index == self.params.rounds
        return Round(
            {**round_.task, "weights": weights}, diagnostics=rates, record=record, step=TEST if last else TRAIN
        )

    def result(self, round_: Round) -> Message:
        """Return the weights by name, too."""
        found = super().result(round_)
        return {**found, **{f"weights.{name}": value[0] for name, value in self.models(found).items()}}

    def averaged(self, before: FloatArray, sent: Sequence[Message]) -> FloatArray:
        """Return the weights after a round, the means of those that the sites sent; as before where none has rows."""
        total = sum(int(reply["counts"]) for reply in sent)
        return in_order(reply["weights"] for reply in sent) / float(total) if total else before

    def models(self, found: Message) -> Weights:
        """Return the models of a result, stacked (k, ...)."""
        like = self._learner(found["model"]).start(1, np.random.default_rng(0))
        return stacked_models(found["weights"], like, self.k)

    def _begun(self, replies: Mapping[str, Message]) -> Round:
        columns = int(next(iter(replies.values()))["columns"])
        classes = max(2, self.params.classes or 0, *(int(reply["classes"]) for reply in replies.values()))
        model = np.array([columns, classes])
        start = self._learner(model).start(self.k, stream(self.seed, 0, WEIGHTS))
        weights = np.concatenate([flat(start, j) for j in range(self.k)])
        nothing = np.zeros(0, dtype=np.int64)
        return Round({"weights": weights, "model": model}, record=dict.fromkeys(TESTS, nothing), step=TRAIN)

    def _learner(self, model: Any) -> Learner[Any]:
        return make_learner(
            self.params.model, int(model[0]), int(model[1]), hidden=self.params.hidden, lr=1.0, updates=1, batch=1
        )

    def _sorted(self, replies: Mapping[str, Message]) -> list[Message]:
        """Return the replies in the order of the sites' places, or names: sums of floats depend on it in their last bits."""
        places = self.params.places or {}
        return [replies[site] for site in sorted(replies, key=lambda site: (places.get(site, 0), site))]


def _with_tests(round_: Round, replies: Mapping[str, Message]) -> tuple[Message, dict[str, float]]:
    """Return the record with the tests of a round, of the model before it, and the accuracy over all sites."""
    new = (
        [site_number(site) for site in replies],
        [round_.index - 1] * len(replies),
        [int(reply["correct"]) for reply in replies.values()],
        [int(reply["tested"]) for reply in replies.values()],
    )
    record = {
        name: np.concatenate([round_.record[name], np.array(values, dtype=np.int64)])
        for name, values in zip(TESTS, new, strict=True)
    }
    rows = sum(new[3])
    return record, {"accuracy": sum(new[2]) / rows} if rows else {}
