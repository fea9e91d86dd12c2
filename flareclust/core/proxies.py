"""Distributions that stand for clusters: fitted where the rows are, drawn from ("proxies") where the clusters are merged.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", sections 5.2, 5.4 and 6.3.

Readings, and what is added:
1. A cluster with at most as many rows as columns has a singular covariance. It is kept as a factor F (r, d) with
   F'F = covariance and r its rank, which can be drawn from as it is.
2. Mean and covariance of two rows are these two rows. So fewer than three rows get no spread at all: no factor, a
   Dirichlet distribution at its mean, a box that is the mean.
3. The likelihood of a Dirichlet distribution has no maximum for rows without spread; alpha then is the mean times 1e8.
   Exact zeros, which do not occur there, count as half the smallest positive entry.
4. If a single row has another value in some column, its covariances with that column are the row. So a column counts as
   constant unless several rows differ in it from the most frequent value.
"""

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust._foundation.validation import check_choice, check_int
from flareclust.core.arrays import as_count, as_matrix
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.runtime import one_thread
from flareclust.core.spectral import triangular

#: Estimates of a covariance.
COVARIANCES = ("mle", "ledoit-wolf", "diagonal")

#: Fewest and most proxies of a cluster (section 6.3).
FEWEST, MOST = 30, 100

#: Largest sum of a Dirichlet distribution's alpha (reading 3).
_SHARPEST = 1e8

#: How far the entries of a row on the simplex may add up to something else than 1.
_SIMPLEX = 1e-6

#: An eigenvalue of a covariance that is smaller, beside the mean squares of the columns, comes from singular values; and the
#: least that has all its digits.
_SHARE, _NORMAL = 1e-5, 1e-280

_MOST_STEPS = 200

#: Points drawn for each one that is needed, before those outside the box are pulled to its surface.
_TRIES = 20


def proxy_size(count: int) -> int:
    """Return how many proxies stand for a cluster of `count` rows: as many as rows, between 30 and 100."""
    return min(max(check_int("count", count, 0), FEWEST), MOST)


def gaussian_factor(rows: ArrayLike, covariance: str = "mle", minimum: int = 1) -> FloatArray:
    """Return F (r, d) with F.T @ F = covariance of rows (n, d), but for odd columns; r is its rank.

    Columns in which fewer than `minimum` rows differ from the others have no spread (reading 4). r = 0 for fewer than 3
    rows (reading 2), and for rows that are all the same. "mle" is the maximum likelihood
    estimate (r <= n - 1), "ledoit-wolf" scikit-learn's shrinkage estimate (r = d), "diagonal" the variances alone.

    Raises UserError for input that does not fit the above.
    """
    rows = as_matrix(rows, "rows")
    check_choice("covariance", covariance, COVARIANCES)
    n, d = rows.shape
    if n < LEAST_ROWS or not (varies := _varying(rows, check_int("minimum", minimum, 1))).any():
        return np.empty((0, d))
    if covariance == "mle" and n > d:
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # of squares, which then do not serve
            return _signed(_axes(rows, varies))
    # A constant column's mean is rounded; its spread must be 0 all the same.
    centred = np.where(varies, rows - rows.mean(axis=0), 0.0)
    if covariance == "diagonal":
        deviations = np.sqrt((centred**2).mean(axis=0))
        return np.asarray(np.diag(deviations)[deviations > 0])
    with one_thread():
        if covariance == "ledoit-wolf":
            from sklearn.covariance import ledoit_wolf  # most of 165 MB and of the time of an import, at each site

            values, vectors = np.linalg.eigh(ledoit_wolf(centred, assume_centered=True)[0])
            return _signed(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)
        return _signed(_singular(centred, n) * varies)


def _axes(rows: FloatArray, varies: BoolArray) -> FloatArray:
    """Return the factor (r, d) of the covariance of rows (n, d), n > d, that differ in some of the columns."""
    n, d = rows.shape
    factor = np.zeros((int(varies.sum()), d))
    mean, within = np.ones(n) @ rows / n, np.ix_(varies, varies)
    squares = (rows.T @ rows / n)[within]
    found = _of_squares(squares - np.outer(mean[varies], mean[varies]), squares.trace())
    if found is None:
        centred = (rows if varies.all() else rows[:, varies]) - mean[varies]
        squares = centred.T @ centred / n
        found = _of_squares(squares, squares.trace())
    if found is None:
        found = _singular(triangular(centred), n)
    factor[: len(found), varies] = found
    return factor[: len(found)]


