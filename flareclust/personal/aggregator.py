"""Federated averaging and IFCA, the server's side: draw the first weights, average those that sites have trained.

Sources: McMahan et al. (2017), Algorithm 1; of IFCA, with k models of different first weights, each the mean of what the sites that
chose it have trained: Ghosh et al. (2020), Algorithm 1; see `flareclust.personal.executor`. Means are weighted by rows; a site
that is lost is left out from then on. Where sites are selected, the server draws those of the next round when a round is over, and
asks the candidates for their losses in the same round, ahead of the training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator
from flareclust.core.client_selection import Selection
from flareclust.executors.kfed import site_number
from flareclust.personal.executor import FedAvgExecutor, FedAvgParams, IFCAExecutor, IFCAParams
from flareclust.personal.learners import WEIGHTS, Learner, Weights, flat, in_order, stacked_models
from flareclust.personal.models import make_learner
from flareclust.personal.selection import make_selection
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName

#: What is kept of every test, an entry for each site and round: number of the site, round of the model, and rows.
TESTS = ("tests_site", "tests_round", "tests_correct", "tests_rows")

#: The model that a site chose, an entry for each test; -1 where it had too few rows to train with, and did not say.
CHOSEN = "tests_model"

#: Where sites are selected: the names of those that can be, and their numbers of rows.
_ABLE, _ABLE_ROWS = "selectable", "selectable_rows"


class FedAvgAggregator(ClusteringAggregator):
    """The server of federated averaging.

    Result: `weights` (p,), the same by name, `weights.<name>`, `model` (2,), the numbers of columns and classes, and the
    tests under `TESTS`. As every job has centroids, `centroids` (1, p) are the weights: a mean over the sites.
    """

    params: FedAvgParams

    steps = FedAvgExecutor.job_steps()

    def begin(self) -> Round:
        """Ask for the numbers of columns and classes, and where sites are selected for those of rows."""
        return Round(step=StepName.SIZES if self._selection is None else StepName.ROWS)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Do what follows on the sizes, on losses, on training, or on the last test."""
        if round_.step in (StepName.SIZES, StepName.ROWS):
            return self._drawn(self._begun(replies), 0)
        if round_.step == StepName.LOSSES:
            return self._chosen(round_, replies)
        record, rates = _with_tests(round_, replies)
        if round_.step == StepName.TEST:
            centroids = round_.task["weights"].reshape(self.params.k, -1)
            kept = {name: value for name, value in record.items() if name != _ABLE_ROWS}
            return Round({**round_.task, "centroids": centroids}, True, rates, kept)
        weights = self.averaged(round_.task["weights"], self._sorted(replies))
        after = Round(
            {**round_.task, "weights": weights}, diagnostics=rates, record=_without_lost(record, round_, replies)
        )
        if round_.index == self.params.rounds:
            return replace(after, step=StepName.TEST)
        return self._drawn(replace(after, step=StepName.TRAIN), round_.index)

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Call `merge` and count the round, of which the losses of candidates are a part."""
        after = super().advance(round_, replies)
        return replace(after, index=round_.index) if round_.step == StepName.LOSSES else after

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
        return stacked_models(found["weights"], like, self.params.k)

    def secured(self) -> ClusteringAggregator:
        """Return this aggregator; raise UserError where sites are selected."""
        if self._selection is not None:
            raise UserError(
                f"select={self.params.select} needs the rows or losses of single sites, and secure_sums hides them; use select=all, "
                "or leave out secure_sums"
            )
        return super().secured()

    def warnings(self, round_: Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say where a selection was of as many sites as there are."""
        if self._selection is None or self._selection.m < (able := len(round_.record[_ABLE])):
            return []
        return [f"per_round is {self._selection.m}, and {able} sites could train: all of them did in the last round"]

    @property
    def _selection(self) -> Selection | None:
        p = self.params
        return make_selection(p.select, p.per_round, p.candidates, p.clusters, self.params.seed)

    def _drawn(self, round_: Round, index: int) -> Round:
        """Return a round of training with the sites that are drawn for it, by its number from 0; first they may be asked for losses."""
        if self._selection is None:
            return round_
        able = dict(zip(round_.record[_ABLE].tolist(), round_.record[_ABLE_ROWS].tolist(), strict=True))
        if not able:
            return round_  # all are asked, and none trains
        step = StepName.LOSSES if self._selection.asks(len(able)) else StepName.TRAIN
        return replace(round_, step=step, sites=tuple(self._selection.drawn(able, index)))

    def _chosen(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Return the training of the sites that are chosen by their losses."""
        assert self._selection is not None
        losses = {site: float(replies[site]["loss"]) for site in round_.sites or () if site in replies}
        record = _without_lost(round_.record, round_, replies)
        return Round(round_.task, record=record, step=StepName.TRAIN, sites=tuple(self._selection.chosen(losses)))

    def _begun(self, replies: Mapping[str, Message]) -> Round:
        columns = int(next(iter(replies.values()))["columns"])
        classes = max(2, self.params.classes or 0, *(int(reply["classes"]) for reply in replies.values()))
        model = np.array([columns, classes])
        start = self._learner(model).start(self.params.k, stream(self.params.seed, 0, WEIGHTS))
        weights = np.concatenate([flat(start, j) for j in range(self.params.k)])
        record = dict.fromkeys(TESTS, np.zeros(0, dtype=np.int64))
        if self._selection is not None:
            rows = {site: int(reply["rows"]) for site, reply in replies.items() if reply["rows"]}
            record |= {
                _ABLE: np.array(list(rows), dtype=np.str_),
                _ABLE_ROWS: np.array(list(rows.values()), dtype=np.int64),
            }
        return Round({"weights": weights, "model": model}, record=record, step=StepName.TRAIN)

    def _learner(self, model: Any) -> Learner[Any]:
        return make_learner(
            self.params.model, int(model[0]), int(model[1]), hidden=self.params.hidden, lr=1.0, updates=1, batch=1
        )

    def _sorted(self, replies: Mapping[str, Message]) -> list[Message]:
        """Return the replies in the order of the sites' places, or names: sums of floats depend on it in their last bits."""
        places = self.params.places or {}
        return [replies[site] for site in sorted(replies, key=lambda site: (places.get(site, 0), site))]


class IFCAAggregator(FedAvgAggregator):
    """The server of IFCA.

    Result: as of federated averaging, with `weights` (k * s,) of all models, one after the other, and each by name, stacked
    (k, ...); `CHOSEN` beside the tests. `centroids` (k, s) are the weights.
    """

    params: IFCAParams

    steps = IFCAExecutor.job_steps()

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Do as federated averaging does, and keep what the sites chose."""
        after = super().merge(round_, replies, rng)
        if round_.step in (StepName.SIZES, StepName.ROWS):
            nothing = np.zeros(0, dtype=np.int64)
            return replace(
                after, task={**after.task, "models": np.array(self.params.k)}, record={**after.record, CHOSEN: nothing}
            )
        chosen = np.array(
            [int(reply["counts"].argmax()) if reply["counts"].any() else -1 for reply in replies.values()],
            dtype=np.int64,
        )
        return replace(after, record={**after.record, CHOSEN: np.concatenate([round_.record[CHOSEN], chosen])})

    def averaged(self, before: FloatArray, sent: Sequence[Message]) -> FloatArray:
        """Return the weights of all models after a round; those of a model that no site chose are as before."""
        rows = in_order(reply["counts"].astype(np.float64) for reply in sent)[:, None]
        total = in_order(reply["weights"] for reply in sent).reshape(self.params.k, -1)
        means = np.divide(total, rows, out=before.reshape(self.params.k, -1).copy(), where=rows > 0)
        found: FloatArray = means.ravel()
        return found

    def result(self, round_: Round) -> Message:
        """Return the weights of all models by name, too."""
        found = super().result(round_)
        return {**found, **{f"weights.{name}": value for name, value in self.models(found).items()}}


def _with_tests(round_: Round, replies: Mapping[str, Message]) -> tuple[Message, dict[str, float]]:
    """Return the record with the tests of a round, of the model before it, and the accuracy over all sites."""
    new = (
        [site_number(site) for site in replies],
        [round_.index - 1] * len(replies),
        [int(reply["correct"]) for reply in replies.values()],
        [int(reply["tested"]) for reply in replies.values()],
    )
    tests = {
        name: np.concatenate([round_.record[name], np.array(values, dtype=np.int64)])
        for name, values in zip(TESTS, new, strict=True)
    }
    rows = sum(new[3])
    return {**round_.record, **tests}, {"accuracy": sum(new[2]) / rows} if rows else {}


def _without_lost(record: Message, round_: Round, replies: Mapping[str, Message]) -> Message:
    """Return the record without those of the sites asked that have not answered, which cannot be selected again."""
    if _ABLE not in record or round_.sites is None:
        return record
    there = np.array([site not in round_.sites or site in replies for site in record[_ABLE].tolist()], dtype=bool)
    return {**record, _ABLE: record[_ABLE][there], _ABLE_ROWS: record[_ABLE_ROWS][there]}
