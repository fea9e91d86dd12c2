"""What a kind of model must be able to do to be trained at devices and averaged on a server."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.personal.rows import Labelled

#: The weights of several models: by name, each stacked along its first dimension.
Weights = dict[str, Array]

#: Weights beyond this are those of a loss that diverges; float32 ends at 3e38.
LARGEST = 1e30

#: What is wrong with a loss, in words that follow what it is of.
NOT_FINITE = "is not finite, so the training diverged; use a smaller lr, or scale the columns"

#: The random streams of the first weights and of a round of training, wherever devices are.
WEIGHTS, TRAINING = "weights", "training"

#: The places of parts among all parts of a run, and how many these are.
Among = tuple[Sequence[int], int]

#: Rows of several devices, as a learner keeps them.
_D = TypeVar("_D")


class Learner(ABC, Generic[_D]):
    """One kind of model. Weights are stacked: of p parts (p, ...), of k models (k, ...)."""

    @abstractmethod
    def start(self, count: int, rng: np.random.Generator) -> Weights:
        """Return the weights of `count` different models before any training."""

    @abstractmethod
    def hold(self, rows: Sequence[Labelled]) -> _D:
        """Return the rows of several parts as the other methods take them; a part may be empty."""

    @abstractmethod
    def train(self, weights: Weights, data: _D, rng: np.random.Generator, among: Among | None = None) -> Weights:
        """Return the weights of each part (p, ...) after its local updates.

        Random numbers are drawn for all parts of a run together; `among` says which of these the p parts are, None for all.
        """

    def round(
        self,
        models: Weights,
        group: IntArray,
        data: _D,
        rows: IntArray,
        rng: np.random.Generator,
        among: Among | None = None,
    ) -> Weights:
        """Return the models (k, ...) after a round of federated averaging: `train` of the parts, then their means.

        Learners that know a shorter way override it.
        """
        return _averaged(models, self.train(picked(models, group), data, rng, among), group, rows)

    @abstractmethod
    def losses(self, models: Weights, data: _D) -> FloatArray:
        """Return the mean loss of each of k models on the rows of each of p parts, (k, p)."""

    @abstractmethod
    def correct(self, models: Weights, group: IntArray, data: _D) -> IntArray:
        """Return how many rows of each part get their class from the model `group[p]`, (p,)."""

    @abstractmethod
    def full_gradient(self) -> "Learner[_D]":
        """Return a learner whose `train` is a single update by all rows of a part.

        Raises:
            UserError: this kind of model has no such update.
        """


def picked(models: Weights, group: IntArray) -> Weights:
    """Return the weights of the model of each part (p, ...), as copies."""
    return {name: value[group] for name, value in models.items()}


def flat(models: Weights, j: int) -> FloatArray:
    """Return the weights of model j as one array (s,) of float64, in the order of their names as the learner has them."""
    return np.concatenate([value[j].ravel() for value in models.values()]).astype(np.float64)


def stacked_models(weights: FloatArray, like: Weights, k: int) -> Weights:
    """Return the k models whose weights `flat` gave, one after the other (k * s,), stacked (k, ...) with the types of `like`."""
    ends = np.cumsum([value[0].size for value in like.values()])
    parts = np.split(weights.reshape(k, -1), ends[:-1], axis=1)
    return {
        name: part.reshape(k, *value.shape[1:]).astype(value.dtype)
        for (name, value), part in zip(like.items(), parts, strict=True)
    }


def model_bytes(models: Weights) -> int:
    """Return the size of one of the models in bytes."""
    return sum(value[0].nbytes for value in models.values())


def all_bounded(weights: Weights) -> bool:
    """Return whether all weights are numbers of at most `LARGEST`."""
    return all(bool((np.abs(value) <= LARGEST).all()) for value in weights.values())


def _averaged(models: Weights, trained: Weights, group: IntArray, rows: IntArray) -> Weights:
    """Return each model as the mean of what its parts have trained, weighted by their rows; others stay as they are."""
    after = {name: value.copy() for name, value in models.items()}
    for j in np.unique(group[rows > 0]):
        members = np.flatnonzero((group == j) & (rows > 0))
        for name, value in trained.items():
            total = in_order(by_rows(value[p], int(rows[p])) for p in members)
            after[name][j] = total / float(rows[members].sum())
    return after


def by_rows(weights: Array, rows: int) -> FloatArray:
    """Return what a part adds to a sum of weights: its own, times its number of rows, in float64."""
    return float(rows) * weights.astype(np.float64)


def in_order(parts: Iterable[FloatArray]) -> FloatArray:
    """Return the sum of arrays, added one after the other, so that a server that adds them up gets the same bits."""
    return functools.reduce(np.add, parts)


def moved(models: Weights, trained: Weights, group: IntArray, rows: IntArray) -> Weights:
    """Return each model after the step that its parts' gradients make, as a mean over the rows of all parts.

    `trained` holds each part's weights after one update. A model whose parts have a small share of all rows makes a
    small step, as in IFCA's gradient averaging, where the sum of gradients is divided by the number of all devices.
    """
    means = _averaged(models, trained, group, rows)
    mass = np.bincount(group, weights=rows, minlength=len(next(iter(models.values())))) / rows.sum()
    return {
        name: value + mass.astype(value.dtype).reshape(-1, *(1,) * (value.ndim - 1)) * (means[name] - value)
        for name, value in models.items()
    }
