"""How good labels are: of rows against their true classes, and of local clusters against those of most of their rows.

Labels are cluster numbers >= 0; a row that was not assigned has no place in these measures, so negative labels are
refused rather than counted as one more cluster, unless a function says what it makes of them.

`labels` (n,) are integers, `y` (n,) the true classes, integers or strings; anything else is a UserError.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, IntArray
from flareclust.evaluation.metrics._arrays import as_whole, distances, same_width
from flareclust.evaluation.metrics.centroids import l2_distance, mse_matched


def purity(labels: ArrayLike, y: ArrayLike) -> float:
    """Share of rows that belong to the majority class of their cluster, over all n rows (not a mean over clusters).

    Never falls when clusters are split, so compare it only between results with the same number of clusters.
    """
    return _purity(_contingency(labels, y))


def accuracy(labels: ArrayLike, y: ArrayLike) -> float:
    """Clustering accuracy: share of rows that are right under the best one-to-one map of clusters to classes.

    With more clusters than classes (or fewer) the rows of the unmatched ones count as errors.
    """
    return _accuracy(_contingency(labels, y))


def ari(labels: ArrayLike, y: ArrayLike) -> float:
    """Adjusted Rand index (Hubert and Arabie 1985): 1 for equal partitions, 0 on average for unrelated ones."""
    return _ari(_contingency(labels, y))


def nmi(labels: ArrayLike, y: ArrayLike) -> float:
    """Normalised mutual information with the arithmetic mean: 2 I(labels; y) / (H(labels) + H(y)), from 0 to 1."""
    return _nmi(_contingency(labels, y))


def majority_class(labels: ArrayLike, classes: ArrayLike, k: int) -> IntArray:
    """Return (k,) the true class, an integer >= 0, of most rows of each local cluster, -1 for one without rows; of two the lower.

    Rows whose label is negative are not looked at.
    """
    cluster = as_whole("labels", labels, None)
    true = as_whole("classes", classes, len(cluster))
    if (cluster.size and cluster.max() >= k) or (true.size and true.min() < 0):
        raise UserError(
            f"expected labels below {k} and classes >= 0, got labels up to {cluster.max()}, classes from {true.min()}"
        )
    counts = np.zeros((k, int(true.max(initial=0)) + 1), dtype=np.int64)
    np.add.at(counts, (cluster[cluster >= 0], true[cluster >= 0]), 1)
    return np.where(counts.sum(axis=1) > 0, counts.argmax(axis=1), -1)


def correct_aggregation(group: ArrayLike, true: ArrayLike) -> float:
    """Share of the local clusters that are in the right global cluster (metrics E1 and E4).

    Right is what the best one-to-one map of global clusters to true classes says. 1: perfect.

    Args:
        group: (c,) global cluster of each local one, -1 where it is in none, which counts as wrong.
        true: (c,) true class of each local cluster, >= 0, such as that of most of its rows (`majority_class`).
    """
    groups = as_whole("group", group, None)
    classes = as_whole("true", true, len(groups))
    if not len(groups) or classes.min() < 0:
        raise UserError(
            "expected at least one local cluster, and a true class >= 0 of each; leave out those that have no rows"
        )
    assigned = groups >= 0
    return 0.0 if not assigned.any() else accuracy(groups[assigned], classes[assigned]) * float(assigned.mean())


def _purity(table: IntArray) -> float:
    return float(table.max(axis=1).sum() / table.sum())


def _accuracy(table: IntArray) -> float:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def _ari(table: IntArray) -> float:
    """Return the index of a table, from the numbers of ordered pairs of rows: integers, as in scikit-learn, whose rest takes longer."""
    n, together = int(table.sum()), int((table**2).sum())
    in_cluster, in_class = int((table.sum(axis=1) ** 2).sum()), int((table.sum(axis=0) ** 2).sum())
    both, one, other = together - n, in_cluster - together, in_class - together
    neither = n**2 - one - other - together
    if one == other == 0:
        return 1.0
    disagreeing = (both + other) * (other + neither) + (both + one) * (one + neither)
    return 2.0 * (both * neither - other * one) / disagreeing


def _nmi(table: IntArray) -> float:
    """Return the information of a table; sums have the order of scikit-learn's, to give the same in the last bits."""
    if table.shape == (1, 1):
        return 1.0
    of_class, of_cluster, n = table.sum(axis=0), table.sum(axis=1), int(table.sum())
    if len(of_class) == 1 or len(of_cluster) == 1:
        return 0.0
    j, i = np.nonzero(table.T)
    counts, expected = table[i, j], -np.log(of_class[j] * of_cluster[i]) + math.log(n) + math.log(n)
    parts = counts / n * (np.log(counts) - math.log(n)) + counts / n * expected
    shared = max(float(np.where(np.abs(parts) < np.finfo(np.float64).eps, 0.0, parts).sum()), 0.0)
    return shared / ((_entropy(of_class) + _entropy(of_cluster)) / 2) if shared else 0.0


def _entropy(counts: IntArray) -> float:
    size = counts.astype(np.float64)
    return float(-np.sum(size / size.sum() * (np.log(size) - math.log(size.sum()))))


