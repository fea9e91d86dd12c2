"""Federated averaging and IFCA, the server's side: draw the first weights, average those that sites have trained.

Sources: McMahan et al. (2017), Algorithm 1; of IFCA, with k models of different first weights, each the mean of what the sites that
chose it have trained: Ghosh et al. (2020), Algorithm 1; see `flareclust.personal.executor`. Means are weighted by rows; a site
that is lost is left out from then on. Where sites are selected, the server draws those of the next round when a round is over, and
asks the candidates for their losses in the same round, ahead of the training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core.client_selection import Selection
from flareclust.executors.kfed import site_number
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.personal.executor import FedAvgExecutor, FedAvgParams, IFCAExecutor, IFCAParams
from flareclust.personal.learners import WEIGHTS, Learner, Weights, flat, in_order, stacked_models
from flareclust.personal.models import make_learner
from flareclust.personal.selection import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State
from flareclust.protocol.task import StepName

#: What is kept of every test, an entry for each site and round: number of the site, round of the model, and rows.
TESTS = ("tests_site", "tests_round", "tests_correct", "tests_rows")

#: The model that a site chose, an entry for each test; -1 where it had too few rows to train with, and did not say.
CHOSEN = "tests_model"


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _FedAvgState(State):
    """What the server knows: the tests under `TESTS`, and where sites are selected these.

    Attributes:
        selectable: names of those that can be.
        selectable_rows: their numbers of rows.
    """

    tests_site: IntArray = field(default_factory=_none)
    tests_round: IntArray = field(default_factory=_none)
    tests_correct: IntArray = field(default_factory=_none)
    tests_rows: IntArray = field(default_factory=_none)
    selectable: Array | None = None
    selectable_rows: IntArray | None = None


@dataclass(frozen=True, eq=False)
class _IFCAState(_FedAvgState):
    """What the server knows, with `CHOSEN`."""

    tests_model: IntArray = field(default_factory=_none)


_Round = Round[_FedAvgState]


class FedAvgAggregator(ClusteringAggregator):
    """The server of federated averaging.

    Result: `weights` (p,), the same by name, `weights.<name>`, `model` (2,), the numbers of columns and classes, and the
    tests under `TESTS`. As every job has centroids, `centroids` (1, p) are the weights: a mean over the sites.
    """

    params: FedAvgParams
    executor = FedAvgExecutor
    state = _FedAvgState

    #: Whether the weights by name are stacked (k, ...), as those of several models.
    stacked = False

    def begin(self) -> _Round:
        """Ask for the numbers of columns and classes, and where sites are selected for those of rows."""
        return Round(state=self.state(), step=StepName.SIZES if self._selection is None else StepName.ROWS)

    def sizes(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Draw the first weights."""
        columns = int(next(iter(replies.values()))["columns"])
        classes = max(2, self.params.classes or 0, *(int(reply["classes"]) for reply in replies.values()))
        model = np.array([columns, classes])
        start = self._learner(model).start(self.params.k, stream(self.params.seed, 0, WEIGHTS))
        weights, state = np.concatenate([flat(start, j) for j in range(self.params.k)]), round_.state
        if self._selection is not None:
            rows = {site: int(reply["rows"]) for site, reply in replies.items() if reply["rows"]}
            names, numbers = np.array(list(rows), dtype=np.str_), np.array(list(rows.values()), dtype=np.int64)
            state = replace(state, selectable=names, selectable_rows=numbers)
        return self._drawn(Round({"weights": weights, "model": model}, state=state, step=StepName.TRAIN), 0)

    def losses(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Ask the sites to train that are chosen by their losses."""
        assert self._selection is not None
        losses = {site: float(replies[site]["loss"]) for site in round_.sites or () if site in replies}
        state = _without_lost(round_.state, round_, replies)
        return Round(round_.task, state=state, step=StepName.TRAIN, sites=tuple(self._selection.chosen(losses)))

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Average the weights that sites have trained."""
        state, rates = self.tested(round_, replies)
        weights = self.averaged(round_.task["weights"], self._sorted(replies))
        state = _without_lost(state, round_, replies)
        after = Round({**round_.task, "weights": weights}, diagnostics=rates, state=state, step=StepName.TRAIN)
        last = round_.index >= self.params.rounds
        return replace(after, step=StepName.TEST) if last else self._drawn(after, round_.index)

    def test(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Return the result, after the last test."""
        state, rates = self.tested(round_, replies)
        centroids = round_.task["weights"].reshape(self.params.k, -1)
        return Round({**round_.task, "centroids": centroids}, True, rates, replace(state, selectable_rows=None))

    def tested(self, round_: _Round, replies: Mapping[str, Message]) -> tuple[_FedAvgState, dict[str, float]]:
        """Return what is kept with the tests of a round, of the model before it, and the accuracy over all sites."""
        correct = [int(reply["correct"]) for reply in replies.values()]
        rows = [int(reply["tested"]) for reply in replies.values()]
        state = replace(
            round_.state,
            tests_site=_longer(round_.state.tests_site, [site_number(site) for site in replies]),
            tests_round=_longer(round_.state.tests_round, [round_.index - 1] * len(replies)),
            tests_correct=_longer(round_.state.tests_correct, correct),
            tests_rows=_longer(round_.state.tests_rows, rows),
        )
        return state, {"accuracy": sum(correct) / sum(rows)} if sum(rows) else {}

    def result(self, round_: _Round) -> Message:
        """Return the weights by name, too."""
        found = super().result(round_)
        models = self.models(found).items()
        return {**found, **{f"weights.{name}": value if self.stacked else value[0] for name, value in models}}

    def averaged(self, before: FloatArray, sent: Sequence[Message]) -> FloatArray:
        """Return the weights after a round, the means of those that the sites sent; as before where none has rows."""
        total = sum(int(reply["counts"]) for reply in sent)
        return in_order(reply["weights"] for reply in sent) / float(total) if total else before

    def models(self, found: Message) -> Weights:
        """Return the models of a result, stacked (k, ...)."""
        like = self._learner(found["model"]).start(1, np.random.default_rng(0))
        return stacked_models(found["weights"], like, self.params.k)

    def check_secure(self) -> None:
        """Raise UserError where sites are selected."""
        if self._selection is not None:
            raise UserError(
                f"select={self.params.select} needs the rows or losses of single sites, and secure_sums hides them; use select=all, "
                "or leave out secure_sums"
            )

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say where a selection was of as many sites as there are."""
        selectable = round_.state.selectable
        if self._selection is None or selectable is None or self._selection.m < len(selectable):
            return []
        m, there = self._selection.m, len(selectable)
        return [f"per_round is {m}, and {there} sites could train: all of them did in the last round"]

    @property
    def _selection(self) -> Selection | None:
        p = self.params
        if p.select == ALL or p.per_round is None:
            return None
        return Selection(p.select, p.per_round, p.candidates, p.clusters, p.seed)

    def _drawn(self, round_: _Round, index: int) -> _Round:
        """Return a round of training with the sites that are drawn for it, by its number from 0; first they may be asked for losses."""
        state = round_.state
        if self._selection is None or state.selectable is None or state.selectable_rows is None:
            return round_
        able = dict(zip(state.selectable.tolist(), state.selectable_rows.tolist(), strict=True))
        if not able:
            return round_  # all are asked, and none trains
        step = StepName.LOSSES if self._selection.asks(len(able)) else StepName.TRAIN
        return replace(round_, step=step, sites=tuple(self._selection.drawn(able, index)))

    def _learner(self, model: Any) -> Learner[Any]:
        columns, classes = int(model[0]), int(model[1])
        return make_learner(self.params.model, columns, classes, hidden=self.params.hidden, lr=1.0, updates=1, batch=1)

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

    executor = IFCAExecutor
    state = _IFCAState
    stacked = True

    def sizes(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Draw the first weights of all models."""
        after = super().sizes(round_, replies, rng)
        return replace(after, task={**after.task, "models": np.array(self.params.k)})

    def tested(self, round_: _Round, replies: Mapping[str, Message]) -> tuple[_FedAvgState, dict[str, float]]:
        """Return what is kept, with what the sites chose."""
        state, rates = super().tested(round_, replies)
        assert isinstance(state, _IFCAState)
        chosen = [int(reply["counts"].argmax()) if reply["counts"].any() else -1 for reply in replies.values()]
        return replace(state, tests_model=_longer(state.tests_model, chosen)), rates

    def averaged(self, before: FloatArray, sent: Sequence[Message]) -> FloatArray:
        """Return the weights of all models after a round; those of a model that no site chose are as before."""
        rows = in_order(reply["counts"].astype(np.float64) for reply in sent)[:, None]
        total = in_order(reply["weights"] for reply in sent).reshape(self.params.k, -1)
        means = np.divide(total, rows, out=before.reshape(self.params.k, -1).copy(), where=rows > 0)
        found: FloatArray = means.ravel()
        return found


def _longer(values: IntArray, more: Sequence[int]) -> IntArray:
    return np.concatenate([values, np.array(more, dtype=np.int64)])


def _without_lost(state: _FedAvgState, round_: _Round, replies: Mapping[str, Message]) -> _FedAvgState:
    """Return what is kept without those of the sites asked that have not answered, which cannot be selected again."""
    if state.selectable is None or state.selectable_rows is None or round_.sites is None:
        return state
    there = np.array([site not in round_.sites or site in replies for site in state.selectable.tolist()], dtype=bool)
    return replace(state, selectable=state.selectable[there], selectable_rows=state.selectable_rows[there])
