"""What a trial keeps of its clusters, so that cells of a study can be compared: means of their rows, in the units of the columns."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.core.group_kernels import squares_of_each
from flareclust.core.lloyd import moments, sums_by_label
from flareclust.data.cells import DAYS, ordered
from flareclust.evaluation.continuity import Clusters
from flareclust.experiment.results.picture import is_embedded
from flareclust.experiment.results.result import Result
from flareclust.experiment.results.sizes import shown_labels, withholds
from flareclust.preparation import result as partial

#: A trial keeps no more numbers than that: each is on its line of the file of trials.
_MOST_NUMBERS = 3000


@dataclass(frozen=True)
class ClusterMeans:
    """Means of the rows of k clusters in d columns.

    Attributes:
        columns: their names (d,).
        rows: of each cluster (k,).
        means: of their rows (k, d).
        spread: root mean square distance of each cluster's rows to their mean (k,), in standard deviations of the columns.
        center, deviation: mean and standard deviation of all rows (d,); the latter 1 for constant columns.
        units: of the columns (d,) whose values are words, ordered ones and dates, how a schema writes them; "" for others.
    """

    columns: tuple[str, ...]
    rows: list[int]
    means: list[list[float]]
    spread: list[float]
    center: list[float]
    deviation: list[float]
    units: tuple[str, ...] = ()

    @property
    def z(self) -> FloatArray:
        """Return how many standard deviations each mean is from that of all rows (k, d)."""
        found: FloatArray = (np.array(self.means) - self.center) / self.deviation
        return found

    def clusters(self) -> Clusters:
        """Return the clusters in the space in which cells are compared: of columns in standard deviations."""
        return Clusters(self.z, np.array(self.rows, dtype=np.int64), np.array(self.spread))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"columns": list(self.columns), "units": list(self.units)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> "ClusterMeans | None":
        """Return what `to_json` gave; None for None."""
        return (
            None
            if values is None
            else cls(**{**values, **{name: tuple(values.get(name, ())) for name in ("columns", "units")}})
        )


def cluster_means(result: Result) -> ClusterMeans | None:
    """Return the means of a result whose rows are here; None where they are not, or are too many numbers.

    Clusters without rows are left out, and so are rows without a label in `shown_labels`.
    """
    sites = {site: X for site, X in result.sites.items() if site in result.site_labels}
    if not sites or partial.is_partial(result.arrays) or is_embedded(result.arrays):
        return None
    X, own = np.concatenate([sites[site] for site in sorted(sites)]), shown_labels(result)
    labels = np.concatenate([own[site] for site in sorted(sites)])
    k, d = result.centroids_found, X.shape[1]
    if len(X) != len(labels) or k * d > _MOST_NUMBERS or not (labels >= 0).any():
        return None
    if withholds(result):  # neither are they in the means of all rows, from which theirs would follow
        X, labels = np.ascontiguousarray(X[labels >= 0]), labels[labels >= 0]
    center, variance = moments(X)
    deviation = np.sqrt(variance)
    deviation, used = np.where(deviation > 0, deviation, 1.0), labels >= 0
    counts = np.bincount(labels[used], minlength=k)
    sums = np.column_stack([sums_by_label(labels[used], column, k) for column in X[used].T])
    means = sums / np.maximum(counts, 1)[:, None]
    squares, kept = squares_of_each(X / deviation, labels, means / deviation).sum(axis=1), np.flatnonzero(counts)
    of = {name: ordered(values) if values else DAYS for name, values in result.words.items()}
    return ClusterMeans(
        result.columns or tuple(f"column {j + 1}" for j in range(d)),
        counts[kept].tolist(),
        [_short(mean) for mean in means[kept]],
        _short(np.sqrt(squares[kept] / counts[kept])),
        _short(center),
        _short(deviation),
        tuple(of.get(name, "") for name in result.columns or ()) if result.words else (),
    )


def _short(values: FloatArray) -> list[float]:
    """Return numbers with six digits, which is more than a page shows."""
    return [float(f"{value:.6g}") for value in values]
