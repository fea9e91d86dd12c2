"""Gaussian mixtures on one site's rows: responsibilities, the sums of expectation maximisation, and what its steps make of them.

Dempster, Laird, Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm; covariances and their regularisation
as in scikit-learn's GaussianMixture.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import BadMessage, Refusal, UserError, stop_if
from flareclust._foundation.typing import AbortCheck, Array, BoolArray, FloatArray, IntArray, Message, never_abort
from flareclust.core.arrays import as_matrix
from flareclust.core.chunks import pieces
from flareclust.core.mixture_kernels import TILE, add_shares, expect, row_digests, shares_of
from flareclust.core.runtime import one_thread
from flareclust.core.threads import Team, team

#: What the covariances of the components have in common, as scikit-learn calls it.
Covariance = Literal["full", "tied", "diag", "spherical"]

#: The arrays of a message that are a mixture, beside `centroids`, which are its means.
WEIGHTS, FACTORS = "weights", "factors"

#: What is said of a row beside its component: the probability of that, and the logarithm of the mixture's density at the row.
CERTAINTY = ("probability", "log_density")

#: Products per kernel call, some tenths of a second of work; `aborted` is asked between calls.
_WORK_PER_CALL = 200_000_000

#: Responsibilities that one thread computes before it adds them up, which a cache holds, and several.
_SHARES = (64_000, 2_000_000)

#: Slack for the rounding of sums of equal responsibilities.
_ALMOST = 1 - 1e-9

#: By so much of their size a variance may be below 0.
_ROUNDING = 1e-6

#: What scikit-learn adds to the rows of a component, so that none has exactly 0.
_TINY = 10 * float(np.finfo(np.float64).eps)


class Mixture(NamedTuple):
    """A mixture of k normal distributions of d columns.

    Attributes:
        weights: of the components (k,), in all 1.
        means: (k, d).
        factors: lower Cholesky factors of their covariances (k, d, d), or of diagonal ones the standard deviations (k, d).
    """

    weights: FloatArray
    means: FloatArray
    factors: FloatArray

    @property
    def covariances(self) -> FloatArray:
        """Return the covariances (k, d, d), or of diagonal ones the variances (k, d)."""
        if self.factors.ndim == 2:
            return self.factors**2
        with one_thread():
            return np.asarray(self.factors @ self.factors.transpose(0, 2, 1))

    def arrays(self) -> Message:
        """Return the mixture as the arrays of a message."""
        return {"centroids": self.means, WEIGHTS: self.weights, FACTORS: self.factors}

    def of(self, components: IntArray) -> "Mixture":
        """Return the mixture of some of the components, with the weights that they have."""
        return Mixture(self.weights[components], self.means[components], self.factors[components])


class Sums(NamedTuple):
    """What expectation maximisation needs of rows, by component.

    Attributes:
        weights: sums of responsibilities (k,).
        shifts: sums of responsibilities times the rows' differences from the mean (k, d).
        m2: sums of responsibilities times the products of these differences: full (k, d, d); tied (d, d), over all components;
            diag (k, d), the squares; spherical (k,), over all columns.
        log_likelihood: sum of the logarithms of the rows' densities.
        entropy: sum of the entropies of the rows' responsibilities.
    """

    weights: FloatArray
    shifts: FloatArray
    m2: FloatArray
    log_likelihood: float
    entropy: float


class Prepared(NamedTuple):
    """A mixture as the kernels take it: `diagonal` (k, d) counts where `inverse` (k, d, d) has no components."""

    log_scale: FloatArray
    means: FloatArray
    inverse: FloatArray
    diagonal: FloatArray


def received_mixture(arrays: Message, covariance: Covariance) -> Mixture:
    """Return the mixture in the arrays of a message, whose `centroids` (k, d) were checked before.

    Raises:
        BadMessage: it is none with covariances of this type; the text holds no value.
    """
    means = arrays.get("centroids")
    if means is None:
        raise BadMessage("was sent no mixture: expected centroids, weights and factors")
    k, d = means.shape
    shapes = {WEIGHTS: (k,), FACTORS: (k, d, d) if covariance in ("full", "tied") else (k, d)}
    for name, shape in shapes.items():
        value = arrays.get(name)
        if not (isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == shape):
            raise BadMessage(f"{name}: expected float64 of shape {shape} beside {k} means of {d} columns")
    mixture = Mixture(arrays[WEIGHTS], means, arrays[FACTORS])
    prepare(mixture)
    return mixture


def prepare(mixture: Mixture) -> Prepared:
    """Return a mixture for the kernels; raise BadMessage where weights or factors are none."""
    from scipy.linalg import solve_triangular  # takes long to import

    weights, means, factors = mixture
    d, diagonal = means.shape[1], factors.ndim == 2
    own = factors if diagonal else np.einsum("kdd->kd", factors)
    if not (np.isfinite(factors).all() and (own > 0).all()):
        raise BadMessage(f"{FACTORS}: expected finite numbers, above 0 on the diagonals")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise BadMessage(f"{WEIGHTS}: expected finite numbers of at least 0, and not all of them 0")
    with np.errstate(all="ignore"), one_thread():
        inverse = np.zeros((0, d, d))
        if not diagonal:
            inverse = np.stack([solve_triangular(factor, np.eye(d), lower=True) for factor in factors])
        reciprocal, log_scale = 1.0 / own, np.log(weights) - np.log(own).sum(axis=1) - 0.5 * d * math.log(2 * math.pi)
    if not (np.isfinite(inverse).all() and np.isfinite(reciprocal).all() and (log_scale < np.inf).all()):
        raise BadMessage(f"{FACTORS}: expected covariances that have an inverse")
    return Prepared(log_scale, np.ascontiguousarray(means), np.ascontiguousarray(inverse), reciprocal)


def expectation(
    X: FloatArray,
    mixture: Mixture,
    covariance: Covariance,
    *,
    least: int = 0,
    clusters: int = 1,
    least_weight: float = 0.0,
    known: BoolArray | None = None,
    aborted: AbortCheck = never_abort,
) -> Sums:
    """Return the sums of an expectation step over the rows (n, d), of the components that may be described to others.

    A component may be where no row has more than a share of 1 / `least` of its weight, and no row and its copies more than half.
    Responsibilities are those in the mixture of these components alone: so each row counts the same in all mixtures, and nothing about
    single rows follows from what is left out. The sums of the other components are 0. Without `least` all components count.

    Args:
        X, mixture, covariance: rows (n, d), k components, and the type of their covariances.
        least: how many rows at least stand behind what is said of a component.
        clusters: equal rows count at most as many as the other rows are for each of these, or `least`: no more than an average
            component has of others. That follows from the rows alone, whatever the mixture.
        least_weight: of a component that may be described.
        known: which cells were not filled in (n, d): what is said of a column is of `least` known cells, too. None for all.
        aborted: asked between kernel calls.

    Raises:
        BadMessage: the mixture is none.
        Refusal: rows are infinitely far from all components.
        Aborted: `aborted` says so.
    """
    k = len(mixture.means)
    copies = _copies(X) if least else np.ones(len(X), np.int64)
    counted = np.minimum(1.0, np.maximum(max(least, 1), (len(X) - copies) / clusters) / copies)
    reported = np.flatnonzero(mixture.weights > 0)
    while len(reported):
        among = mixture.of(reported)
        found, most, most_alike = _sums(X, copies, counted, prepare(among), aborted)
        if not math.isfinite(found.log_likelihood):
            raise Refusal("was sent a mixture in which rows have no density, as they are too far from all components")
        slack = _ALMOST * np.maximum(least * most, 2.0 * most_alike) if least else np.zeros(len(reported))
        keep = (found.weights >= slack) & (found.weights >= least_weight)
        if known is not None and least and keep.all():
            keep = _known_enough(X, known, counted, among, least)
        if keep.all():
            return _by_type(found, reported, k, covariance)
        reported = reported[keep]
    nothing = Sums(np.zeros(0), np.zeros((0, X.shape[1])), np.zeros((0, *mixture.factors.shape[1:])), 0.0, 0.0)
    return _by_type(nothing, reported, k, covariance)


def _sums(
    X: FloatArray, copies: IntArray, counted: FloatArray, mixture: Prepared, aborted: AbortCheck
) -> tuple[Sums, FloatArray, FloatArray]:
    """Return the sums by component, with the largest responsibility in each (k,), and that times the copies of its row (k,)."""
    (k, d), full = mixture.means.shape, len(mixture.inverse) > 0
    weights, most, most_alike = np.zeros((3, k))
    shifts, squares, m2 = np.zeros((k, d)), np.zeros((k, d)), np.zeros((len(mixture.inverse), d, d))
    step = max(1, _WORK_PER_CALL // (k * d * (d if full else 1) * TILE)) * TILE
    sums, likelihood, entropy = (weights, shifts, m2, squares, most, most_alike), 0.0, 0.0
    with team(len(X) * k * d * (d if full else 1)) as own:
        for start in range(0, len(X), step):
            stop_if(aborted, "in an expectation step")
            part = slice(start, start + step)
            added = _added(own, X[part], copies[part], counted[part], mixture, sums)
            likelihood, entropy = likelihood + added[0], entropy + added[1]
    if full:
        m2 += np.tril(m2, -1).transpose(0, 2, 1)
    return Sums(weights, shifts, m2 if full else squares, float(likelihood), float(entropy)), most, most_alike


def _added(
    own: Team, X: FloatArray, copies: IntArray, counted: FloatArray, mixture: Prepared, sums: tuple[FloatArray, ...]
) -> FloatArray:
    """Add rows to the sums; return the sums of their log densities and of their entropies (2,).

    Threads share the rows, and then the components, of which each gets all rows in their order.
    """
    k, found = len(mixture.means), np.empty((len(X), 2))
    shares = np.empty((min(-(-len(X) // TILE), max(own.threads, _SHARES[own.threads > 1] // (k * TILE))), k, TILE))
    for start in range(0, len(X), len(shares) * TILE):
        rows = slice(start, start + len(shares) * TILE)
        Y, here, beside = X[rows], found[rows], (copies[rows], counted[rows])

        def expect_in(part: slice, Y: FloatArray = Y, here: FloatArray = here) -> None:
            expect(Y[part], mixture, shares[part.start // TILE :], here[part])

        def add_to(part: slice, Y: FloatArray = Y, beside: tuple[Array, ...] = beside) -> None:
            add_shares(Y, *beside, shares, part.start, tuple(one[part] for one in (mixture.means, *sums)))

        own.each(expect_in, own.parts(len(Y), TILE))
        own.each(add_to, own.parts(k))
    return np.asarray((found * counted[:, None]).cumsum(axis=0)[-1])  # one row after the other


def _by_type(found: Sums, reported: IntArray, k: int, covariance: Covariance) -> Sums:
    """Return sums of the reported components among all k, with second moments of the type."""
    weights, shifts = np.zeros(k), np.zeros((k, found.shifts.shape[1]))
    weights[reported], shifts[reported] = found.weights, found.shifts
    if covariance == "tied":
        return found._replace(weights=weights, shifts=shifts, m2=found.m2.sum(axis=0))
    own = found.m2.sum(axis=1) if covariance == "spherical" else found.m2
    m2 = np.zeros((k, *own.shape[1:]))
    m2[reported] = own
    return found._replace(weights=weights, shifts=shifts, m2=m2)


def _copies(X: FloatArray) -> IntArray:
    """Return how many of the rows (n, d) equal each one, itself among them (n,)."""
    digests = np.empty(len(X), np.uint64)
    row_digests(X, X.view(np.uint64), digests)
    in_order = np.sort(digests)
    if not (in_order[1:] == in_order[:-1]).any():
        return np.ones(len(X), np.int64)
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse], dtype=np.int64)


def _known_enough(X: FloatArray, known: BoolArray, counted: FloatArray, mixture: Mixture, least: int) -> BoolArray:
    """Return which components (k,) have `least` known cells behind each column in which they have any, by weight."""
    k, d = mixture.means.shape
    prepared, weights, most = prepare(mixture), np.zeros((k, d)), np.zeros((k, d))
    for part in pieces(len(X), d + k):
        shares = shares_in(X[part], prepared)[0] * counted[part, None]
        for c in range(k):
            own = shares[:, c, None] * known[part]
            weights[c] += own.sum(axis=0)
            most[c] = np.maximum(most[c], own.max(axis=0, initial=0.0))
    return np.asarray((weights >= _ALMOST * least * most).all(axis=1))


def shares_in(X: FloatArray, mixture: Prepared) -> tuple[FloatArray, FloatArray]:
    """Return the responsibilities (n, k) and log densities (n,) of rows (n, d)."""
    found, likelihood = np.empty((len(X), len(mixture.means))), np.empty(len(X))
    shares_of(X, mixture, found, likelihood)
    return found, likelihood


def most_likely(X: FloatArray, mixture: Mixture) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the component of the largest responsibility of each row (n,), the first of equals, and what `CERTAINTY` says of it.

    That is the responsibility (n,), and the logarithm of the density at the row (n,). Raise BadMessage for no mixture.
    """
    prepared, labels, (largest, density) = prepare(mixture), np.empty(len(X), np.int64), np.empty((2, len(X)))
    for part in pieces(len(X), X.shape[1] + len(mixture.means)):
        shares, density[part] = shares_in(X[part], prepared)
        labels[part], largest[part] = shares.argmax(axis=1), shares.max(axis=1)
    return labels, largest, density


