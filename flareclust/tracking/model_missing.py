"""The model of a federation whose sites had different columns: rows may lack columns, and centroids entries.

Like `model.py`, MLflow copies this file into the logged model and runs it on loading. So it imports nothing of this
package. What it computes is `flareclust.features.result.place_rows`; a test compares the two.
"""

import json
from pathlib import Path
from typing import Any

import mlflow.models
import mlflow.pyfunc
import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Least divisor of a distance, relative to the length of the extremes.
FLOOR = 1e-12


class NearestKnownCentroid(mlflow.pyfunc.PythonModel):
    """Assign rows with gaps to the centroid that is nearest in the entries that both have, by the scaled distance."""

    def load_context(self, context: Any) -> None:
        """Read the (k, D) centroids, NaN where unknown, and how the federation scaled, filled and measured."""
        self.centroids = np.load(context.artifacts["centroids"], allow_pickle=False)
        settings = json.loads(Path(context.artifacts["settings"]).read_text(encoding="utf-8"))
        self.names: list[str] = settings["names"]
        self.mean, self.deviation = np.array(settings["mean"]), np.array(settings["deviation"])
        self.fill: bool = settings["fill"]
        self.phi: str = settings["phi"]
        self.standardize: bool = settings["standardize"]

    # MLflow reads the hint of model_input: a DataFrame is the one kind that it takes without a warning.
    def predict(self, context: Any, model_input: pd.DataFrame) -> NDArray[np.int64]:
        """Return the label of each row; -1 where nothing known can be compared with it.

        Args:
            context: Given by MLflow; not used.
            model_input: DataFrame whose columns are some of the federation's, NaN where a value is missing.

        Raises:
            ValueError: None of the columns is known, or a value is infinite.
        """
        present = [name for name in self.names if name in model_input.columns]
        if not present:
            raise ValueError(f"the input has none of the columns {', '.join(self.names)}")
        X = model_input.reindex(columns=self.names).to_numpy(dtype=np.float64)
        if np.isinf(X).any():
            raise ValueError("the input has infinite values; leave them empty or drop those rows first")
        if self.fill:
            X = np.where(np.isnan(X), self.mean, X)
        centroids = self.centroids
        if self.standardize:
            X, centroids = (X - self.mean) / self.deviation, (centroids - self.mean) / self.deviation
        distance = np.full((len(X), len(centroids)), np.inf)
        patterns, which = np.unique(~np.isnan(X), axis=0, return_inverse=True)
        for number, has in enumerate(patterns):
            rows = which.reshape(-1) == number
            known = centroids[:, has]
            high, low = _extreme(np.fmax, known), _extreme(np.fmin, known)
            told = ~np.isnan(known)
            several = told.sum(axis=0) > 1  # an entry that one centroid alone knows does not count,
            counted = several | told[~(told & several).any(axis=1)].any(axis=0)  # unless that one knows no other
            for r, centroid in enumerate(known):
                common = ~np.isnan(centroid) & counted
                if common.any():
                    part = np.ix_(rows, has)
                    distance[rows, r] = self._scaled(X[part][:, common], centroid[common], high[common], low[common])
        labels: NDArray[np.int64] = np.where(np.isinf(distance).all(axis=1), -1, distance.argmin(axis=1)).astype(
            np.int64
        )
        return labels

    def _scaled(self, X: Floats, centroid: Floats, high: Floats, low: Floats) -> Floats:
        """Return the distances (n,) of rows (n, c) to a centroid (c,), in units of the largest between the extremes (c,)."""
        if self.phi == "cosine":
            widest = max(float(_one_minus_cosine(high[None], low)[0]), FLOOR)
            return _one_minus_cosine(X, centroid) / widest
        widest = max(float(np.linalg.norm(high - low)), FLOOR * float(np.linalg.norm(np.fmax(abs(high), abs(low)))))
        distance = np.linalg.norm(X - centroid, axis=1)
        return np.asarray(np.where(distance > 0, distance / (widest or 1.0), 0.0))


def _extreme(choose: np.ufunc, points: Floats) -> Floats:
    extreme: Floats = choose.reduce(points, axis=0)
    return extreme


def _one_minus_cosine(A: Floats, b: Floats) -> Floats:
    """Return (n,) 1 - cos; 1 where one of the two is zero, 0 where both are."""
    lengths, own = np.linalg.norm(A, axis=1), float(np.linalg.norm(b))
    product = lengths * own
    cosine = np.divide(A @ b, product, out=np.zeros(len(A)), where=product > 0)
    return np.asarray(np.where((lengths == 0) & (own == 0), 0.0, 1.0 - np.clip(cosine, -1.0, 1.0)))


mlflow.models.set_model(NearestKnownCentroid())
