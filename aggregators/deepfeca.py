"""DeepFeCA, the server's side: merge the sites' centroids, send them with the network, average the networks that come back.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): Algorithm 6, lines 2, 5 and 10.

Readings where the paper is open:
1. The server draws the first weights when it knows the shape of the sites' images.
2. After the last round centroids are found once more, with the network that is returned.
3. With `rounds=0` the network keeps its random weights: a baseline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.aggregators.feca import FeCAAggregator, FeCAState
from flareclust.aggregators.ffcm import FFCMAggregator, FFCMState
from flareclust.aggregators.kfed import KFedAggregator, KFedState
from flareclust.aggregators.linear_evaluation import Regression, accuracy, advanced, begun
from flareclust.aggregators.mavg import MAvgAggregator, MAvgState
from flareclust.aggregators.pooled import PooledAggregator, PooledState
from flareclust.core.scaling import of_length_one
from flareclust.executors import deepfeca
from flareclust.executors import linear_evaluation as linear
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

_CENTROIDS: Mapping[str, type[ClusteringAggregator]] = {
    "feca": FeCAAggregator,
    "kfed": KFedAggregator,
    "mavg": MAvgAggregator,
    "ffcm": FFCMAggregator,
    "pooled": PooledAggregator,
}


@dataclass(frozen=True, eq=False)
class _DeepFeCAState(State):
    """What the server knows."""

    trained: int = 0  # rounds of training so far
    classes: int = 0  # of the column for linear evaluation; 0 without one
    device_site: Array | None = None  # names of the sites
    device_gpu: IntArray | None = None  # whether each computes on a GPU
    # Of the algorithm that finds the centroids; FeCA's `radii` are distances before these are brought to length 1.
    member: FeCAState | KFedState | MAvgState | FFCMState | PooledState | None = None
    last_centroids: FloatArray | None = None  # of the last round (k, e), while features are evaluated
    regression: Regression | None = None  # where the evaluation stands
    linear_coefficients: FloatArray | None = None  # of the classifier at the end (C, f)
    linear_accuracy: float | None = None  # and the share of the rows held out that are in their class

    def arrays(self) -> Message:
        """Return what goes into the result, with what the algorithm for the centroids kept."""
        return {**({} if self.member is None else self.member.arrays()), **super().arrays()}


_Round = Round[_DeepFeCAState]


class DeepFeCAAggregator(ClusteringAggregator):
    """The server of DeepFeCA.

    Result beside `centroids` (k, e): `weights` (p,) of the network, `image` (3,), the shape of its images, and the same weights
    by name, `weights.<name>`.
    """

    params: deepfeca.DeepFeCAParams
    executor = deepfeca.DeepFeCAExecutor
    state = _DeepFeCAState

    def begin(self) -> _Round:
        """Ask for the shape of the images."""
        return Round(state=_DeepFeCAState(), step=deepfeca.SHAPE)

    @property
    def member(self) -> ClusteringAggregator:
        """Return the algorithm that finds the centroids (line 4)."""
        return _CENTROIDS[self.params.centroids](self.params.k, self.params.seed)

    def limits(self, round_: _Round) -> dict[str, int]:
        """Return that a shape has three numbers."""
        return {"a": 3}

    def shape(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Draw the first weights (line 2)."""
        from flareclust.deep import networks as deep_networks

        image, on_gpu = next(iter(replies.values()))["image"], [int(reply["cuda"]) for reply in replies.values()]
        network = deep_networks.build(self.params.network, image, self.params.seed)
        task = {"weights": deep_networks.weights_of(network), "image": image}
        state = _DeepFeCAState(
            classes=max(int(reply["classes"]) for reply in replies.values()),
            device_site=np.array(list(replies), dtype=np.str_),
            device_gpu=np.array(on_gpu, dtype=np.int64),
        )
        return self._asked(task, state, {"sites_on_gpu": float(sum(on_gpu))})

    def merge_of_member(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Merge the centroids (line 4), and send them with the network (line 5)."""
        network = {name: round_.task[name] for name in ("weights", "image")}
        rest, member = {name: value for name, value in round_.task.items() if name not in network}, self.member
        before = Round(rest, state=round_.state.member or member.state(), step=round_.step, index=round_.index)
        merged: Round[FeCAState] = getattr(member, member.executor.steps[round_.step].merge)(before, replies, rng)
        state = replace(round_.state, member=merged.state)
        if not merged.done:
            return Round({**network, **merged.task}, False, merged.diagnostics, state, merged.step)
        centroids = of_length_one(merged.task["centroids"])
        if state.trained < self.params.rounds:
            task = {**network, "prototypes": centroids}
            return Round(task, False, merged.diagnostics, replace(state, member=None), deepfeca.TRAIN)
        if not state.classes:
            return Round({**network, "centroids": centroids}, True, merged.diagnostics, state)
        task = {**network, "features": np.array(self._features(network["image"]) + 1)}
        return Round(task, False, merged.diagnostics, replace(state, last_centroids=centroids), linear.MOMENTS)

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Average the networks by their sites' numbers of rows (line 10)."""
        total = {
            name: np.sum([reply[name] for reply in replies.values()], axis=0) for name in ("weights", "counts", "loss")
        }
        if not total["counts"] > 0:
            raise JobFailed(f"round {round_.index}: no site trained the network on any rows")
        task = {"weights": total["weights"] / total["counts"], "image": round_.task["image"]}
        state = replace(round_.state, trained=round_.state.trained + 1)
        return self._asked(task, state, {"loss": float(total["loss"] / total["counts"])})

    def linear_moments(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Begin the logistic regression on the features."""
        return self._evaluated(round_, begun(round_.state.classes, list(replies.values())), {})

    def linear_gradient(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Take a step of the logistic regression; the accuracy is that of the last."""
        sent, state = list(replies.values()), round_.state
        share, before = accuracy(sent), state.regression
        assert before is not None
        numbers = {} if share is None else {"linear_accuracy": share}
        if before.step < self.params.linear_steps:
            return self._evaluated(round_, advanced(before, sent), numbers)
        assert state.last_centroids is not None
        task = {"weights": round_.task["weights"], "image": round_.task["image"], "centroids": state.last_centroids}
        state = replace(state, last_centroids=None, regression=None, linear_accuracy=share)
        coefficients = None if share is None else round_.task["coefficients"]
        return Round(task, True, numbers, replace(state, linear_coefficients=coefficients))

    def _evaluated(self, round_: _Round, found: Regression, numbers: Mapping[str, float]) -> _Round:
        """Ask for the next gradient, or for the accuracy at the end."""
        last = found.step == self.params.linear_steps
        coefficients = found.before if last else found.coefficients
        task = {"weights": round_.task["weights"], "image": round_.task["image"], "coefficients": coefficients}
        return Round(task, False, numbers, replace(round_.state, regression=found), linear.GRADIENT)

    def _asked(self, network: Message, state: _DeepFeCAState, numbers: Mapping[str, float]) -> _Round:
        """Ask for what the algorithm that finds the centroids begins with, with a network."""
        asked: Round[FeCAState] = self.member.begin()
        return Round({**network, **asked.task}, False, numbers, replace(state, member=asked.state), asked.step)

    def _features(self, image: IntArray) -> int:
        """Return the number of features that a linear classifier gets."""
        from flareclust.deep import networks as deep_networks

        return deep_networks.features_of(
            deep_networks.build(self.params.network, image, self.params.seed).backbone, image
        )

    def metrics(self, round_: _Round) -> dict[str, float | None]:
        """Return the accuracy of the linear evaluation, where there was one."""
        found = round_.state.linear_accuracy
        return {} if found is None else {"linear_accuracy": found}

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say where linear evaluation had no rows to evaluate on."""
        none = round_.state.classes and round_.state.linear_accuracy is None
        return ["linear evaluation: no site has enough rows to hold some out, so there is no accuracy"] if none else []

    def result(self, round_: _Round) -> Message:
        """Return the weights by name, too."""
        from flareclust.deep import networks as deep_networks

        network = deep_networks.build(self.params.network, round_.task["image"], self.params.seed)
        deep_networks.load_weights(network, round_.task["weights"])
        return {**super().result(round_), **deep_networks.named(network)}
