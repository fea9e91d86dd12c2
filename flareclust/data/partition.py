"""How a data set is split over sites: who owns which row.

A split is asked for by a specification such as "dirichlet:0.3"; `partition_specs.SPECS` lists them. Every row goes to
exactly one site (with `owners:N`, to one at the most), and the same generator seed gives the same split. Those that assign
the columns too, so that the sites have different ones, are carried out by `feature_partition.split_features`.
n rows, d features, m sites.
"""

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.data.cells import check_rows
from flareclust.data.partition_specs import OPTIONS, SPECS, Spec, parse, usages


def partition(
    spec: str | Spec,
    X: FloatArray,
    y: ArrayLike | None,
    m: int,
    rng: np.random.Generator,
    owners: ArrayLike | None = None,
) -> dict[str, IntArray]:
    """Return "site-1" ... "site-m", each with its row numbers in ascending order, as `site_of_rows` splits them."""
    rows, starts = rows_by_site(*site_of_rows(spec, X, y, m, rng, owners))
    return {f"site-{i + 1}": rows[starts[i] : starts[i + 1]] for i in range(len(starts) - 1)}


def rows_by_site(site: IntArray, m: int) -> tuple[IntArray, IntArray]:
    """Return the rows of m sites, one after the other, and where each site's begin and the last one's end (m + 1,).

    The site of each row (n,) is from 0 to m - 1, or -1 for none.
    """
    order = np.argsort(site, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(site + 1, minlength=m + 1))])
    return order[starts[1] :], starts[1:] - starts[1]


def site_of_rows(
    spec: str | Spec,
    X: FloatArray,
    y: ArrayLike | None,
    m: int,
    rng: np.random.Generator,
    owners: ArrayLike | None = None,
) -> tuple[IntArray, int]:
    """Split n rows over m sites.

    - `iid`: a random permutation cut into m parts whose sizes differ by one at most.
    - `dirichlet:A`: "by client" (Hsu, Qi, Brown 2019, arXiv 1909.06335). Sizes as for `iid`; each site draws a class
      mix from Dir(A, ..., A), then rows without replacement; when a class runs out, the mix is renormalised over the
      rest. Sites draw in their order, so the last ones take what is left.
    - `dirichlet-class:A`: each class is cut into m shares drawn from Dir(A, ..., A). Sites may come out empty.
    - `clusters:C`: each site holds C random classes, each class has at least one holder and is split evenly over its
      holders (the structured partition of Dennis, Li, Smith 2021, arXiv 2103.00697, sec. 4.2). Sites hold fewer
      classes only where classes have fewer rows than they would have holders.
    - `power:A`: rows at random, sizes proportional to i^-A but at least one row.
    - `beta:B`: each site has a location, uniform in the bounding box of X, and draws a row at Euclidean distance r with
      probability 1 - exp(-B / r) (Garst, Reinders 2024, arXiv 2310.01195, eq. 2); a row drawn by several sites goes to
      one of them at random. The paper does not say where a row goes that nobody draws. Here it goes to the
      nearest location, as in the data sets that the authors published (docs/adr/0005-beta-partition.md); with
      `beta:B,redraw` it is drawn again until somebody does, computed without a loop
      (`_draw_until_drawn`), which is far less local. B is a length in the unit of X: far below the
      distances, nearest splits by distance alone and redrawing by inverse distance, whatever B. Sites may come out
      empty.
    - `owners`: a site per owner, in the order of the owners' numbers, so that m is as many as there are and the
      argument m is not looked at; nothing is drawn. `owners:N`: the N owners with the lowest numbers; the rows of the
      others belong to no site.

    Args:
        spec: one of `SPECS`, or what `parse` returned.
        X: (n, d) rows.
        y: (n,) class of each row, for the specifications that need it.
        m: number of sites, 1 to n.
        rng: draws the split.
        owners: (n,) whose each row is, for `owners`.

    Returns:
        The site of each row (n,), from 0, or -1 for none; and the number of sites.

    Raises:
        UserError: the specification is wrong, is "none" or assigns columns, too; labels or owners are missing or do not
            fit, m is not between 1 and n, or `clusters` cannot place the classes.
    """
    spec = parse(spec)
    if spec.splits_columns:
        raise UserError(
            f"partition '{spec}' assigns columns as well as rows, and partition() assigns rows only; "
            "call flareclust.data.feature_partition.split_features"
        )
    if spec.name == "none":
        splits = usages(name for name in SPECS if name != "none")
        raise UserError(
            "partition 'none' does not split: the data must then be a folder with one file per site, or a mapping "
            f"from site names to rows. To split one data set choose one of {splits}"
        )
    X = check_rows(X, where="data to split", allow_empty=True, gaps=spec.name != "beta")
    n = len(X)
    if spec.name == "owners":
        return _by_owner(spec, owners, n)
    check_sites(m, n)
    classes = np.empty(0, dtype=np.int64)
    if SPECS[spec.name].needs_labels:
        classes = np.unique(check_labels(spec, y, n), return_inverse=True)[1].astype(np.int64)
    match spec:
        case Spec("iid"):
            owner = assigned(equal_sizes(n, m), rng)
        case Spec("power", float(a)):
            owner = assigned(_power_sizes(n, m, a), rng)
        case Spec("dirichlet", float(a)):
            owner = _dirichlet_by_site(classes, m, a, rng)
        case Spec("dirichlet-class", float(a)):
            owner = _dirichlet_by_class(classes, m, a, rng)
        case Spec("clusters", float(c)):
            owner = _clusters(classes, m, int(c), rng)
        case Spec("beta", float(b), option):
            owner = _beta(X, m, b, (option or OPTIONS["beta"][0]) == "nearest", rng)
        case _:
            raise AssertionError(f"partition {spec} is listed and has no case here")
    return owner, m


