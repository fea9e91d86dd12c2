"""What is asked of the rows of each cluster, in one compiled pass each: array operations take longer than the work where rows are few.

Rows are (n, d), labels (n,) in 0..k-1, or -1 for rows that are in no cluster. Sums are added up row after row, as
`np.bincount` does with weights.
"""

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.runtime import kernel

_EPSILON = float(np.finfo(np.float64).eps)


@kernel()
def _checked(label: int, k: int, least: int = -1) -> int:
    """Return a label; raise IndexError unless it is in least..k-1, beyond which a kernel would write elsewhere."""
    if not least <= label < k:
        raise IndexError("a label is no cluster's number")
    return label


@kernel()
def _check_fitting(X: FloatArray, labels: IntArray, points: FloatArray) -> None:
    """Raise ValueError unless there is a label for each row, and rows and points have the same columns: NumPy would."""
    if X.shape[0] != labels.shape[0] or X.shape[1] != points.shape[1]:
        raise ValueError("rows, labels and points do not fit together")


@kernel()
def rows_of_each(labels: IntArray, k: int) -> tuple[IntArray, IntArray]:
    """Return how many rows each of k clusters has (k,), and the number of its first one (k,), 0 for those without."""
    counts, first = np.empty(k, np.int64), np.empty(k, np.int64)
    counts[:], first[:] = 0, 0
    for i in range(labels.shape[0]):
        c = _checked(labels[i], k)
        if c >= 0:
            if counts[c] == 0:
                first[c] = i
            counts[c] += 1
    return counts, first


@kernel()
def rounding_of(minimum: FloatArray, largest: FloatArray) -> FloatArray:
    """Return by how much the mean of rows between these values can be wrong through rounding, per column (d,)."""
    rounding = np.empty(minimum.shape[0])
    for j in range(minimum.shape[0]):
        size = max(abs(minimum[j]), abs(largest[j]))
        rounding[j] = 1e-12 * (largest[j] - minimum[j]) + 8 * _EPSILON * size
    return rounding


