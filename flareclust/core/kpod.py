"""k-POD: k-means on pooled rows with missing entries, the baseline for sites that have different columns.

Source: Chi, Chi, Baraniuk (2016), k-POD: A Method for k-Means Clustering of Missing Data, The American Statistician
70(1), Algorithm 1. It minimises the squares over the observed entries by majorisation: every missing entry is filled
with that of its row's centroid, k-means on the filled rows follows, and so on.

Readings and deviations:

1. The first filling is with the columns' means, and k-means on it starts from k-means++.
2. k-means of every further filling starts from the last centroids, without which the objective need not fall.
3. After k-means a centroid is put at the means of the observed entries of its rows. Filling and averaging with the same
   rows again and again comes to the same, but gains only the observed share of the rest each time.
4. Where the majorisation has come to rest, rows move to the centroid nearest in the entries they have, until that rests
   as well. It lowers the same objective and is needed where whole columns are missing: a filled entry costs a row
   nothing at its own centroid and something at every other, so that rows stay where the means put them. What rests in
   this descent rests in the majorisation, too: to fill in adds nothing to the distance from the own centroid.
5. An empty cluster takes the row that is farthest from its centroid.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import check_choice, check_int
from flareclust.core.missing.kernels import nearest_by_known, squares_of_known, sums_of_known
from flareclust.core.runtime import one_thread

#: How columns can be scaled.
SCALES = ("none", "standard")


class Observed(NamedTuple):
    """Rows (n, D) with 0 for what is missing, and weights (n, D): 1 where an entry is observed, 0 where it is not."""

    rows: FloatArray
    known: FloatArray


class Fit(NamedTuple):
    """Centroids (k, D), also with a value where nothing is observed; labels (n,); sum of squares over what is observed."""

    centroids: FloatArray
    labels: IntArray
    objective: float


def kpod(X: ArrayLike, k: int, seed: int = 0, n_init: int = 10, max_iter: int = 100, scale: str = "none") -> FloatArray:
    """Return the centroids of the smallest sum of squares over the observed entries, among `n_init` starts.

    On complete rows this is scikit-learn's k-means with the same starts as `central_kmeans`.

    Args:
        X: rows (n, D), NaN where an entry is missing.
        k: number of clusters, at most n.
        seed: of scikit-learn's k-means.
        n_init: starts; the best one counts.
        max_iter: most fillings of a start, and then most passes over the rows.
        scale: "standard" where columns are brought to mean 0 and variance 1 of their observed entries, else "none".

    Returns:
        (k, D), NaN where no row of the cluster has the column; fewer than k where clusters end without rows.

    Raises:
        UserError: a row or a column without any entry, infinite values, fewer rows than k, or a setting out of range.
    """
    check_int("n_init", n_init, minimum=1)
    check_int("max_iter", max_iter, minimum=1)
    check_choice("scale", scale, SCALES)
    data, origin = _checked(X, check_int("k", k, minimum=1))
    deviation = location_and_scale(X)[1] if scale == "standard" else np.ones(1)
    data = data._replace(rows=data.rows / deviation)
    random = np.random.RandomState(seed)  # one stream for all starts, as in scikit-learn's own n_init
    with one_thread():
        starts = (_kmeans(data, data.rows, k, random_state=random) for _ in range(n_init))
        fits = [list(_improve(data, start, max_iter))[-1] for start in starts]
    best = min(fits, key=lambda fit: fit.objective)  # the first of equals
    totals, holders = np.zeros((2, *best.centroids.shape))
    sums_of_known(*data, best.labels, totals, holders)
    centroids: FloatArray = np.where(holders > 0, best.centroids * deviation + origin, np.nan)
    return centroids[np.bincount(best.labels, minlength=k) > 0]


def location_and_scale(X: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation (D,) of the observed entries of each column, 1 for a constant one."""
    rows = np.asarray(X, np.float64)
    known = ~np.isnan(rows)
    holders = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, rows, 0.0).sum(axis=0) / holders
    deviation = np.sqrt((np.where(known, rows - mean, 0.0) ** 2).sum(axis=0) / holders)
    constant = np.fmax.reduce(rows, axis=0) == np.fmin.reduce(rows, axis=0)
    return mean, np.where(constant | (deviation == 0), 1.0, deviation)