def _of_squares(covariance: FloatArray, size: float) -> FloatArray | None:
    """Return the factor (d, d) of a covariance that comes from products of columns with mean squares `size` together.

    Their rounding errors make an eigenvalue wrong by some 2^-53 `size`. None where that is more than 2^-53 / `_SHARE` of it:
    then the rows' singular values are needed, whose squares would lose their digits.
    """
    if not np.isfinite(size):
        return None
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= max(_SHARE * size, _NORMAL):
        return None
    return np.asarray(np.sqrt(values[::-1, None]) * vectors.T[::-1])


def _singular(centred: FloatArray, n: int) -> FloatArray:
    """Return the factor (r, d) of the covariance of n rows about their mean, or of what has their squares."""
    d = centred.shape[1]
    _, values, axes = np.linalg.svd(centred / np.sqrt(n), full_matrices=False)
    return np.asarray((values[:, None] * axes)[values > values[0] * max(n, d) * np.finfo(np.float64).eps])


def _signed(factor: FloatArray) -> FloatArray:
    """Let every axis (r, d), which may point both ways, point one way: so the same draws give the same proxies."""
    largest = factor[np.arange(len(factor)), np.abs(factor).argmax(axis=1)]
    return factor * np.where(largest < 0, -1.0, 1.0)[:, None]


def _varying(rows: FloatArray, least: int) -> BoolArray:
    """Return in which columns (d,) at least so many of the rows (n, d), n >= 1, differ from the most frequent value."""
    if len(rows) <= (few := 8 * least):
        return _differing(rows, least)
    # Enough that differ from the most frequent value of some rows differ from any one value.
    found = _differing(rows[:few], least)
    found[~found] = _differing(rows[:, ~found], least)
    return found