def check_sites(m: object, n: int) -> None:
    """Raise UserError for a number of sites that is not whole and between 1 and n, the number of rows."""
    if isinstance(m, bool) or not isinstance(m, (int, np.integer)) or m < 1:
        raise UserError(f"the number of sites must be an integer of at least 1, got {m!r}")
    if m > n:
        raise UserError(f"more sites ({m}) than rows ({n}); every site needs at least one row")


def check_labels(spec: Spec, y: ArrayLike | None, n: int) -> Array:
    """Return the n rows' classes (n,) as they are; UserError where there are none, or not one per row."""
    need = "a class label for every row, and the data have none"
    return _one_per_row(spec, y, n, "label", need)


def check_owners(spec: Spec, owners: ArrayLike | None, n: int) -> Array:
    """Return the n rows' owners (n,) as they are; UserError where there are none, or not one per row."""
    need = "to know whose each row is, which is known of the data sets garst_grid, femnist, qmnist and har only"
    return _one_per_row(spec, owners, n, "owner", need)


def _one_per_row(spec: Spec, values: ArrayLike | None, n: int, what: str, need: str) -> Array:
    if values is None:
        undemanding = usages(
            name
            for name, form in SPECS.items()
            if not (form.needs_labels or form.needs_owners or form.splits_columns) and name != "none"
        )
        raise UserError(f"partition '{spec}' needs {need}; {undemanding} work without")
    found = np.asarray(values)
    if found.shape != (n,):
        raise UserError(f"expected one {what} per row, shape ({n},), got shape {found.shape}")
    return found


def _by_owner(spec: Spec, owners: ArrayLike | None, n: int) -> tuple[IntArray, int]:
    owner = check_owners(spec, owners, n)
    numbers, site = np.unique(owner, return_inverse=True)
    m = len(numbers) if spec.value is None else int(spec.value)
    if m > len(numbers):
        raise UserError(f"partition '{spec}' asks for {m} owners, but there are only {len(numbers)}; write 'owners'")
    return np.where(site < m, site, -1), m


def equal_sizes(n: int, m: int) -> IntArray:
    """Return m sizes with sum n that differ by one at most."""
    return n // m + (np.arange(m) < n % m).astype(np.int64)