def _contingency(labels: ArrayLike, y: ArrayLike) -> IntArray:
    """Count rows by (cluster, class); only clusters and classes that occur."""
    clusters, classes = _partitions(labels, y)
    k, c = int(clusters.max()) + 1, int(classes.max()) + 1
    return np.bincount(clusters * c + classes, minlength=k * c).reshape(k, c)


def _partitions(labels: ArrayLike, y: ArrayLike) -> tuple[IntArray, IntArray]:
    """Check labels and classes, and number both from 0 without gaps."""
    labels_array: Array = np.asarray(labels)
    y_array: Array = np.asarray(y)
    if labels_array.ndim != 1 or labels_array.shape != y_array.shape or labels_array.size == 0:
        raise UserError(
            "labels and y: expected two 1-D arrays with one entry per row, the same number in both and at least one; "
            f"got shapes {labels_array.shape} and {y_array.shape}."
        )
    if labels_array.dtype.kind not in "iu":
        raise UserError(
            f"labels: expected whole cluster numbers of shape {labels_array.shape}; got dtype {labels_array.dtype}."
        )
    if labels_array.min() < 0:
        raise UserError(
            f"labels: expected cluster numbers >= 0, shape {labels_array.shape}; got {int((labels_array < 0).sum())} "
            "negative ones. Assign those rows to a cluster, or leave them out of labels and y and say so."
        )
    if y_array.dtype.kind not in "iubUSO" and not (y_array.dtype.kind == "f" and np.all(y_array == np.floor(y_array))):
        raise UserError(
            f"y: expected classes as integers or strings, shape {y_array.shape}; got dtype {y_array.dtype} with values that "
            "are not whole. Is this column a measurement rather than a class?"
        )
    return _codes(labels_array), _codes(y_array.astype(str) if y_array.dtype.kind == "O" else y_array)


def _codes(values: Array) -> IntArray:
    """Return for each value the number of different ones below it."""
    if values.dtype.kind in "iu" and values.min() >= 0 and values.max() < len(values):
        return np.asarray((np.cumsum(np.bincount(values) > 0) - 1)[values], dtype=np.int64)  # without sorting
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def truth_metrics(
    centroids: ArrayLike, labels: ArrayLike | None, y: ArrayLike | None = None, true_centroids: ArrayLike | None = None
) -> dict[str, float]:
    """Every measure that the truth at hand allows.

    Returns:
        `l2` and `mse_matched` of centroids (k, d) with true ones (k*, d); `ari`, `nmi`, `purity`, `accuracy` with labels and y.
    """
    result: dict[str, float] = {}
    if true_centroids is not None:
        result["l2"] = l2_distance(centroids, true_centroids)
        result["mse_matched"] = mse_matched(centroids, true_centroids)
    if labels is not None and y is not None:
        table = _contingency(labels, y)
        result |= {"ari": _ari(table), "nmi": _nmi(table), "purity": _purity(table), "accuracy": _accuracy(table)}
    return result


def pooled_label_free(X: ArrayLike, centroids: ArrayLike) -> dict[str, float | None]:
    """Inertia, simplified silhouette and Davies-Bouldin index, computed plainly on pooled rows.

    This is the reference that a federation's own figures, added up from sums of its sites, must equal. It shares no code with them.
    Each row (n, d) belongs to its nearest centroid (k, d), the first of equally near ones, which need not be a mean of rows.

    Returns:
        `inertia`: sum of squared distances to the own centroid.
        `simplified_silhouette`: mean of (b - a) / max(a, b), a the distance to the own centroid and b to the nearest
        other one, empty ones included; a row with a = b = 0 counts 0.
        `davies_bouldin`: mean over clusters r with rows of the largest (S_r + S_s) / ||c_r - c_s|| over the other clusters s with
        rows, S the mean distance to the centroid (Davies and Bouldin 1979).
        The last two are None with fewer than two clusters that have rows; Davies-Bouldin also where two of their centroids coincide.
    """
    X, centroids = same_width("X", X, "centroids", centroids)
    distance = distances(X, centroids)
    labels, own = distance.argmin(axis=1), distance.min(axis=1)
    present = np.unique(labels)
    result: dict[str, float | None] = {
        "inertia": float(np.sum(own**2)),
        "simplified_silhouette": None,
        "davies_bouldin": None,
    }
    if len(present) < 2:
        return result
    others = distance.copy()
    others[np.arange(len(X)), labels] = np.inf
    other, silhouette = others.min(axis=1), np.zeros(len(X))
    np.divide(other - own, other, out=silhouette, where=other > 0)  # own <= other, so other is the larger
    result["simplified_silhouette"] = float(silhouette.mean())

    between = distances(centroids, centroids)
    if all(between[r, s] > 0 for r in present for s in present if s != r):
        scatter = {int(r): own[labels == r].mean() for r in present}
        worst = [max((scatter[r] + scatter[s]) / between[r, s] for s in scatter if s != r) for r in scatter]
        result["davies_bouldin"] = float(np.mean(worst))
    return result
