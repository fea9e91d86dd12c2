"""DeepFeCA, the server's side: merge the sites' centroids, send them with the network, average the networks that come back.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): Algorithm 6, lines 2, 5 and 10.

Readings where the paper is open:
1. The server draws the first weights when it knows the shape of the sites' images.
2. After the last round centroids are found once more, with the network that is returned.
3. With `rounds=0` the network keeps its random weights: a yardstick.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.aggregators.ffcm import FFCMAggregator
from flareclust.aggregators.kfed import KFedAggregator
from flareclust.aggregators.mavg import MAvgAggregator
from flareclust.aggregators.pooled import PooledAggregator
from flareclust.executors.deepfeca import SHAPE, TRAIN, DeepFeCAExecutor, DeepFeCAParams, step_name

_CENTROIDS: Mapping[str, type[ClusteringAggregator]] = {
    "feca": FeCAAggregator,
    "kfed": KFedAggregator,
    "mavg": MAvgAggregator,
    "ffcm": FFCMAggregator,
    "pooled": PooledAggregator,
}


class DeepFeCAAggregator(ClusteringAggregator):
    """The server of DeepFeCA.

    Result beside `centroids` (k, e): `weights` (p,) of the network, `image` (3,), the shape of its images, and the same
    weights by name, `weights.<name>`.
    """

    params: DeepFeCAParams

    steps = DeepFeCAExecutor.steps

    def begin(self) -> Round:
        """Ask for the shape of the images."""
        return Round(step=SHAPE)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Do what follows on the shape, on a step of the centroids, or on training."""
        if round_.step == SHAPE:
            return self._begun(next(iter(replies.values()))["image"], replies)
        if round_.step == TRAIN:
            return self._averaged(round_, replies)
        return self._clustered(round_, replies, rng)

    def _begun(self, image: Any, replies: Mapping[str, Message]) -> Round:
        """Draw the first weights (line 2)."""
        from flareclust.deep.networks import build
        from flareclust.deep.weights import weights_of

        network = build(self.params.network, image, self.seed)
        on_gpu = sum(int(reply["cuda"]) for reply in replies.values())
        task = {"weights": weights_of(network), "image": image}
        return self._asked(self._inner().begin(), task, 0, {"sites_on_gpu": float(on_gpu)})

    def _clustered(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Merge the centroids (line 4), and send them with the network (line 5)."""
        own = {name: round_.task[name] for name in ("weights", "image")}
        rest = {name: value for name, value in round_.task.items() if name not in own}
        before = replace(round_, task=rest, step=round_.step.partition("_")[2])
        merged, done = self._inner().merge(before, replies, rng), int(round_.record["trained"])
        if not merged.done:
            return self._asked(merged, own, done, merged.diagnostics)
        centroids = of_length_one(merged.task["centroids"])
        if done == self.params.rounds:
            return Round({**own, "centroids": centroids}, True, merged.diagnostics, {"trained": np.array(done)})
        task = {**own, "prototypes": centroids}
        return Round(task, diagnostics=merged.diagnostics, record={"trained": np.array(done)}, step=TRAIN)

    def _averaged(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Average the networks by their sites' numbers of rows (line 10)."""
        total = {
            name: np.sum([reply[name] for reply in replies.values()], axis=0) for name in ("weights", "counts", "loss")
        }
        done = int(round_.record["trained"]) + 1
        if not total["counts"] > 0:
            raise JobFailed(f"round {round_.index}: no site trained the network on any rows")
        task = {"weights": total["weights"] / total["counts"], "image": round_.task["image"]}
        return self._asked(self._inner().begin(), task, done, {"loss": float(total["loss"] / total["counts"])})

    def _asked(self, inner: Round, own: Message, done: int, diagnostics: Mapping[str, float]) -> Round:
        """Return a round of the algorithm that finds the centroids, with the network of DeepFeCA."""
        record = {**inner.record, "trained": np.array(done)}
        return Round(
            {**own, **inner.task},
            diagnostics=diagnostics,
            record=record,
            step=step_name(self.params.centroids, inner.step),
        )

    def _inner(self) -> ClusteringAggregator:
        return _CENTROIDS[self.params.centroids](self.k, self.seed)

    def limits(self, round_: Round) -> dict[str, int]:
        """Return also how many weights there can be, and that a shape has three numbers."""
        return {**super().limits(round_), "a": 3, "p": len(round_.task.get("weights", ()))}

    def result(self, round_: Round) -> Message:
        """Return the weights by name, too."""
        from flareclust.deep.networks import build
        from flareclust.deep.weights import load_weights, named

        network = build(self.params.network, round_.task["image"], self.seed)
        load_weights(network, round_.task["weights"])
        return {**super().result(round_), **named(network)}


def of_length_one(centroids: FloatArray) -> FloatArray:
    """Return centroids (k, e) brought to length 1; one at the origin stays there."""
    lengths = np.linalg.norm(centroids, axis=1, keepdims=True)
    scaled: FloatArray = centroids / np.where(lengths > 0, lengths, 1.0)
    return scaled
