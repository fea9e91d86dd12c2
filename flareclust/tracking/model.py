"""The model a federation leaves in MLflow: a row belongs to the cluster of its nearest centroid, or its most probable component.

MLflow copies this file into the logged model and runs it on loading ("models from code"). So it imports nothing of
this package, and the model loads wherever numpy, pandas and mlflow are installed. Nothing in the model is pickled.

Of sites with different columns, rows may lack columns and centroids entries. Then its settings have
`gaps`, and what it computes is `flareclust.preparation.result.place_rows`; a test compares the two.
"""

import json
from pathlib import Path
from typing import Any

import mlflow.models
import mlflow.pyfunc
import numpy as np
import pandas as pd
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Labels = NDArray[np.int64]

#: Least divisor of a distance, relative to the length of the extremes.
_FLOOR = 1e-12

#: The value of a category that stands for a missing cell.
_MISSING = "missing"


class NearestCentroid(mlflow.pyfunc.PythonModel):
    """Assign rows to the nearest of k centroids, or to the most probable component of a Gaussian mixture.

    Near by Euclidean distance, or where entries may be unknown, by the scaled distance in the entries that both have.
    """

    def load_context(self, context: Any) -> None:
        """Read the artifacts.

        Args:
            context: its `artifacts` are `centroids`, a .npy file (k, d), of a mixture `inverses`, another with the inverses of the
                Cholesky factors of its covariances (k, d, d), or of diagonal ones (k, d), and where rows are prepared, `settings`, a
                JSON file with what is known of: `log_scales` (k,), of a mixture the logarithm of its density at each mean; `scaling` (2, d), what is taken away from the columns and what then divides them; `filling` (d,), what gaps are
                filled with, NaN where they count nowhere; `metric`, "cosine" where rows are brought to length 1; `thresholds` (k,),
                distances beyond which rows are far from a centroid; `columns`, if some are categories or hold words, the names of
                all, a category's called like sex=f; `words`, the `values` of an ordered column in their order, none for dates, and
                whether cells may be `numbers`; `gaps`, if centroids have unknown entries (NaN), how the federation scaled, filled
                and measured; `representatives`, `cluster` and `reach`, if rows belong to the cluster of the nearest of p points: these
                (p, d), the cluster of each (p,), -1 for none, and how far the cluster reaches from it (p,), all in scaled columns.
        """
        self.centroids = np.load(context.artifacts["centroids"], allow_pickle=False)
        self.inverses: _Floats | None = None
        if "inverses" in context.artifacts:
            self.inverses = np.load(context.artifacts["inverses"], allow_pickle=False)
        settings: dict[str, Any] = {}
        if "settings" in context.artifacts:
            settings = json.loads(Path(context.artifacts["settings"]).read_text(encoding="utf-8"))
        self.gaps: dict[str, Any] | None = settings.get("gaps")
        known = {**settings, **(self.gaps or {})}
        given = [known.get(name) for name in ("scaling", "filling", "thresholds", "log_scales")]
        self.scaling, self.filling, self.thresholds, self.log_scales = (
            None if values is None else np.array(values, dtype=np.float64) for values in given
        )
        self.columns: list[str] = settings.get("columns") or []
        self.words: dict[str, dict[str, Any]] = settings.get("words") or {}
        self.directions = settings.get("metric") == "cosine"
        points = settings.get("representatives")
        self.points: dict[str, Any] | None = points and {name: np.array(values) for name, values in points.items()}
        if self.points is not None:  # of all points of a cluster it is the same
            own = [self.points["cluster"] == c for c in range(len(self.centroids))]
            self.thresholds = np.array([self.points["reach"][points].max() for points in own])

    # MLflow reads the hint of model_input: a DataFrame is the one kind that it takes without a warning.
    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Return the label of each row; a tie goes to the lowest label, and -1 means that nothing can be compared.

        Args:
            context: Given by MLflow; not used.
            model_input: (n, d) DataFrame or array, columns in the order of the centroids. Where entries may be unknown,
                a DataFrame whose columns are some of the federation's, NaN where a value is missing. A category may be one
                column of its values.
            params: With `details` true, the answer is a DataFrame, a line per row: cluster, distance, second and
                second_distance (of the second nearest centroid), silhouette, threshold, far (from all centroids). Of a mixture
                distances are Mahalanobis distances, and in the place of silhouette there are probability, of the cluster, and log_density.

        Raises:
            ValueError: The columns do not match the centroids, or a value is infinite, or missing where it may not be;
                or details are asked of a model of sites with different columns.
        """
        details = bool((params or {}).get("details"))
        if self.gaps and details:
            raise ValueError("this model is of sites with different columns, and has no details; leave them out")
        if self.gaps:
            return self._with_gaps(model_input, self.gaps)
        return self._details(model_input) if details else self._labels(*self._squared(model_input))

    def _labels(self, squared: _Floats, lengths: _Floats) -> _Labels:
        labels: _Labels = np.argmin(self._ranked(squared), axis=1).astype(np.int64)
        if self.points is not None and self.thresholds is not None:  # the last column is of the points of no cluster
            reach = np.append(self.thresholds, -1.0)[labels]
            return np.where(squared.min(axis=1) > reach * np.abs(reach), -1, labels)
        return np.where(lengths == 0, -1, labels) if self.directions else labels

    def _details(self, model_input: pd.DataFrame) -> pd.DataFrame:
        squared, lengths = self._squared(model_input)
        labels, k = self._labels(squared, lengths), len(self.centroids)
        squared, n = squared[:, :k], len(squared)
        ranked = self._ranked(squared)
        order = np.argsort(ranked, axis=1, kind="stable")
        own, second = order[:, 0], order[:, min(1, k - 1)]
        distances = np.sqrt(squared)
        a, b = distances[np.arange(n), own], distances[np.arange(n), second]
        if self.log_scales is None:
            sure = {"silhouette": np.divide(b - a, b, out=np.zeros(n), where=b > 0)}
        else:
            total = np.exp((ranked.min(axis=1, keepdims=True) - ranked) / 2).sum(axis=1)
            sure = {"probability": 1 / total, "log_density": np.log(total) - ranked.min(axis=1) / 2}
        if k == 1:
            second, b = np.full(n, -1), np.full(n, np.nan)
        threshold: Any = None if self.thresholds is None else self.thresholds[own]
        far: Any = None if self.thresholds is None else (distances > self.thresholds).all(axis=1)
        table = {"cluster": own, "distance": a, "second": second, "second_distance": b, **sure}
        found = pd.DataFrame({**table, "threshold": threshold, "far": far}, index=range(n))
        found["cluster"] = labels
        if self.directions and (without := lengths == 0).any():
            found.loc[without, ["cluster", "second"]] = -1
            found.loc[without, ["distance", "second_distance", "silhouette"]] = np.nan
            if self.thresholds is not None:
                found.loc[without, "threshold"], found.loc[without, "far"] = np.nan, True
        return found

    def _squared(self, model_input: pd.DataFrame) -> tuple[_Floats, _Floats]:
        """Return the squared distances (n, k) of complete rows to the centroids, and the lengths (n,) of the rows.

        Where clusters have points, those to the nearest point of each cluster and of none (n, k + 1).
        """
        X, d = np.asarray(self._ready(model_input), dtype=np.float64), self.centroids.shape[1]
        if X.ndim != 2 or X.shape[1] != d:
            raise ValueError(
                f"expected rows of {d} columns, as the centroids have, but the input has shape {X.shape}; "
                "give the columns that the federation clustered, in the same order"
            )
        if self.filling is not None:
            X = np.where(np.isnan(X), self.filling, X)
        open_gaps = self.filling is not None and np.isnan(self.filling).any()
        if not (np.isfinite(X) | (np.isnan(X) & open_gaps)).all():
            raise ValueError("the input has missing or infinite values; fill or drop those rows first")
        centroids = self.centroids
        if self.scaling is not None:
            X, centroids = (X - self.scaling[0]) / self.scaling[1], (centroids - self.scaling[0]) / self.scaling[1]
        lengths = np.linalg.norm(X, axis=1)
        if self.directions:
            X = X / np.where(lengths > 0, lengths, 1.0)[:, None]
        # Explicit differences: the expanded form x.x - 2 x.c + c.c loses small distances far from the origin.
        if open_gaps:
            known = [np.nansum(np.square(X - centroid), axis=1) for centroid in centroids]
            X = np.where(np.isnan(X), centroids[np.argmin(known, axis=0)], X)
        apart = (X - centroid for centroid in centroids)
        if self.inverses is not None:
            diagonal = self.inverses.ndim == 2
            apart = (A * of if diagonal else A @ of.T for A, of in zip(apart, self.inverses, strict=True))
        squared = [np.square(A).sum(axis=1) for A in apart]
        if self.points is not None:
            squared = [np.full(len(X), np.inf) for _ in range(len(centroids) + 1)]
            for point, c in zip(self.points["representatives"], self.points["cluster"], strict=True):
                np.minimum(squared[c], np.square(X - point).sum(axis=1), out=squared[c])
        return np.stack(squared, axis=1), lengths

    def _ranked(self, squared: _Floats) -> _Floats:
        """Return what is least for the cluster of a row: its squared distances (n, k), or twice the negative logarithms of densities."""
        return squared if self.log_scales is None else np.asarray(squared - 2 * self.log_scales)

    def _ready(self, model_input: pd.DataFrame) -> pd.DataFrame:
        """Return the input with numbers for words, and a column of 0 and 1 for each value of a category that has one column of its values."""
        if not self.columns or not isinstance(model_input, pd.DataFrame):
            return model_input
        ready: dict[str, Any] = {}
        for column in self.columns:
            name, _, value = column.partition("=")
            if column in model_input.columns and column in self.words:
                ready[column] = self._numbers(model_input[column], column)
            elif column in model_input.columns:
                ready[column] = model_input[column].to_numpy()
            elif name in model_input.columns:
                ready[column] = self._indicator(model_input[name], name, value)
            else:
                raise ValueError(f"the input has no column {column}")
        return pd.DataFrame(ready)

    def _indicator(self, cells: Any, name: str, value: str) -> _Floats:
        """Return where a category has a value (n,), 0 or 1; NaN where the cell is missing and that is no value of its own."""
        values = [column.partition("=")[2] for column in self.columns if column.startswith(f"{name}=")]
        missing = (cells.isna() | (cells == "")).to_numpy(dtype=bool)
        texts = np.where(missing, _MISSING, cells.astype(str).to_numpy(dtype=object))
        if (~missing & ~np.isin(texts.astype(str), values)).any():
            raise ValueError(
                f"column {name} holds values other than {', '.join(values)}, which the federation did not have"
            )
        found = (texts == value).astype(np.float64)
        return found if _MISSING in values else np.where(missing, np.nan, found)

    def _numbers(self, cells: Any, name: str) -> _Floats:
        """Return the places (n,) of an ordered column's values, or the days of dates; numbers are these already, NaN is missing."""
        values, takes_numbers = self.words[name]["values"], self.words[name]["numbers"]
        texts = cells.astype(object).where(cells.notna() & (cells != ""), np.nan)
        is_text = texts.map(lambda cell: not isinstance(cell, int | float | np.number)).to_numpy(dtype=bool)
        if not takes_numbers and (~is_text & texts.notna().to_numpy(dtype=bool)).any():
            raise ValueError(
                f"numbers in the ordered column {name} may be values or their places; give values as texts"
            )
        words = texts[is_text].astype(str).str.strip()
        if values:
            read = words.map({value: float(place) for place, value in enumerate(values)})
        else:
            days = words.str.replace(r"^(.{10})[ T].*$", r"\1", regex=True)
            known = pd.to_datetime(days, format="%Y-%m-%d", errors="coerce")
            read = (known - pd.Timestamp(0)) / pd.Timedelta(days=1)
        if read.isna().any():
            what = f"values other than {', '.join(values)}" if values else "values that are no dates such as 2024-12-31"
            raise ValueError(f"column {name} holds {what}")
        found = np.empty(len(texts))
        found[~is_text] = texts[~is_text].to_numpy(dtype=np.float64)
        found[is_text] = read.to_numpy(dtype=np.float64)
        return found

    def _with_gaps(self, model_input: pd.DataFrame, gaps: dict[str, Any]) -> _Labels:
        names: list[str] = gaps["names"]
        mean, deviation = np.array(gaps["mean"]), np.array(gaps["deviation"])
        present = [name for name in names if name in model_input.columns]
        if not present:
            raise ValueError(f"the input has none of the columns {', '.join(names)}")
        X = model_input.reindex(columns=names).to_numpy(dtype=np.float64)
        if self.filling is not None:
            X = np.where(np.isnan(X) & np.isin(names, present), self.filling, X)
        if np.isinf(X).any():
            raise ValueError("the input has infinite values; leave them empty or drop those rows first")
        if gaps["fill"]:
            X = np.where(np.isnan(X), mean if self.filling is None else self.filling, X)
        centroids = self.centroids
        if gaps["standardize"]:
            X, centroids = (X - mean) / deviation, (centroids - mean) / deviation
        distance = np.full((len(X), len(centroids)), np.inf)
        patterns, pattern = np.unique(~np.isnan(X), axis=0, return_inverse=True)
        for number, has in enumerate(patterns):
            rows = pattern.reshape(-1) == number
            distance[rows] = _distances(X[np.ix_(rows, has)], centroids[:, has], gaps["phi"])
        return np.asarray(np.where(np.isinf(distance).all(axis=1), -1, distance.argmin(axis=1)), dtype=np.int64)


