"""How rows and columns are assigned to sites that have different columns.

The set-ups of Maritan and Schenato, "Distributed clustering in partially overlapping feature spaces" (section 6), and
two general ones. Under Assumption 1 (`features-overlap`, names ending in a1) the sites form a chain, neighbours have
columns in common, and all sites' rows of a cluster are alike. Under Assumption 2 (`features-shared`, names ending in a2)
some columns are at every site, and the rows may differ from site to site.

The paper leaves open what follows; the readings are ours.

1. 30 % overlap is a share of a site's own columns, so that s + (m - 1) 0.7 s = d: with 30 sites 26 of the 561 columns
   of har, with 10 sites 107 of the 784 of qmnist. All sites have the same number s of columns and every column is at
   some site, so two neighbours' common columns number 7 or 8 (har), 31 or 32 (qmnist).
2. Columns that several sites have are the most important ones by the ANOVA F of the labels. Columns of like importance
   go to different sites, at random. The labels of all rows are pooled for it: it belongs to building a benchmark, and
   no algorithm sees it.
3. dim: ten sets of columns in a chain would force every site to hold all 16 clusters, where the paper has fewer. Here
   there are five sets with two holders each, and each cluster is at one or both holders of every set; both assumptions
   hold, and every site has 7 to 15 clusters.
4. dim-a2: the holders of a cluster, in the order of their numbers, take consecutive pieces of its sorted rows.
5. har: walking and sitting. qmnist-a2: the ten writers with the lowest numbers of those who wrote all three digits.

n rows, d features, m sites.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.data.cells import check_rows
from flareclust.data.partition import assigned, check_labels, check_owners, check_sites, equal_sizes
from flareclust.data.partition_specs import Spec, parse, usages


class Split(NamedTuple):
    """Who has what.

    Attributes:
        rows: row numbers, ascending, by site; no row is at two sites.
        columns: column numbers, ascending, by site; every column is at some site.
        k: number of clusters, where the set-up fixes it.
    """

    rows: Mapping[str, IntArray]
    columns: Mapping[str, IntArray]
    k: int | None


class _SetUp(NamedTuple):
    """A benchmark of the paper: the data it is for, the classes that it takes, and the number of sites."""

    data: str
    classes: int
    taken: tuple[int, ...]
    m: int
    shares: tuple[float, float] = (0.3, 0.1)  # of columns, under Assumption 1 and 2


_SETUPS: Mapping[str, _SetUp] = {
    "har": _SetUp("the data set har", 6, (0, 3), 30),
    "qmnist": _SetUp("the data set qmnist", 10, (0, 3, 7), 10),
    "dim": _SetUp("a dim data set", 16, tuple(range(16)), 10),
}
_DIM_SETS, _DIM_FEWEST, _DIM_MOST = 5, 7, 15


def split_features(
    spec: str | Spec,
    X: FloatArray,
    y: ArrayLike | None,
    m: int,
    rng: np.random.Generator,
    owners: ArrayLike | None = None,
) -> Split:
    """Deal rows and columns to sites.

    With `features-overlap:S` and `features-shared:S` all rows are assigned at random, to m sites of equal size. The sites
    have columns after readings 1 and 2 of this module; of `features-shared` a share S of all columns, one at least, is
    at every site, and the others are cut into m parts whose sizes differ by one at most. Two neighbours of
    `features-overlap` have one common column at least, and one that they do not have in common. Without labels the
    columns are in random order. The paper's set-ups (`har-a1` ...) take some classes' rows and leave out the others.

    Args:
        spec: one that assigns columns, or what `parse` returned.
        X: (n, d) rows.
        y: (n,) class of each row, 0 ... for the paper's set-ups; None if not known, for the others.
        m: number of sites, 1 to n; not looked at where the set-up fixes it.
        rng: draws the split.
        owners: (n,) whose each row is, for `har-a2` and `qmnist-a2`; else not looked at.

    Raises:
        UserError: the specification is wrong or assigns rows only, m does not fit the numbers of rows and columns, or the
            data are not those that the set-up is for.
    """
    spec = parse(spec)
    if not spec.splits_columns:
        raise UserError(
            f"partition '{spec}' assigns rows only, and split_features columns, too; call flareclust.data.partition.partition"
        )
    X = check_rows(X, where="data to split", allow_empty=True)
    if spec.value is not None:
        check_sites(m, len(X))
        labels = None if y is None else check_labels(spec, y, len(X))
        columns_of_sites = _places(spec, spec.name == "features-overlap", X.shape[1], m, spec.value)
        columns = _columns(columns_of_sites, _importance(X, labels), rng)
        return _split(assigned(equal_sizes(len(X), m), rng), columns, None)

    labels = check_labels(spec, y, len(X))
    data, _, assumption = spec.name.partition("-")
    set_up = _SETUPS[data]
    _check_classes(spec, set_up, labels)
    owner = _owner(spec, set_up, labels, X[:, 0], owners, rng)
    taken = owner >= 0
    sets = _DIM_SETS if data == "dim" else int(owner.max()) + 1
    columns_of_sites = _places(spec, assumption == "a1", X.shape[1], sets, set_up.shares[assumption == "a2"])
    columns = _columns(columns_of_sites, _importance(X[taken], labels[taken]), rng)
    if data == "dim":
        columns = [columns[i // 2] for i in range(set_up.m)]
    return _split(owner, columns, len(set_up.taken))


def _importance(X: FloatArray, labels: Array | None) -> FloatArray:
    """Return (d,) how well each column separates the classes: the ANOVA F, up to a factor that all columns share.

    It is -1 for a constant column, whose F is not defined, infinity for one that is constant in every class only, and 0
    for all columns without labels (n,) of the rows (n, d).
    """
    d = X.shape[1]
    if labels is None or len(X) == 0:
        return np.zeros(d)
    overall = X.mean(axis=0)
    between, within = np.zeros(d), np.zeros(d)
    for label in np.unique(labels):
        rows = X[labels == label]
        mean = np.where(np.ptp(rows, axis=0) == 0, rows[0], rows.mean(axis=0))  # a mean of equal numbers may be rounded
        between += len(rows) * (mean - overall) ** 2
        within += ((rows - mean) ** 2).sum(axis=0)
    ratio = np.full(d, np.inf)
    np.divide(between, within, out=ratio, where=within > 0)
    return np.where(np.ptp(X, axis=0) == 0, -1.0, ratio)


def _places(spec: Spec, overlapping: bool, d: int, m: int, share: float) -> BoolArray:
    """Return (m, d) which of m sites has which of d places; which column is at a place is drawn later."""
    shared = max(1, round(share * d))  # of all columns, where all sites share them
    maximum = max(1, d - 1 if overlapping else d - shared)
    if m > maximum:
        advice = f"at most {maximum} site{'s' if maximum > 1 else ''}, or " if spec.value is not None else ""
        raise UserError(
            f"partition '{spec}' cannot give {m} sites different ones of {d} columns; take {advice}data with more columns"
        )
    if m == 1:
        return np.ones((1, d), dtype=np.bool_)
    place, site = np.arange(d), np.arange(m)[:, None]
    if not overlapping:
        return np.asarray((place < shared) | (place % m == site))
    # A window of the same size for every site, from the first place to the last in steps that differ by one at most.
    # Neighbours have at least one place in common, and one that they do not.
    size = np.clip(round(d / (1 + (m - 1) * (1 - share))), -(-(d + m - 1) // m), d - m + 1)
    start = site * (d - size) // (m - 1)
    return np.asarray((start <= place) & (place < start + size))


def _columns(held: BoolArray, importance: FloatArray, rng: np.random.Generator) -> list[IntArray]:
    """Put a column at each place and return the sites' columns, by which site has which place (m, d).

    The most important ones (d,) come to the places that several sites have. Among these, and among the others, each kind
    of place (those that the same sites have) gets its part of the important and of the unimportant ones: of kinds with
    equally many places, each is given one column in turn, in random order at every turn. So are equally important ones.
    """
    kind = np.unique(held, axis=1, return_inverse=True)[1].ravel()
    quantile = np.empty(len(kind))
    for one in range(kind.max() + 1):
        size = (kind == one).sum()
        quantile[kind == one] = (np.arange(size) + rng.random(size)) / size
    filled, column = np.lexsort((quantile, held.sum(axis=0) == 1)), np.empty(len(kind), dtype=np.int64)
    column[filled] = np.lexsort((rng.random(len(kind)), -importance))
    return [np.sort(column[places]) for places in held]


def _check_classes(spec: Spec, set_up: _SetUp, labels: Array) -> None:
    found = np.unique(labels)
    if not np.array_equal(found, np.arange(set_up.classes)):
        listed = ", ".join(map(str, found[:3])) + (", ..." if len(found) > 3 else "")
        raise UserError(
            f"partition '{spec}' is a set-up for {set_up.data}, with classes 0 to {set_up.classes - 1}; these data have "
            f"{len(found)} ({listed}). For other data there are {usages(('features-overlap',))} and "
            f"{usages(('features-shared',))}"
        )


def _owner(
    spec: Spec, set_up: _SetUp, labels: Array, first: FloatArray, owners: ArrayLike | None, rng: np.random.Generator
) -> IntArray:
    """Return (n,) whose each row is, 0 ... m - 1, or -1; `first` is the first column."""
    owner, taken = np.full(len(labels), -1, dtype=np.int64), np.isin(labels, set_up.taken)
    match spec.name:
        case "har-a1" | "qmnist-a1":
            if taken.sum() < set_up.m:
                raise UserError(f"partition '{spec}' has {set_up.m} sites, and there are only {taken.sum()} rows")
            owner[taken] = assigned(equal_sizes(int(taken.sum()), set_up.m), rng)
        case "har-a2":
            owner[taken] = np.unique(check_owners(spec, owners, len(labels))[taken], return_inverse=True)[1]
        case "qmnist-a2":
            writer = check_owners(spec, owners, len(labels))
            able = [np.unique(writer[labels == digit]) for digit in set_up.taken]
            writers = [one for one in able[0] if all(one in others for others in able[1:])][: set_up.m]
            if len(writers) < set_up.m:
                raise UserError(
                    f"partition '{spec}' needs {set_up.m} writers with all of the digits 0, 3 and 7, "
                    f"and there are only {len(writers)}"
                )
            for site, one in enumerate(writers):
                owner[taken & (writer == one)] = site
        case _:
            owner = _dim_owner(spec, labels, first, rng)
    return owner


def _dim_owner(spec: Spec, labels: Array, first: FloatArray, rng: np.random.Generator) -> IntArray:
    owner = np.empty(len(labels), dtype=np.int64)
    for cluster, holds in enumerate(_dim_holders(rng)):
        rows, sites = np.flatnonzero(labels == cluster), np.flatnonzero(holds)
        if len(rows) < 2 * _DIM_SETS:
            raise UserError(f"partition '{spec}' needs at least {2 * _DIM_SETS} rows of each cluster, got {len(rows)}")
        sizes = equal_sizes(len(rows), len(sites))
        if spec.name == "dim-a1":
            owner[rows] = sites[assigned(sizes, rng)]
        else:
            owner[rows[np.argsort(first[rows], kind="stable")]] = np.repeat(sites, sizes)
    return owner


def _dim_holders(rng: np.random.Generator) -> BoolArray:
    """Return (16, 10) which site holds which cluster; sites 2 j and 2 j + 1 have the j-th set of columns."""
    sets: list[BoolArray] = []
    while len(sets) < _DIM_SETS:
        one = np.array([[True, False], [False, True], [True, True]])[rng.integers(3, size=_SETUPS["dim"].classes)]
        if np.all((one.sum(axis=0) >= _DIM_FEWEST) & (one.sum(axis=0) <= _DIM_MOST)):  # 19 of 20 draws
            sets.append(one)
    return np.hstack(sets)


def _split(owner: IntArray, columns: list[IntArray], k: int | None) -> Split:
    names = [f"site-{i + 1}" for i in range(len(columns))]
    rows = {name: np.flatnonzero(owner == i) for i, name in enumerate(names)}
    return Split(rows, dict(zip(names, columns, strict=True)), k)
