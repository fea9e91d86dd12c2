"""The model a federation leaves in MLflow: a row belongs to the cluster of its nearest centroid.

MLflow copies this file into the logged model and runs it on loading ("models from code"). So it imports nothing of
this package, and the model loads wherever numpy, pandas and mlflow are installed. Nothing in the model is pickled.
"""

from typing import Any

import mlflow.models
import mlflow.pyfunc
import numpy as np
import pandas as pd
from numpy.typing import NDArray


class NearestCentroid(mlflow.pyfunc.PythonModel):
    """Assign rows to the nearest of k centroids, by Euclidean distance."""

    def load_context(self, context: Any) -> None:
        """Read the (k, d) centroids from the artifact `centroids`, a .npy file."""
        self.centroids = np.load(context.artifacts["centroids"], allow_pickle=False)

    # MLflow reads the hint of model_input: a DataFrame is the one kind that it takes without a warning.
    def predict(self, context: Any, model_input: pd.DataFrame) -> NDArray[np.int64]:
        """Return the label of each row; a tie goes to the lowest label.

        Args:
            context: Given by MLflow; not used.
            model_input: (n, d) DataFrame or array, columns in the order of the centroids.

        Raises:
            ValueError: The columns do not match the centroids, or a value is missing or infinite.
        """
        X = np.asarray(model_input, dtype=np.float64)
        d = self.centroids.shape[1]
        if X.ndim != 2 or X.shape[1] != d:
            raise ValueError(
                f"expected rows of {d} columns, as the centroids have, but the input has shape {X.shape}; "
                "give the columns that the federation clustered, in the same order"
            )
        if not np.isfinite(X).all():
            raise ValueError("the input has missing or infinite values; fill or drop those rows first")
        # Explicit differences: the expanded form x.x - 2 x.c + c.c loses small distances far from the origin.
        squared = [np.square(X - centroid).sum(axis=1) for centroid in self.centroids]
        labels: NDArray[np.int64] = np.argmin(np.stack(squared, axis=1), axis=1).astype(np.int64)
        return labels


mlflow.models.set_model(NearestCentroid())