@kernel()
def range_of(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `X.min(axis=0), X.max(axis=0)` of rows without NaN; raise ValueError where there are none."""
    if X.shape[0] == 0:
        raise ValueError("there are no rows")
    least, largest = np.empty(X.shape[1]), np.empty(X.shape[1])
    least[:], largest[:] = np.inf, -np.inf
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            least[j], largest[j] = min(least[j], X[i, j]), max(largest[j], X[i, j])
    return least, largest


@kernel()
def evidence_of(
    X: FloatArray, labels: IntArray, centroids: FloatArray, examples: FloatArray, rounding: FloatArray
) -> tuple[BoolArray, BoolArray]:
    """Return of which clusters (k,) some row differs from their example (k, d), and of which some row is the centroid (k, d)."""
    _check_fitting(X, labels, centroids)
    if examples.shape != centroids.shape or rounding.shape[0] != centroids.shape[1]:
        raise ValueError("examples and rounding do not fit the centroids")
    k, d = centroids.shape
    varied, is_row = np.zeros(k, np.bool_), np.zeros(k, np.bool_)
    for i in range(X.shape[0]):
        c = _checked(labels[i], k)
        if c < 0:
            continue
        near = True
        for j in range(d):
            varied[c] |= X[i, j] != examples[c, j]
            near &= abs(X[i, j] - centroids[c, j]) <= rounding[j]
            if varied[c] and not near:  # nearly always in the first column
                break
        is_row[c] |= near
    return varied, is_row


@kernel()
def described_groups(
    X: FloatArray, labels: IntArray, centroids: FloatArray
) -> tuple[IntArray, BoolArray, BoolArray, FloatArray]:
    """Return the rows of each cluster (k,), their evidence, and the first of them (k, d), which it is about."""
    _check_fitting(X, labels, centroids)
    counts, first = rows_of_each(labels, centroids.shape[0])
    examples = X[first]
    varied, is_row = evidence_of(X, labels, centroids, examples, rounding_of(*range_of(X)))
    return counts, varied, is_row, examples


@kernel()
def columns_that_vary(X: FloatArray, labels: IntArray, k: int) -> BoolArray:
    """Return in which columns the rows of each cluster differ (k, d)."""
    d = X.shape[1]
    _check_fitting(X, labels, X)
    examples = X[rows_of_each(labels, k)[1]]  # which checks the labels
    varied = np.zeros((k, d), np.bool_)
    for i in range(X.shape[0]):
        c = labels[i]
        if c >= 0:
            for j in range(d):
                varied[c, j] |= X[i, j] != examples[c, j]
    return varied


@kernel()
def rows_unlike(X: FloatArray, row: FloatArray) -> BoolArray:
    """Return which rows (n,) differ from one (d,)."""
    unlike = np.zeros(X.shape[0], np.bool_)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            unlike[i] |= X[i, j] != row[j]
    return unlike


@kernel(error_model="numpy")
def means_of_each(X: FloatArray, labels: IntArray, origin: FloatArray, counts: IntArray, means: FloatArray) -> None:
    """means (k, d) become those of the rows of each label, counts (k,) of them, added up about an origin (d,); no label is -1."""
    _check_fitting(X, labels, means)
    n, d = X.shape
    means[:] = 0.0
    for i in range(n):
        c = _checked(labels[i], counts.shape[0], 0)
        for j in range(d):
            means[c, j] += X[i, j] - origin[j]
    for c in range(counts.shape[0]):
        for j in range(d):
            means[c, j] = origin[j] + means[c, j] / counts[c]


@kernel()
def distances_of_each(
    X: FloatArray, labels: IntArray, centroids: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return what `flareclust.core.lloyd.Statistics` holds, of the rows that are in a cluster."""
    _check_fitting(X, labels, centroids)
    k, d = centroids.shape
    counts, sse, largest = np.empty(k, np.int64), np.empty(k), np.empty(k)
    counts[:], sse[:], largest[:] = 0, 0.0, 0.0
    for i in range(X.shape[0]):
        c = _checked(labels[i], k)
        if c < 0:
            continue
        squared = 0.0
        for j in range(d):
            difference = X[i, j] - centroids[c, j]
            squared += difference * difference
        counts[c] += 1
        sse[c] += squared
        largest[c] = max(largest[c], np.sqrt(squared))
    return counts, sse, largest


@kernel()
def squares_of_each(X: FloatArray, labels: IntArray, means: FloatArray) -> FloatArray:
    """Return the sums of the squared deviations (k, d) of the columns from the means (k, d) of the clusters."""
    _check_fitting(X, labels, means)
    found = np.zeros(means.shape)
    for i in range(X.shape[0]):
        c = _checked(labels[i], means.shape[0])
        if c >= 0:
            for j in range(X.shape[1]):
                deviation = X[i, j] - means[c, j]
                found[c, j] += deviation * deviation
    return found


@kernel()
def add_means(
    means: FloatArray, rows: FloatArray, labels: IntArray, origin: FloatArray, present: BoolArray, sums: FloatArray
) -> None:
    """Add means (c, d) of so many rows (c,) to the sums (k, d) of their clusters about an origin (k, d): the first mean of each."""
    _check_fitting(means, labels, origin)
    for i in range(means.shape[0]):
        c = _checked(labels[i], origin.shape[0], 0)
        for j in range(means.shape[1]):
            if not present[c]:
                origin[c, j] = means[i, j]
            sums[c, j] += rows[i] * (means[i, j] - origin[c, j])
        present[c] = True


@kernel()
def add_assessed(
    labels: IntArray,
    squared: FloatArray,
    second: FloatArray,
    counts: IntArray,
    sse: FloatArray,
    silhouette: FloatArray,
    scatter: FloatArray,
) -> None:
    """Add to the sums (k,) of `flareclust.core.assessment.assessment_sums` those of rows, from what `two_nearest` gives."""
    for i in range(labels.shape[0]):
        c, own, other = labels[i], np.sqrt(squared[i]), np.sqrt(second[i])
        counts[c] += 1
        sse[c] += squared[i]
        scatter[c] += own
        if len(counts) > 1 and other > 0.0:  # never below the own distance
            silhouette[c] += (other - own) / other