def inverses(mixture: Mixture) -> FloatArray:
    """Return the inverses of the factors (k, d, d), or of diagonal ones (k, d); raise BadMessage for no mixture."""
    prepared = prepare(mixture)
    return prepared.inverse if len(prepared.inverse) else prepared.diagonal


def log_scales(mixture: Mixture) -> FloatArray:
    """Return the logarithm of each component's part of the density at its mean (k,); raise BadMessage for no mixture."""
    return prepare(mixture).log_scale


def distances(X: FloatArray, mixture: Mixture) -> FloatArray:
    """Return the Mahalanobis distances of rows (n, d) to the components (n, k); raise BadMessage for no mixture."""
    found = np.empty((len(X), len(mixture.means)))
    for c, (mean, own) in enumerate(zip(mixture.means, inverses(mixture), strict=True)):
        with one_thread():
            found[:, c] = np.linalg.norm((X - mean) * own if own.ndim == 1 else (X - mean) @ own.T, axis=1)
    return found


def n_second_moments(covariance: Covariance, k: int, d: int) -> int:
    """Return how many second moments an expectation step has: the lower triangles with full and tied covariances, row by row."""
    return {"full": k * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": k * d, "spherical": k}[covariance]


def packed(m2: FloatArray, covariance: Covariance) -> FloatArray:
    """Return the second moments of `Sums` as one axis (t,)."""
    if covariance in ("full", "tied"):
        m2 = m2[(..., *np.tril_indices(m2.shape[-1]))]
    return m2.ravel()


def unpacked(moments: FloatArray, covariance: Covariance, k: int, d: int) -> FloatArray:
    """Return the second moments of `Sums` from one axis (t,), as `packed` returns it."""
    if covariance in ("diag", "spherical"):
        return moments.reshape((k, d) if covariance == "diag" else (k,))
    m2 = np.zeros((k, d, d) if covariance == "full" else (d, d))
    m2[(..., *np.tril_indices(d))] = moments.reshape((k, -1) if covariance == "full" else (-1,))
    return np.asarray(m2 + np.tril(m2, -1).swapaxes(-1, -2))


def possible(weights: FloatArray, shifts: FloatArray, moments: FloatArray, covariance: Covariance) -> bool:
    """Return whether sums, with second moments as `packed` returns them, are of rows: no variance is below 0, but for rounding."""
    m2, full = unpacked(moments, covariance, *shifts.shape), covariance in ("full", "tied")
    mean = shifts / np.maximum(weights, _TINY)[:, None]
    of_means = mean[:, :, None] * shifts[:, None, :] if full else mean * shifts
    about = m2 - (of_means.sum(axis=0 if full else 1) if covariance in ("tied", "spherical") else of_means)
    size = np.sqrt(1.0 + np.abs(np.einsum("...dd->...d", m2) if full else m2[..., None]))
    about = (about if full else about[..., None, None]) / (size[..., :, None] * size[..., None, :])
    try:
        with one_thread():
            np.linalg.cholesky(about + _ROUNDING * np.eye(about.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def least_rows(covariance: Covariance, d: int, min_count: int, repeats: int = 1) -> int:
    """Return how many rows at least must stand behind what is said of a component of d columns.

    `min_count`, and so many that their values are more than the numbers that are sent of the component: weight, mean, covariance. A
    row may be there `repeats` times.
    """
    return max(min_count, ((1 + d + n_second_moments(covariance, 1, d)) // d + 1) * repeats)


def n_parameters(covariance: Covariance, k: int, d: int) -> int:
    """Return the number of free parameters of a mixture, as information criteria count them."""
    return n_second_moments(covariance, k, d) + k * d + k - 1


def maximized(before: Mixture, sums: Sums, covariance: Covariance, reg_covar: float) -> Mixture | None:
    """Return the mixture of largest expected likelihood, from the sums of an expectation step of the one `before`.

    A component without rows keeps its mean and covariance, with a weight next to 0. None where a covariance is not positive definite:
    then `reg_covar`, which is added to all variances, is too small for the columns.
    """
    d, empty = before.means.shape[1], sums.weights <= 0
    rows = sums.weights + _TINY
    shift = sums.shifts / rows[:, None]
    means, weights = before.means + shift, rows / rows.sum()
    if covariance in ("diag", "spherical"):
        if covariance == "diag":
            variances = sums.m2 / rows[:, None] - shift**2
        else:
            variances = np.repeat((sums.m2 / rows - (shift**2).sum(axis=1))[:, None] / d, d, axis=1)
        deviations = np.sqrt(np.maximum(variances, 0.0) + reg_covar)
        factors = np.where(empty[:, None], before.factors, deviations)
        return Mixture(weights, means, factors) if (factors > 0).all() else None
    products = shift[:, :, None] * shift[:, None, :]
    if covariance == "tied":
        tied = (sums.m2 - (rows[:, None, None] * products).sum(axis=0)) / rows.sum()
        covariances, empty = np.repeat(tied[None], len(rows), axis=0), np.zeros_like(empty)
    else:
        covariances = sums.m2 / rows[:, None, None] - products
    covariances[empty] = np.eye(d)
    try:
        with one_thread():
            factors = np.asarray(np.linalg.cholesky(covariances + reg_covar * np.eye(d)), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    factors[empty] = before.factors[empty]
    return Mixture(weights, means, factors)


def fitted(
    X: FloatArray, start: Mixture, covariance: Covariance, *, rounds: int, tol: float, reg_covar: float, **rest: Any
) -> tuple[Mixture, Sums]:
    """Return the mixture to which expectation maximisation leads from a start, and the sums of its own expectation step.

    At most `rounds` maximisation steps; one that changes the mean log-likelihood of the rows (n, d) by less than `tol` is the last. The
    rest are arguments of `expectation`; a component that is not described keeps its place.
    """
    mixture, last = start, -np.inf
    sums = expectation(X, mixture, covariance, **rest)
    for _ in range(rounds):
        mean = sums.log_likelihood / max(float(sums.weights.sum()), _TINY)
        after = maximized(mixture, sums, covariance, reg_covar)
        if after is None or abs(mean - last) < tol:
            break
        mixture, last = after, mean
        sums = expectation(X, mixture, covariance, **rest)
    return mixture, sums


def started(
    counts: IntArray, means: FloatArray, m2: FloatArray, covariance: Covariance, reg_covar: float
) -> Mixture | None:
    """Return the mixture of which an expectation step starts: clusters as components, without correlations.

    Clusters are given by rows (k,), means (k, d) and squared deviations from these (k, d). One of fewer than three rows has the variances
    within all clusters, as tied ones have; spherical ones are the mean over the columns. None where a variance and `reg_covar` are 0.
    """
    rows = np.maximum(counts, 1).astype(np.float64)
    within = m2.sum(axis=0) / rows.sum()
    variances = np.where((counts < _FEW)[:, None], within, m2 / rows[:, None])
    if covariance == "tied":
        variances = np.repeat(within[None], len(rows), axis=0)
    if covariance == "spherical":
        variances = np.repeat(variances.mean(axis=1, keepdims=True), means.shape[1], axis=1)
    deviations = np.sqrt(variances + reg_covar)
    if not (deviations > 0).all():
        return None
    factors = deviations if covariance in ("diag", "spherical") else deviations[:, :, None] * np.eye(means.shape[1])
    return Mixture(rows / rows.sum(), means, factors)


def drawn_rows(
    weights: FloatArray, means: FloatArray, m2: FloatArray, reg_covar: float, rng: np.random.Generator
) -> FloatArray:
    """Return rows (n, d) drawn from components: of each a share by its weight (c,) above 0, with its mean (c, d) and covariance.

    `m2` are second moments about the means (c, d, d), or of diagonal ones (c, d); `reg_covar` is added to variances.
    """
    d, total = means.shape[1], weights.sum()
    n, parts = int(np.clip(total, _LEAST_DRAWN, _MOST_DRAWN)), []
    for weight, mean, own in zip(weights, means, m2, strict=True):
        normal = rng.normal(size=(max(1, round(n * weight / total)), d))
        if own.ndim == 1:
            parts.append(mean + normal * np.sqrt(np.maximum(own, 0) / weight + reg_covar))
            continue
        with one_thread():
            values, vectors = np.linalg.eigh((own + own.T) / (2 * weight) + reg_covar * np.eye(d))
            parts.append(mean + (normal * np.sqrt(np.maximum(values, 0))) @ vectors.T)
    return np.ascontiguousarray(np.concatenate(parts))


def outlier_level(mixture: Mixture | None, share: float) -> float:
    """Return the log density below which a row that is drawn from a mixture is with a probability of `share`.

    It is that of 100,000 rows, of each component as many as its weight says, from a generator that is always the same: the same level at
    every site, and of the same rows whatever the scale of the columns.

    Raises:
        UserError: there is no mixture (None), or the share is none from above 0 to 0.5.
        BadMessage: weights or factors are none of a mixture.
    """
    if mixture is None:
        raise UserError(
            "outliers: expected the result of a Gaussian mixture (gmm, dp-gmm), got one without covariances"
        )
    if not 0 < share <= 0.5:
        raise UserError(f"outliers: expected a share above 0 and up to 0.5, such as 0.01; got {share!r}")
    prepared, rng, densities = prepare(mixture), np.random.default_rng(0), list[FloatArray]()
    ends = np.rint(np.cumsum(mixture.weights) / mixture.weights.sum() * _DRAWN_FOR_LEVEL).astype(np.int64)
    for mean, own, n in zip(mixture.means, mixture.factors, np.diff(ends, prepend=0), strict=True):
        for part in pieces(int(n), sum(mixture.means.shape)):
            normal = rng.normal(size=(part.stop - part.start, len(mean)))
            with one_thread():
                drawn = mean + (normal * own if own.ndim == 1 else normal @ own.T)
            densities.append(shares_in(drawn, prepared)[1])
    return float(np.quantile(np.concatenate(densities), share))


#: How many rows are drawn from mixtures: as many as there are, within these bounds, and for the level of outliers.
_LEAST_DRAWN, _MOST_DRAWN, _DRAWN_FOR_LEVEL = 2000, 20_000, 100_000

#: Deviations of fewer rows are not sent.
_FEW = 3


def responsibilities(X: ArrayLike, arrays: Message) -> FloatArray:
    """Return how probable each component is for each row, (n, k); every row adds up to 1.

    Args:
        X: rows (n, d), in the units of the mixture.
        arrays: `centroids` (k, d), `weights` (k,) and `covariances` (k, d, d) or (k, d), as a result of `gmm` has them.

    Raises:
        UserError: rows or arrays do not fit together.
    """
    return shares_in(*_rows_and_mixture(X, arrays))[0]


def log_densities(X: ArrayLike, arrays: Message) -> FloatArray:
    """Return the logarithm of the density of a mixture at each row, (n,); arguments and errors as for `responsibilities`."""
    return shares_in(*_rows_and_mixture(X, arrays))[1]


def _rows_and_mixture(X: ArrayLike, arrays: Message) -> tuple[FloatArray, Prepared]:
    rows = as_matrix(X)
    if missing := [name for name in ("centroids", WEIGHTS, "covariances") if name not in arrays]:
        raise UserError(f"expected the arrays of a Gaussian mixture, got none called {' and '.join(missing)}")
    covariances, means = arrays["covariances"], arrays["centroids"]
    if rows.shape[1] != means.shape[1]:
        raise UserError(f"X has {rows.shape[1]} columns where the mixture has {means.shape[1]}; give both the same")
    try:
        with one_thread():
            factors = np.sqrt(covariances) if covariances.ndim == 2 else np.linalg.cholesky(covariances)
        return rows, prepare(Mixture(arrays[WEIGHTS], means, factors))
    except (BadMessage, np.linalg.LinAlgError):
        raise UserError("covariances: expected positive definite ones, and weights of at least 0") from None


def warm_up() -> None:
    """Compile every kernel, or load it from the cache on disk, so that processes started later find it there."""
    X, means = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]), np.array([[0.0, 0.0], [3.0, 4.0]])
    for factors in (np.ones((2, 2)), np.stack([np.eye(2), np.eye(2)])):
        mixture = Mixture(np.full(2, 0.5), means, factors)
        expectation(X, mixture, "diag" if factors.ndim == 2 else "full", least=1)
        most_likely(X, mixture)