def _differing(rows: FloatArray, least: int) -> BoolArray:
    """Do what `_varying` does, by looking at all rows."""
    n, columns = len(rows), np.ascontiguousarray(rows.T)
    if n >= 2 * least:  # a value that more than half of the rows have is the median; without one, at least half differ
        middle = np.partition(columns, n // 2, axis=1)[:, n // 2]
        return np.asarray(np.count_nonzero(columns != middle[:, None], axis=1) >= least)
    return np.array([n - np.unique(column, return_counts=True)[1].max() >= least for column in columns])


def dirichlet_fit(rows: ArrayLike) -> FloatArray:
    """Return the alpha (d,) of largest likelihood for rows (n, d) on the simplex, by Newton's method.

    The mean of the distribution, alpha / alpha.sum(), is not the mean of the rows in general. See readings 2 and 3 for
    few rows, rows without spread, and zeros.

    Minka (2000), Estimating a Dirichlet distribution: the Hessian is diagonal plus a constant, so a step is O(d).

    Raises UserError where rows are not (n, d) with n >= 1 and d >= 2, entries are negative, or do not add up to 1.
    """
    shares = as_matrix(rows, "rows")
    if len(shares) == 0 or shares.shape[1] < 2:
        raise UserError(f"rows must be at least one row of at least two columns, got shape {shares.shape}")
    if (shares < 0).any() or (np.abs(shares.sum(axis=1) - 1) > _SIMPLEX).any():
        raise UserError(
            "rows must be shares: not negative, adding up to 1 in each row; divide each row by its sum, or choose a "
            "gaussian distribution"
        )
    positive = shares > 0
    shares = np.where(positive, shares, max(shares[positive].min() / 2, np.finfo(np.float64).tiny))
    shares = shares / shares.sum(axis=1, keepdims=True)
    mean, variance = shares.mean(axis=0), shares.var(axis=0)
    sharpest: FloatArray = mean * _SHARPEST
    spread = variance.sum()
    if len(shares) < LEAST_ROWS or (mean * (1 - mean)).sum() >= spread * _SHARPEST:
        return sharpest
    start = mean * max((mean * (1 - mean)).sum() / spread - 1, 1e-3)  # equal second moments, all columns together
    alpha = _newton(np.log(shares).mean(axis=0), start)
    return alpha if alpha.sum() < _SHARPEST else sharpest


def box(rows: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the corners low and high, both (d,), of a box around rows (n, d), 1 % of its width larger on each side.

    No corner is a value of a row. But who knows the rule can undo it, so a box does disclose the smallest and largest value
    of each column. Fewer than 3 rows get their mean for both corners (reading 2).

    Raises UserError where rows are not (n, d) with n >= 1.
    """
    rows = as_matrix(rows, "rows", empty=False)
    if len(rows) < LEAST_ROWS:
        return rows.mean(axis=0), rows.mean(axis=0)
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = 0.01 * (high - low)
    # Rounding must not swallow the margin.
    return np.minimum(low - margin, np.nextafter(low, -np.inf)), np.maximum(high + margin, np.nextafter(high, np.inf))


def sample_gaussian(
    mean: ArrayLike,
    factor: ArrayLike,
    size: int,
    rng: np.random.Generator,
    box: tuple[ArrayLike, ArrayLike] | None = None,
) -> FloatArray:
    """Return draws (size, d) from the normal distribution with this mean (d,) and covariance factor.T @ factor.

    With a box, points outside are drawn again; after 20 draws for each point needed, those still missing are the nearest
    points of the box to the draws that were made. In many columns that is most of them.

    Args:
        mean: (d,).
        factor: (r, d); r = 0 repeats the mean.
        size: number of points, at least 1.
        rng: the only source of randomness.
        box: low and high corner, both (d,), low <= high.

    Raises UserError for input that does not fit the above.
    """
    center, axes, size = _as_vector(mean, "mean"), np.asarray(factor, np.float64), as_count(size, "size")
    if axes.ndim != 2 or axes.shape[1] != len(center) or not np.isfinite(axes).all():
        raise UserError(
            f"factor must be finite numbers (r, {len(center)}), as mean has shape {center.shape}; got shape {axes.shape}"
        )
    if box is None:
        return _draw(center, axes, size, rng)
    low, high = _as_vector(box[0], "low"), _as_vector(box[1], "high")
    if not (low.shape == high.shape == center.shape and (low <= high).all()):
        raise UserError(f"box must be corners low <= high of shape {center.shape}, got {low.shape} and {high.shape}")
    inside, outside = np.empty((0, len(center))), np.empty((0, len(center)))
    for _ in range(_TRIES):
        points = _draw(center, axes, size, rng)
        fits = ((low <= points) & (points <= high)).all(axis=1)
        inside, outside = np.concatenate([inside, points[fits]]), points[~fits]
        if len(inside) >= size:
            return inside[:size]
    missing = np.clip(outside[: size - len(inside)], low, high)
    return np.concatenate([inside, missing])


def sample_dirichlet(alpha: ArrayLike, size: int, rng: np.random.Generator) -> FloatArray:
    """Return draws (size, d) from the Dirichlet distribution with alpha (d,) > 0; raises UserError for other input."""
    alpha, size = _as_vector(alpha, "alpha"), as_count(size, "size")
    if (alpha <= 0).any():
        raise UserError(f"alpha must be positive, got {alpha.min():g}")
    return rng.dirichlet(alpha, size)


def _draw(mean: FloatArray, factor: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    normal = rng.standard_normal((size, len(factor)))
    with one_thread():
        points: FloatArray = mean + normal @ factor
    return points


def _newton(mean_log: FloatArray, start: FloatArray) -> FloatArray:
    """Return the maximum of the mean log-likelihood given the mean logarithms (d,), or where alpha.sum() gets too large.

    The function is concave; a step that leaves alpha > 0 or goes down is halved.
    """
    from scipy.special import polygamma, psi

    alpha, height = start, _likelihood(start, mean_log)
    for _ in range(_MOST_STEPS):
        gradient = psi(alpha.sum()) - psi(alpha) + mean_log
        diagonal, constant = -polygamma(1, alpha), polygamma(1, alpha.sum())
        shift = (gradient / diagonal).sum() / (1 / constant + (1 / diagonal).sum())
        step = (gradient - shift) / diagonal
        while True:
            new = alpha - step
            if (new > 0).all() and (reached := _likelihood(new, mean_log)) >= height:
                break
            step = step / 2
            if (np.abs(step) <= 1e-12 * alpha).all():
                return alpha
        done = (np.abs(new - alpha) <= 1e-12 * alpha).all()
        alpha, height = new, reached
        if done or alpha.sum() >= _SHARPEST:
            break
    return alpha


def _likelihood(alpha: FloatArray, mean_log: FloatArray) -> float:
    from scipy.special import gammaln

    return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha - 1) @ mean_log)


def _as_vector(values: ArrayLike, name: str) -> FloatArray:
    vector = np.asarray(values, np.float64)
    if vector.ndim != 1 or len(vector) == 0 or not np.isfinite(vector).all():
        raise UserError(f"{name} must be finite numbers, one for each column, got shape {vector.shape}")
    return vector
