"""DeepFeCA, the server's side: merge the sites' centroids, send them with the network, average the networks that come back.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): Algorithm 6, lines 2, 5 and 10.

Readings where the paper is open:
1. The server draws the first weights when it knows the shape of the sites' images.
2. After the last round centroids are found once more, with the network that is returned.
3. With `rounds=0` the network keeps its random weights: a baseline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import IntArray, Message
from flareclust.aggregators import linear_evaluation as regression
from flareclust.aggregators.base import ClusteringAggregator
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.aggregators.ffcm import FFCMAggregator
from flareclust.aggregators.kfed import KFedAggregator
from flareclust.aggregators.mavg import MAvgAggregator
from flareclust.aggregators.pooled import PooledAggregator
from flareclust.core.scaling import of_length_one
from flareclust.executors import deepfeca
from flareclust.executors import linear_evaluation as linear
from flareclust.protocol.outcome import DEVICE_GPU, DEVICE_SITE
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import Schema

_CENTROIDS: Mapping[str, type[ClusteringAggregator]] = {
    "feca": FeCAAggregator,
    "kfed": KFedAggregator,
    "mavg": MAvgAggregator,
    "ffcm": FFCMAggregator,
    "pooled": PooledAggregator,
}


#: The centroids of the last round in the record, while features are evaluated.
_LAST = "last_centroids"


class DeepFeCAAggregator(ClusteringAggregator):
    """The server of DeepFeCA.

    Result beside `centroids` (k, e): `weights` (p,) of the network, `image` (3,), the shape of its images, the same weights
    by name, `weights.<name>`, what each site computed on, `device_site` and `device_gpu`, and what the centroid step kept in the last round, such as FeCA's `radii`: distances before the
    centroids are brought to length 1.
    """

    params: deepfeca.DeepFeCAParams

    steps = deepfeca.DeepFeCAExecutor.job_steps()

    def schema(self, step: str) -> Schema:
        """Return what the sites send in a step, which may be one of the algorithm that finds the centroids."""
        return super().schema(step) if step in self.steps else self._inner().schema(step)

    def begin(self) -> Round:
        """Ask for the shape of the images."""
        return Round(step=deepfeca.SHAPE)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Do what follows on the shape, on a step of the centroids, or on training."""
        if round_.step == deepfeca.SHAPE:
            return self._initialised(next(iter(replies.values()))["image"], replies)
        if round_.step == deepfeca.TRAIN:
            return self._averaged(round_, replies)
        if round_.step in (linear.MOMENTS, linear.GRADIENT):
            return self._evaluated(round_, list(replies.values()))
        return self._clustered(round_, replies, rng)

    def _initialised(self, image: Any, replies: Mapping[str, Message]) -> Round:
        """Draw the first weights (line 2)."""
        from flareclust.deep import networks as deep_networks

        network = deep_networks.build(self.params.network, image, self.params.seed)
        on_gpu = sum(int(reply["cuda"]) for reply in replies.values())
        task = {"weights": deep_networks.weights_of(network), "image": image}
        classes = max(int(reply["classes"]) for reply in replies.values())
        return self._with_network(
            self._inner().begin(),
            task,
            {"trained": np.array(0), "classes": np.array(classes), **_devices(replies)},
            {"sites_on_gpu": float(on_gpu)},
        )

    def _clustered(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Merge the centroids (line 4), and send them with the network (line 5)."""
        network = {name: round_.task[name] for name in ("weights", "image")}
        rest = {name: value for name, value in round_.task.items() if name not in network}
        before = replace(round_, task=rest)
        merged, kept = self._inner().merge(before, replies, rng), _progress(round_)
        if not merged.done:
            return self._with_network(merged, network, kept, merged.diagnostics)
        centroids = of_length_one(merged.task["centroids"])
        if kept["trained"] < self.params.rounds:
            return Round(
                {**network, "prototypes": centroids}, diagnostics=merged.diagnostics, record=kept, step=deepfeca.TRAIN
            )
        record = {**merged.record, **kept}
        if not kept["classes"]:
            return Round({**network, "centroids": centroids}, True, merged.diagnostics, record)
        record = {**record, _LAST: centroids}
        task = {**network, "features": np.array(self._features(network["image"]) + 1)}
        return Round(task, diagnostics=merged.diagnostics, record=record, step=linear.MOMENTS)

    def _evaluated(self, round_: Round, replies: Sequence[Message]) -> Round:
        """Take a step of the logistic regression on the features; the accuracy is that of the last."""
        network = {name: round_.task[name] for name in ("weights", "image")}
        record = dict(round_.record)
        kept = regression.without_state(record)
        if round_.step == linear.MOMENTS:
            state, diagnostics = regression.begun(int(record["classes"]), replies), {}
        else:
            found = regression.accuracy(replies)
            diagnostics = {} if found is None else {"linear_accuracy": found}
            if regression.State.of(record).step == self.params.linear_steps:
                task = {**network, "centroids": kept.pop(_LAST)}
                result = {"linear_coefficients": round_.task["coefficients"], "linear_accuracy": np.array(found or 0.0)}
                return Round(task, True, diagnostics, {**kept, **(result if found is not None else {})})
            state = regression.advanced(regression.State.of(record), replies)
        last = state.step == self.params.linear_steps
        task = {**network, "coefficients": state.before if last else state.coefficients}
        return Round(task, diagnostics=diagnostics, record={**kept, **state.arrays}, step=linear.GRADIENT)

    def _averaged(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Average the networks by their sites' numbers of rows (line 10)."""
        total = {
            name: np.sum([reply[name] for reply in replies.values()], axis=0) for name in ("weights", "counts", "loss")
        }
        kept = _progress(round_) | {"trained": round_.record["trained"] + 1}
        if not total["counts"] > 0:
            raise JobFailed(f"round {round_.index}: no site trained the network on any rows")
        task = {"weights": total["weights"] / total["counts"], "image": round_.task["image"]}
        return self._with_network(self._inner().begin(), task, kept, {"loss": float(total["loss"] / total["counts"])})

    def _with_network(self, inner: Round, network: Message, kept: Message, diagnostics: Mapping[str, float]) -> Round:
        """Return a round of the algorithm that finds the centroids, with the network of DeepFeCA."""
        record = {**inner.record, **kept}
        return Round(
            {**network, **inner.task},
            diagnostics=diagnostics,
            record=record,
            step=inner.step,
        )

    def _features(self, image: IntArray) -> int:
        """Return the number of features that a linear classifier gets."""
        from flareclust.deep import networks as deep_networks

        return deep_networks.features_of(
            deep_networks.build(self.params.network, image, self.params.seed).backbone, image
        )

    def _inner(self) -> ClusteringAggregator:
        return _CENTROIDS[self.params.centroids](self.params.k, self.params.seed)

    def limits(self, round_: Round) -> dict[str, int]:
        """Return also that a shape has three numbers."""
        return {**super().limits(round_), "a": 3}

    def warnings(self, round_: Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say where linear evaluation had no rows to evaluate on."""
        none = int(round_.record["classes"]) and "linear_accuracy" not in round_.record
        return ["linear evaluation: no site has enough rows to hold some out, so there is no accuracy"] if none else []

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return also the accuracy of the linear evaluation, where there was one."""
        found = round_.record.get("linear_accuracy")
        own = {} if found is None else {"linear_accuracy": float(found)}
        return {**super().quality(round_, sums), **own}

    def result(self, round_: Round) -> Message:
        """Return the weights by name, too."""
        from flareclust.deep import networks as deep_networks

        network = deep_networks.build(self.params.network, round_.task["image"], self.params.seed)
        deep_networks.load_weights(network, round_.task["weights"])
        return {**super().result(round_), **deep_networks.named(network)}


def _progress(round_: Round) -> Message:
    """Return what the server remembers: rounds of training, the number of classes, and what sites compute on."""
    kept = ("trained", "classes", DEVICE_SITE, DEVICE_GPU)
    return {name: value for name, value in round_.record.items() if name in kept}


def _devices(replies: Mapping[str, Message]) -> Message:
    """Return the names of the sites, and whether each computes on a GPU."""
    on_gpu = [int(reply["cuda"]) for reply in replies.values()]
    return {DEVICE_SITE: np.array(list(replies), dtype=np.str_), DEVICE_GPU: np.array(on_gpu, dtype=np.int64)}
