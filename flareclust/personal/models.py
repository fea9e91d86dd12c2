"""The kinds of model that devices train, by name: linear ones, which need no extra, and networks (`flareclust.personal.networks`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.personal.learners import Among, Learner, Weights
from flareclust.personal.rows import Labelled

MODELS = ("mlp", "linear")

#: What the extra is for, as a message says it.
NEEDED_BY = "the model mlp (model=linear needs no extra)"


@dataclass(frozen=True)
class Linear(Learner[Sequence[Labelled]]):
    """A learner: logistic regression, one class against the others, by scikit-learn's `SGDClassifier`.

    The step size is the same in all updates; a round is `epochs` passes over a device's rows.
    """

    columns: int
    classes: int
    lr: float = 0.01
    epochs: int = 1

    @property
    def _lines(self) -> int:
        """Return the number of separating planes: one for two classes."""
        return 1 if self.classes == 2 else self.classes

    def start(self, count: int, rng: np.random.Generator) -> Weights:
        """Return `count` different models: `coef` (count, c, d) with small random numbers, `intercept` (count, c) zeros.

        The numbers differ for IFCA's sake, whose devices could not choose between equal models.
        """
        coef = rng.normal(scale=0.01 / np.sqrt(self.columns), size=(count, self._lines, self.columns))
        return {"coef": coef, "intercept": np.zeros((count, self._lines))}

    def hold(self, rows: Sequence[Labelled]) -> Sequence[Labelled]:
        """Return the rows as they are."""
        return rows

    def train(
        self, weights: Weights, data: Sequence[Labelled], rng: np.random.Generator, among: Among | None = None
    ) -> Weights:
        """Return the weights of each part after its passes over its rows."""
        places, total = among or (range(len(data)), len(data))
        seeds = rng.integers(2**31, size=total)[list(places)]
        trained = {name: value.copy() for name, value in weights.items()}
        for p, rows in enumerate(data):
            if len(rows):
                trained["coef"][p], trained["intercept"][p] = self._fitted(weights, p, rows, int(seeds[p]))
        return trained

    def losses(self, models: Weights, data: Sequence[Labelled]) -> FloatArray:
        """Return the mean logistic loss, summed over the separating planes, of each model on each part's rows (k, p)."""
        found = np.zeros((len(models["coef"]), len(data)))
        for j in range(len(found)):
            for p, rows in enumerate(data):
                if len(rows):
                    y = rows.y
                    target = y[:, None].astype(np.float64) if self._lines == 1 else np.eye(self.classes)[y]
                    side = 2.0 * target - 1.0
                    found[j, p] = np.logaddexp(0, -side * self._scores(models, j, rows.X)).sum(axis=1).mean()
        return found

    def correct(self, models: Weights, group: IntArray, data: Sequence[Labelled]) -> IntArray:
        """Return how many rows of each part get their class, (p,)."""
        found = []
        for j, rows in zip(group, data, strict=True):
            scores = self._scores(models, int(j), rows.X)
            predicted = scores[:, 0] > 0 if self._lines == 1 else scores.argmax(axis=1)
            found.append(np.sum(predicted == rows.y))
        return np.array(found)

    def full_gradient(self) -> "Linear":
        """Raise UserError: `SGDClassifier` makes an update per row."""
        raise UserError("gradients are averaged with the model mlp only; use averaging=models, or model=mlp")

    def _fitted(self, weights: Weights, p: int, rows: Labelled, seed: int) -> tuple[FloatArray, FloatArray]:
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=self.lr, random_state=seed)
        model.classes_ = np.arange(self.classes)
        model.coef_, model.intercept_ = weights["coef"][p].copy(), weights["intercept"][p].copy()
        try:
            for _ in range(self.epochs):
                model.partial_fit(rows.X, rows.y)
        except ValueError:  # scikit-learn's own sign of weights that overflow; the rows were checked
            return np.full_like(model.coef_, np.nan), np.full_like(model.intercept_, np.nan)
        return model.coef_, model.intercept_

    def _scores(self, models: Weights, j: int, X: FloatArray) -> FloatArray:
        scores: FloatArray = X @ models["coef"][j].T + models["intercept"][j]
        return scores


def make_learner(
    model: str, columns: int, classes: int, *, hidden: int, lr: float, updates: int, batch: int
) -> Learner[Any]:
    """Return a kind of model, one of `MODELS`, with these settings of `FedAvgParams`; UserError where mlp lacks its extra."""
    if model == "linear":
        return Linear(columns, classes, lr, updates)
    require("deep", NEEDED_BY)
    from flareclust.personal.networks import Perceptron

    return Perceptron(columns, classes, hidden, lr, updates, batch)
