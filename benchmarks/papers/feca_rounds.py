"""Trainings of DeepFeCA in this process whose networks are kept and evaluated round by round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from benchmarks.papers.samples import at_most
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.deepfeca import DeepFeCAAggregator
from flareclust.core.lloyd import labels_of
from flareclust.core.runtime import one_thread
from flareclust.data import published
from flareclust.data.datasets import Dataset, load
from flareclust.data.npy_files import npz_arrays
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import metrics
from flareclust.executors.deepfeca import DeepFeCAExecutor
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm, get
from flareclust.protocol.rounds import Round

#: Images of MNIST that the sites have, and test images.
IMAGES, TEST = 6_000, 2_000


@dataclass(frozen=True)
class Images:
    """Images of a data set: `train` (n, d) is spread over sites, `test` is for evaluation only."""

    train: Dataset
    test: FloatArray
    test_y: IntArray


@cache
def images(name: str, most: int = IMAGES) -> Images:
    """Return a data set's images, of MNIST at most so many to train with."""
    if name == "digits":
        data = load("digits")
        order = np.random.default_rng(0).permutation(len(data.X))
        train, test = order[:1257], order[1257:]
        assert data.y is not None
        return Images(replace(data, X=data.X[train], y=data.y[train]), data.X[test], data.y[test])
    file = published.data_folder() / "mnist" / "mnist.npz"
    if not file.is_file():
        raise UserError("mnist is not there; fetch it with: flareclust data get mnist")
    arrays = npz_arrays(file, ("X_train", "y_train", "X_test", "y_test"))
    X, y = arrays["X_train"].reshape(-1, 784).astype(np.float64), arrays["y_train"].astype(np.int64)
    rest = arrays["X_test"][:TEST].reshape(-1, 784).astype(np.float64), arrays["y_test"][:TEST].astype(np.int64)
    return Images(at_most(Dataset("mnist", X, y), most), *rest)


def train_by_rounds(
    sites: Mapping[str, FloatArray],
    params: Mapping[str, Any],
    options: JobOptions,
    labels: Mapping[str, IntArray] | None = None,
) -> tuple[list[Message], Outcome]:
    """Train; return network and centroids before the first round and after each one, and the outcome.

    Args:
        sites: images (n, d) of each site.
        params: of DeepFeCA.
        options: of the run.
        labels: (n,) labels from 0 to k - 1 to train with in the place of pseudo-labels, by site. The prototypes are then
            the first k unit vectors, whatever the centroids are.
    """
    states: list[Message] = []
    outcome = run_inprocess(_watched(states, labels), params, sites, options)
    return [*states, outcome.arrays], outcome


def _watched(states: list[Message], labels: Mapping[str, IntArray] | None) -> Algorithm:
    """Return DeepFeCA with a server that keeps what every training begins from."""
    line = get("deepfeca")

    class Watching(DeepFeCAAggregator):
        def merge_of_member(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
            after = super().merge_of_member(round_, replies, rng)
            if "prototypes" in after.task:
                states.append({**after.task, "centroids": after.task["prototypes"]})
                if labels is not None:
                    found = np.eye(self.params.k, after.task["prototypes"].shape[1])
                    return replace(after, task={**after.task, "prototypes": found})
            return after

    class Labelled(DeepFeCAExecutor):
        def pseudo_labels(self, embedded: FloatArray, prototypes: FloatArray, site: str) -> IntArray:
            return super().pseudo_labels(embedded, prototypes, site) if labels is None else labels[site]

    class Watched(Algorithm):
        def aggregator_class(self) -> type[DeepFeCAAggregator]:
            return Watching

        def executor_class(self) -> type[DeepFeCAExecutor]:
            return Labelled

    return Watched(line.name, line.title, line.executor, line.aggregator, line.promises)


def evaluate(own: Images, states: Sequence[Message], rounds: Sequence[int]) -> dict[str, float]:
    """Return linear accuracy in per cent and NMI of the networks after these rounds: `accuracy_5`, `nmi_5`."""
    found: dict[str, float] = {}
    for round_ in rounds:
        found |= {f"{key}_{round_}": number for key, number in _evaluated(own, states[round_]).items()}
    return found


def _evaluated(own: Images, state: Message) -> dict[str, float]:
    import torch
    from sklearn.linear_model import LogisticRegression

    from flareclust.deep import images as deep_images
    from flareclust.deep import networks as deep_networks
    from flareclust.deep import training as deep_training

    network = deep_networks.build("auto", state["image"], 0)
    deep_networks.load_weights(network, state["weights"])
    cpu = torch.device("cpu")
    train, test = (deep_images.as_images(rows, state["image"]) for rows in (own.train.X, own.test))
    features, others = (deep_training.embed(network.backbone, rows, cpu).astype(np.float32) for rows in (train, test))
    center, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    with one_thread():  # 20 times as fast as on two threads, beside another process that does the same
        model = LogisticRegression(max_iter=60).fit((features - center) / scale, own.train.y)
        accuracy = model.score((others - center) / scale, own.test_y)
    assert own.train.y is not None
    labels = labels_of(deep_training.embed(network, train, cpu), state["centroids"])
    return {"accuracy": 100 * float(accuracy), "nmi": metrics.nmi(own.train.y, labels)}
