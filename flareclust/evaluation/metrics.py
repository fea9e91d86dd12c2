"""How good recovered clusters are: against the truth where it is known, and against the pooled rows where it is not.

Distances are Euclidean and in the data's own unit. Labels are cluster numbers >= 0; a row that was not assigned has no
place in these measures, so negative labels are refused rather than counted as one more cluster.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray


def match_centroids(found: ArrayLike, true: ArrayLike) -> tuple[IntArray, IntArray]:
    """Pair recovered with true centroids one to one.

    The assignment minimises the sum of SQUARED distances, so it is the one that makes `l2_distance` smallest. Hungarian
    matching on unsquared distances can choose other pairs when centroids are far off.

    Args:
        found: (k, d) recovered centroids.
        true: (k*, d) true centroids; k* may differ from k.

    Returns:
        (found_index, true_index), each of shape (min(k, k*),), sorted by found_index.

    Raises:
        UserError: an array is not 2-D, is empty, holds NaN or infinity, or the widths d differ.
    """
    found, true = _same_width("found", found, "true", true)
    return _match(found, true)


def l2_distance(found: ArrayLike, true: ArrayLike) -> float:
    """Frobenius norm of found - true over the matched pairs, in the data's unit.

    FeCA (section 6) names its l2-distance without a formula; this reading reproduces its tables (scaled by 1e4 there).
    Only matched pairs count, so an algorithm that returns FEWER centroids than there are true ones gets a smaller value
    for it, and superfluous centroids cost nothing. Always report the number of centroids found beside this value.

    Args:
        found: (k, d) recovered centroids.
        true: (k*, d) true centroids.

    Raises:
        UserError: as `match_centroids`.
    """
    found, true = _same_width("found", found, "true", true)
    found_index, true_index = _match(found, true)
    return float(np.linalg.norm(found[found_index] - true[true_index]))


def mse_matched(found: ArrayLike, true: ArrayLike) -> float:
    """Mean squared distance of a matched pair: l2_distance^2 / min(k, k*); the square of the data's unit.

    Args:
        found: (k, d) recovered centroids.
        true: (k*, d) true centroids.

    Raises:
        UserError: as `match_centroids`.
    """
    found, true = _same_width("found", found, "true", true)
    return l2_distance(found, true) ** 2 / min(len(found), len(true))


def purity(labels: ArrayLike, y: ArrayLike) -> float:
    """Share of rows that belong to the majority class of their cluster, over all n rows (not a mean over clusters).

    Never falls when clusters are split, so compare it only between results with the same number of clusters.

    Args:
        labels: (n,) cluster numbers >= 0.
        y: (n,) true classes, integers or strings.

    Raises:
        UserError: lengths differ, no rows, labels that are not integers or are negative.
    """
    return float(_contingency(labels, y).max(axis=1).sum() / np.size(labels))


def accuracy(labels: ArrayLike, y: ArrayLike) -> float:
    """Clustering accuracy: share of rows that are right under the best one-to-one map of clusters to classes.

    With more clusters than classes (or fewer) the rows of the unmatched ones count as errors.

    Args:
        labels: (n,) cluster numbers >= 0.
        y: (n,) true classes, integers or strings.

    Raises:
        UserError: as `purity`.
    """
    from scipy.optimize import linear_sum_assignment

    table = _contingency(labels, y)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / np.size(labels))


def ari(labels: ArrayLike, y: ArrayLike) -> float:
    """Adjusted Rand index (Hubert and Arabie 1985): 1 for equal partitions, 0 on average for unrelated ones.

    Args:
        labels: (n,) cluster numbers >= 0.
        y: (n,) true classes, integers or strings.

    Raises:
        UserError: as `purity`.
    """
    from sklearn.metrics import adjusted_rand_score

    clusters, classes = _partitions(labels, y)
    return float(adjusted_rand_score(classes, clusters))


def nmi(labels: ArrayLike, y: ArrayLike) -> float:
    """Normalised mutual information with the arithmetic mean: 2 I(labels; y) / (H(labels) + H(y)), from 0 to 1.

    Args:
        labels: (n,) cluster numbers >= 0.
        y: (n,) true classes, integers or strings.

    Raises:
        UserError: as `purity`.
    """
    from sklearn.metrics import normalized_mutual_info_score

    clusters, classes = _partitions(labels, y)
    return float(normalized_mutual_info_score(classes, clusters, average_method="arithmetic"))


def sigma(centroids: ArrayLike, radii: ArrayLike, true: ArrayLike) -> FloatArray:
    """Error of each centroid that clients returned, in units of its group's radius (FeCA, appendix B, eq. 54).

    Every returned centroid belongs to its nearest true centre. In the group of true centre theta_s the centroid with the
    largest radius is c_s, and r_s is that radius. Then sigma_i = ||c_i - theta_s|| / r_s. Values up to 0.5 suffice
    (eq. 51-53) for the ball around c_s to hold the whole group, which is what the server's grouping by radius needs.

    Args:
        centroids: (c, d) centroids of all clients together.
        radii: (c,) their radii, >= 0, in the data's unit.
        true: (k*, d) true centroids.

    Returns:
        (c,) without unit. Where r_s is 0: infinity, or 0 for a centroid that lies on its true centre.

    Raises:
        UserError: as `match_centroids`; radii of another length, negative or not finite.
    """
    centroids, true = _same_width("centroids", centroids, "true", true)
    radii = _numbers("radii", radii)
    if radii.shape != (len(centroids),) or not np.all(radii >= 0):
        raise UserError(
            f"radii: expected one radius >= 0 for each of {len(centroids)} centroids, shape ({len(centroids)},); "
            f"got shape {radii.shape}" + (f" with smallest value {radii.min():g}." if radii.size else ".")
        )
    distance = _distances(centroids, true)
    owner = distance.argmin(axis=1)
    error = distance.min(axis=1)
    largest = np.zeros(len(true))
    np.maximum.at(largest, owner, radii)
    scale = largest[owner]
    result = np.where(error > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):  # a radius near zero: infinity is the right answer
        np.divide(error, scale, out=result, where=scale > 0)
    return result


def pooled_label_free(X: ArrayLike, centroids: ArrayLike) -> dict[str, float | None]:
    """Inertia, simplified silhouette and Davies-Bouldin index, computed plainly on pooled rows.

    This is the reference that a federation's own figures, added up from sums of its sites, must equal. It shares no code with them.
    Each row belongs to its nearest centroid, the first of equally near ones.

    Args:
        X: (n, d) rows of all sites together.
        centroids: (k, d); they need not be the means of their rows.

    Returns:
        `inertia`: sum of squared distances to the own centroid.
        `simplified_silhouette`: mean of (b - a) / max(a, b), a the distance to the own centroid and b to the nearest
        other one, empty ones included; a row with a = b = 0 counts 0.
        `davies_bouldin`: mean over clusters r with rows of the largest (S_r + S_s) / ||c_r - c_s|| over the other clusters s with
        rows, S the mean distance to the centroid (Davies and Bouldin 1979).
        The last two are None with fewer than two clusters that have rows; Davies-Bouldin also where two of their centroids coincide.

    Raises:
        UserError: as `match_centroids`.
    """
    X, centroids = _same_width("X", X, "centroids", centroids)
    distance = _distances(X, centroids)
    labels = distance.argmin(axis=1)
    own = distance.min(axis=1)
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
    other = others.min(axis=1)
    silhouette = np.zeros(len(X))
    np.divide(other - own, other, out=silhouette, where=other > 0)  # own <= other, so other is the larger
    result["simplified_silhouette"] = float(silhouette.mean())

    between = _distances(centroids, centroids)
    if all(between[r, s] > 0 for r in present for s in present if s != r):
        scatter = {int(r): own[labels == r].mean() for r in present}
        worst = [max((scatter[r] + scatter[s]) / between[r, s] for s in scatter if s != r) for r in scatter]
        result["davies_bouldin"] = float(np.mean(worst))
    return result


def truth_metrics(
    centroids: ArrayLike, labels: ArrayLike | None, y: ArrayLike | None = None, true_centroids: ArrayLike | None = None
) -> dict[str, float]:
    """Every measure that the truth at hand allows.

    Args:
        centroids: (k, d) recovered centroids.
        labels: (n,) cluster numbers >= 0 of the rows, or None if no rows were labelled.
        y: (n,) true classes, if known.
        true_centroids: (k*, d), if known.

    Returns:
        `l2` and `mse_matched` with true centroids; `ari`, `nmi`, `purity`, `accuracy` with labels and y. Values are floats.

    Raises:
        UserError: as `match_centroids` and `purity`.
    """
    result: dict[str, float] = {}
    if true_centroids is not None:
        result["l2"] = l2_distance(centroids, true_centroids)
        result["mse_matched"] = mse_matched(centroids, true_centroids)
    if labels is not None and y is not None:
        result["ari"] = ari(labels, y)
        result["nmi"] = nmi(labels, y)
        result["purity"] = purity(labels, y)
        result["accuracy"] = accuracy(labels, y)
    return result


def _match(found: FloatArray, true: FloatArray) -> tuple[IntArray, IntArray]:
    from scipy.optimize import linear_sum_assignment

    found_index, true_index = linear_sum_assignment(_distances(found, true) ** 2)
    return np.asarray(found_index, dtype=np.int64), np.asarray(true_index, dtype=np.int64)


def _distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return (len(A), len(B)) distances from plain differences, column by column so that no (n, k, d) array arises."""
    result = np.empty((len(A), len(B)))
    for j, b in enumerate(B):
        result[:, j] = np.sqrt(((A - b) ** 2).sum(axis=1))
    return result