def _power_sizes(n: int, m: int, a: float) -> IntArray:
    """Return m sizes proportional to i^-a with sum n, each at least 1."""
    weights, sizes = np.arange(1, m + 1, dtype=np.float64) ** -a, np.ones(m, dtype=np.int64)
    # Sites whose share is below one row get one row; the weights fall, so these are the last ones.
    totals, head = weights.cumsum(), m
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


def _log_dirichlet(a: float, k: int, rng: np.random.Generator) -> FloatArray:
    """Return the logarithms of k proportions ~ Dir(a, ..., a), up to a constant.

    Gamma(a) = Gamma(a + 1) U^(1/a): in logarithms no proportion underflows, so a mix can be renormalised over any classes.
    """
    a = max(a, 1e-300)
    return np.asarray(np.log(rng.standard_gamma(a + 1, k)) - rng.standard_exponential(k) / a)


def _shares(log_mix: FloatArray) -> FloatArray:
    weights = np.exp(log_mix - log_mix.max())
    return np.asarray(weights / weights.sum())


def _pools(classes: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Return the rows of each class in random order."""
    return [rng.permutation(np.flatnonzero(classes == c)) for c in range(classes.max() + 1)]


def _dirichlet_by_site(classes: IntArray, m: int, a: float, rng: np.random.Generator) -> IntArray:
    """Let the sites, one after the other, draw rows by class mixes from Dir(a, ..., a) without replacement."""
    pools = _pools(classes, rng)
    used, owner = np.zeros(len(pools), dtype=np.int64), np.empty(len(classes), dtype=np.int64)
    for i, size in enumerate(equal_sizes(len(classes), m)):
        start, log_mix = used.copy(), _log_dirichlet(a, len(pools), rng)
        # The draws that find their class empty are drawn again from the others: row by row it would be the same.
        while (need := size - (used - start).sum()) > 0:
            left = np.array([len(pool) for pool in pools]) - used
            open_ = np.flatnonzero(left)
            used[open_] += np.minimum(rng.multinomial(need, _shares(log_mix[open_])), left[open_])
        for pool, low, high in zip(pools, start, used, strict=True):
            owner[pool[low:high]] = i
    return owner


def _dirichlet_by_class(classes: IntArray, m: int, a: float, rng: np.random.Generator) -> IntArray:
    """Cut each class into shares from Dir(a, ..., a) over the sites."""
    owner = np.empty(len(classes), dtype=np.int64)
    for pool in _pools(classes, rng):
        cuts = np.rint(np.cumsum(_shares(_log_dirichlet(a, m, rng)))[:-1] * len(pool)).astype(np.int64)
        for i, rows in enumerate(np.split(pool, cuts)):
            owner[rows] = i
    return owner


def _clusters(classes: IntArray, m: int, c: int, rng: np.random.Generator) -> IntArray:
    """Give each site c classes and split each class evenly over its holders; UserError where the classes do not go into that."""
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


def _beta(X: FloatArray, m: int, b: float, nearest: bool, rng: np.random.Generator) -> IntArray:
    """Let each row go to one of the sites that draw it, with probability 1 - exp(-b / distance) each."""
    from scipy.spatial.distance import cdist

    locations, owner = rng.uniform(X.min(axis=0), X.max(axis=0), (m, X.shape[1])), np.empty(len(X), dtype=np.int64)
    step = max(1, 1_000_000 // m)  # keeps the (rows, m) arrays small
    for start in range(0, len(X), step):
        distance = cdist(X[start : start + step], locations)
        with np.errstate(divide="ignore", over="ignore"):  # a row at a location: rate infinite, drawn for sure
            rates = b / distance
        if nearest:
            drawn = rng.random(rates.shape) < -np.expm1(-rates)
            drawn[np.arange(len(drawn)), distance.argmin(axis=1)] |= ~drawn.any(axis=1)
        else:
            drawn = _draw_until_drawn(rates, rng)
        owner[start : start + step] = np.where(drawn, rng.random(drawn.shape), -1.0).argmax(axis=1)
    return owner


def _draw_until_drawn(rates: FloatArray, rng: np.random.Generator) -> BoolArray:
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
    site, after = np.arange(m), rng.random((n, m)) < -np.expm1(-rates)
    return np.asarray((site == first) | ((site > first) & after))