def _distances(X: _Floats, centroids: _Floats, phi: str) -> _Floats:
    """Return the distances (n, k) of complete rows (n, c) to centroids (k, c); infinite where nothing is in common."""
    distance = np.full((len(X), len(centroids)), np.inf)
    high, low = np.fmax.reduce(centroids, axis=0), np.fmin.reduce(centroids, axis=0)
    known = ~np.isnan(centroids)
    several = known.sum(axis=0) > 1  # an entry that one centroid alone knows does not count,
    counted = several | known[~(known & several).any(axis=1)].any(axis=0)  # unless that one knows no other
    for r, centroid in enumerate(centroids):
        common = known[r] & counted
        if common.any():
            distance[:, r] = _scaled(X[:, common], centroid[common], high[common], low[common], phi)
    return distance


def _scaled(X: _Floats, centroid: _Floats, high: _Floats, low: _Floats, phi: str) -> _Floats:
    """Return the distances (n,) of rows (n, c) to a centroid (c,), in units of the largest between the extremes (c,)."""
    if phi == "cosine":
        widest = max(float(_one_minus_cosine(high[None], low)[0]), _FLOOR)
        return _one_minus_cosine(X, centroid) / widest
    widest = max(float(np.linalg.norm(high - low)), _FLOOR * float(np.linalg.norm(np.fmax(abs(high), abs(low)))))
    distance = np.linalg.norm(X - centroid, axis=1)
    return np.asarray(np.where(distance > 0, distance / (widest or 1.0), 0.0))


def _one_minus_cosine(A: _Floats, b: _Floats) -> _Floats:
    """Return (n,) 1 - cos; 1 where one of the two is zero, 0 where both are."""
    lengths, own = np.linalg.norm(A, axis=1), float(np.linalg.norm(b))
    product = lengths * own
    cosine = np.divide(A @ b, product, out=np.zeros(len(A)), where=product > 0)
    return np.asarray(np.where((lengths == 0) & (own == 0), 0.0, 1.0 - np.clip(cosine, -1.0, 1.0)))


mlflow.models.set_model(NearestCentroid())