def _contingency(labels: ArrayLike, y: ArrayLike) -> IntArray:
    """Count rows by (cluster, class); only clusters and classes that occur."""
    clusters, classes = _partitions(labels, y)
    table = np.zeros((clusters.max() + 1, classes.max() + 1), dtype=np.int64)
    np.add.at(table, (clusters, classes), 1)
    return table


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
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def _same_width(name_a: str, a: Any, name_b: str, b: Any) -> tuple[FloatArray, FloatArray]:
    """Check two sets of points in the same space."""
    A, B = _numbers(name_a, a), _numbers(name_b, b)
    for name, points in ((name_a, A), (name_b, B)):
        if points.ndim != 2 or points.size == 0:
            raise UserError(f"{name}: expected a 2-D array with at least one row and column; got shape {points.shape}.")
    if A.shape[1] != B.shape[1]:
        raise UserError(
            f"{name_a} and {name_b}: expected the same number of columns; got shapes {A.shape} and {B.shape}. "
            "Are both in the same features, in the same order?"
        )
    return A, B


def _numbers(name: str, value: Any) -> FloatArray:
    try:
        result = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: expected an array of numbers; got {type(value).__name__} ({error}).") from error
    if not np.all(np.isfinite(result)):
        bad = int((~np.isfinite(result)).sum())
        raise UserError(f"{name}: expected finite numbers; got {bad} NaN or infinite values, shape {result.shape}.")
    return result