def _kmeans(data: Observed, filled: FloatArray, k: int, **options: Any) -> Fit:
    """Return k-means of rows (n, D) whose missing entries are filled, settled on the observed ones."""
    from sklearn.cluster import KMeans

    model = KMeans(k, n_init=1, **options).fit(filled)
    return _settled(data, model.cluster_centers_, model.labels_)


def _improve(data: Observed, fit: Fit, max_iter: int) -> Iterator[Fit]:
    """Yield `fit` and what it becomes, step by step: first by majorisation, then by moving rows."""
    yield fit
    for step in (_majorise, move):
        for _ in range(max_iter):
            following = step(data, fit)
            if np.array_equal(following.labels, fit.labels):
                break
            fit = following
            yield fit


def _majorise(data: Observed, fit: Fit) -> Fit:
    """Fill the missing entries with those of the own centroid, and run k-means from the centroids there are."""
    filled = np.where(data.known > 0, data.rows, fit.centroids[fit.labels])
    return _kmeans(data, filled, len(fit.centroids), init=fit.centroids)


def move(data: Observed, fit: Fit) -> Fit:
    """Give every row to the centroid nearest in the entries it has."""
    k = len(fit.centroids)
    centroids, labels = fit.centroids.copy(), np.empty(len(data.rows), np.int64)
    nearest_by_known(*data, centroids, labels)
    for empty in np.flatnonzero(np.bincount(labels, minlength=k) == 0):
        squares = _squares(data, centroids, labels)
        squares[np.bincount(labels, minlength=k)[labels] == 1] = 0.0  # the only row of a cluster stays
        row = int(squares.argmax())
        if squares[row] > 0:
            labels[row] = empty
            centroids[empty] = np.where(data.known[row] > 0, data.rows[row], centroids[empty])
    return _settled(data, centroids, labels)


def _settled(data: Observed, centroids: FloatArray, labels: IntArray) -> Fit:
    """Put the centroids at the means of the observed entries of their rows; others stay as they are."""
    labels = labels.astype(np.int64)
    totals, holders = np.zeros((2, *centroids.shape))
    sums_of_known(*data, labels, totals, holders)
    centroids = np.where(holders > 0, totals / np.maximum(holders, 1.0), centroids)
    return Fit(centroids, labels, float(_squares(data, centroids, labels).sum()))


def _squares(data: Observed, centroids: FloatArray, labels: IntArray) -> FloatArray:
    """Return each row's squared distance (n,) to its centroid in the entries it has."""
    squares = np.empty(len(data.rows))
    squares_of_known(*data, centroids, labels, squares)
    return squares


def _checked(X: ArrayLike, k: int) -> tuple[Observed, FloatArray]:
    """Return the rows about the means of their columns, and these means (D,)."""
    try:
        rows = np.asarray(X, dtype=np.float64, order="C")  # the kernels' form
    except (TypeError, ValueError) as error:
        raise UserError(f"X must be an array of numbers, with NaN where one is missing: {error}") from error
    if rows.ndim != 2 or rows.size == 0:
        raise UserError(f"X must have shape (n, D) with at least one row and one column, got {rows.shape}")
    if k > len(rows):
        raise UserError(f"k={k} is more than the {len(rows)} rows")
    if np.isinf(rows).any():
        raise UserError(f"X has {int(np.isinf(rows).sum())} infinite values; put NaN where a value is missing")
    known: BoolArray = ~np.isnan(rows)
    _refuse_empty("row", known)
    _refuse_empty("column", known.T)
    observed = known.astype(np.float64)
    # First about a value of the column: the sum of values far from zero would lose their differences.
    anchor = np.take_along_axis(rows, known.argmax(axis=0)[None], axis=0)[0]
    origin = anchor + np.where(known, rows - anchor, 0.0).sum(axis=0) / observed.sum(axis=0)
    return Observed(np.where(known, rows - origin, 0.0), observed), origin


def _refuse_empty(what: str, known: BoolArray) -> None:
    empty = np.flatnonzero(~known.any(axis=1))
    if len(empty):
        listed = ", ".join(map(str, empty[:5])) + (", ..." if len(empty) > 5 else "")
        raise UserError(
            f"{len(empty)} {what}{'s' * (len(empty) > 1)} of X without any entry (number {listed}); drop them"
        )
