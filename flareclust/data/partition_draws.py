"""The random draws behind `partition`: each returns the owner, 0 ... m - 1, of every row.

n rows, d features, m sites. What each split means and where it comes from is said in `partition.partition`.
Classes are given as 0 ... k - 1 per row; the input is checked there.
"""

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray

# Sizes


def equal_sizes(n: int, m: int) -> IntArray:
    """Return m sizes with sum n that differ by one at most."""
    return n // m + (np.arange(m) < n % m).astype(np.int64)


def power_sizes(n: int, m: int, a: float) -> IntArray:
    """Return m sizes proportional to i^-a with sum n, each at least 1."""
    weights = np.arange(1, m + 1, dtype=np.float64) ** -a
    sizes = np.ones(m, dtype=np.int64)
    # Sites whose share is below one row get one row; the weights fall, so these are the last ones.
    totals = weights.cumsum()
    head = m
    while (n - (m - head)) * weights[head - 1] < totals[head - 1]:
        head -= 1
    ideal = (n - (m - head)) * weights[:head] / totals[head - 1]
    sizes[:head] = np.floor(ideal)
    left = n - int(sizes.sum())
    sizes[np.argsort(np.floor(ideal) - ideal, kind="stable")[:left]] += 1  # largest remainders first
    return sizes


def assigned(sizes: IntArray, rng: np.random.Generator) -> IntArray:
    """Return the owner of each row when the sites take random rows up to their sizes."""
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes))


# Splits by class


def _log_dirichlet(a: float, k: int, rng: np.random.Generator) -> FloatArray:
    """Return the logarithms of k proportions ~ Dir(a, ..., a), up to a constant.

    Gamma(a) = Gamma(a + 1) U^(1/a): in logarithms no proportion underflows, so a mix can be renormalised over any
    classes.
    """
    a = max(a, 1e-300)
    log_gamma: FloatArray = np.log(rng.standard_gamma(a + 1, k)) - rng.standard_exponential(k) / a
    return log_gamma


def _shares(log_mix: FloatArray) -> FloatArray:
    weights = np.exp(log_mix - log_mix.max())
    shares: FloatArray = weights / weights.sum()
    return shares


def _pools(classes: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Return the rows of each class in random order."""
    return [rng.permutation(np.flatnonzero(classes == c)) for c in range(classes.max() + 1)]


def dirichlet_by_site(classes: IntArray, m: int, a: float, rng: np.random.Generator) -> IntArray:
    """Let the sites, one after the other, draw rows by class mixes from Dir(a, ..., a) without replacement."""
    pools = _pools(classes, rng)
    used = np.zeros(len(pools), dtype=np.int64)
    owner = np.empty(len(classes), dtype=np.int64)
    for i, size in enumerate(equal_sizes(len(classes), m)):
        start = used.copy()
        log_mix = _log_dirichlet(a, len(pools), rng)
        # The draws that find their class empty are drawn again from the others: row by row it would be the same.
        while (need := size - (used - start).sum()) > 0:
            left = np.array([len(pool) for pool in pools]) - used
            open_ = np.flatnonzero(left)
            used[open_] += np.minimum(rng.multinomial(need, _shares(log_mix[open_])), left[open_])
        for pool, low, high in zip(pools, start, used, strict=True):
            owner[pool[low:high]] = i
    return owner


def dirichlet_by_class(classes: IntArray, m: int, a: float, rng: np.random.Generator) -> IntArray:
    """Cut each class into shares from Dir(a, ..., a) over the sites."""
    owner = np.empty(len(classes), dtype=np.int64)
    for pool in _pools(classes, rng):
        cuts = np.rint(np.cumsum(_shares(_log_dirichlet(a, m, rng)))[:-1] * len(pool)).astype(np.int64)
        for i, rows in enumerate(np.split(pool, cuts)):
            owner[rows] = i
    return owner


def clusters(classes: IntArray, m: int, c: int, rng: np.random.Generator) -> IntArray:
    """Give each site c classes and split each class evenly over its holders.

    Raises:
        UserError: there are fewer than c classes, or the m sites have no room for all of them.
    """
    pools = _pools(classes, rng)
    k = len(pools)
    if c > k:
        raise UserError(
            f"partition 'clusters:{c}' asks for {c} classes per site, but there are only {k}; use clusters:{k} or less"
        )
    if m * c < k:
        raise UserError(
            f"partition 'clusters:{c}' with {m} sites has room for {m * c} of the {k} classes; "
            f"use clusters:{-(-k // m)} or at least {-(-k // c)} sites"
        )
    holds = np.zeros((m, k), dtype=np.bool_)
    holds[np.resize(rng.permutation(m), k), rng.permutation(k)] = True  # every class once, assigned round the sites
    spare = np.array([len(pool) for pool in pools]) - 1
    for i in rng.permutation(m):
        free = np.flatnonzero(~holds[i] & (spare > 0))
        more = rng.choice(free, size=min(c - int(holds[i].sum()), len(free)), replace=False)
        holds[i, more] = True
        spare[more] -= 1
    owner = np.empty(len(classes), dtype=np.int64)
    for pool, held in zip(pools, holds.T, strict=True):
        holders = rng.permutation(np.flatnonzero(held))
        for i, rows in zip(holders, np.array_split(pool, len(holders)), strict=True):
            owner[rows] = i
    return owner


# Split by place


def beta(X: FloatArray, m: int, b: float, nearest: bool, rng: np.random.Generator) -> IntArray:
    """Let each row go to one of the sites that draw it, with probability 1 - exp(-b / distance) each."""
    from scipy.spatial.distance import cdist

    locations = rng.uniform(X.min(axis=0), X.max(axis=0), (m, X.shape[1]))
    owner = np.empty(len(X), dtype=np.int64)
    step = max(1, 1_000_000 // m)  # keeps the (rows, m) arrays small
    for start in range(0, len(X), step):
        distance = cdist(X[start : start + step], locations)
        with np.errstate(divide="ignore", over="ignore"):  # a row at a location: rate infinite, drawn for sure
            rates = b / distance
        if nearest:
            drawn = rng.random(rates.shape) < -np.expm1(-rates)
            drawn[np.arange(len(drawn)), distance.argmin(axis=1)] |= ~drawn.any(axis=1)
        else:
            drawn = draw_until_drawn(rates, rng)
        owner[start : start + step] = np.where(drawn, rng.random(drawn.shape), -1.0).argmax(axis=1)
    return owner


def draw_until_drawn(rates: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Return (n, m) which sites draw each row, given that at least one does.

    Site i draws a row with probability 1 - exp(-rate_i), independently. Repeating this until somebody draws the row
    gives the distribution conditional on "somebody does", so that is sampled directly: the FIRST drawing site is i with
    probability (exp(-L_{i-1}) - exp(-L_i)) / (1 - exp(-L_m)), L the cumulated rates, and the sites after it draw
    independently. It costs the same however small the rates.
    """
    n, m = rates.shape
    cumulated = np.maximum(rates, 1e-300).cumsum(axis=1)
    # Where the first drawing falls on the cumulated rates: an exponential variable truncated at L_m.
    first_at = -np.log1p(rng.random(n) * np.expm1(-cumulated[:, -1]))
    first = np.minimum((cumulated <= first_at[:, None]).sum(axis=1), m - 1)[:, None]
    site = np.arange(m)
    after = rng.random((n, m)) < -np.expm1(-rates)
    drawn: BoolArray = (site == first) | ((site > first) & after)
    return drawn
