"""Not a federation: the baselines, which see all rows at once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_int, size_problem
from flareclust.core import assessment
from flareclust.core.kpod import SCALES, location_and_scale
from flareclust.core.missing.assessment import masked_metrics, masked_sums
from flareclust.core.runtime import one_thread
from flareclust.data.tables import Table
from flareclust.engines.options import JobOptions
from flareclust.preparation import alignment
from flareclust.preparation import result as different_result
from flareclust.preparation.categories import scaled_together
from flareclust.preparation.columns import gather
from flareclust.protocol.columns import Columns
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.params import MOST_ITERATIONS, MOST_STARTS, Params, both
from flareclust.protocol.registry import Algorithm


class CentralParams(Params):
    """Parameters of k-means on the pooled rows."""

    n_init: int | None = both(
        None, "Starts; the best one counts. None for 10 up to k = 20 and k / 2 above.", ge=1, le=MOST_STARTS
    )
    max_iter: int = both(300, "Iterations of a start, at the most.", ge=1, le=MOST_ITERATIONS)
    scale: Annotated[str, OneOf(SCALES)] = both("none", "Whether columns are scaled first to mean 0 and variance 1.")
    categories: list[list[int]] | None = both(None, "Columns of 0 and 1 of each category, which are scaled as one.")


class KPodParams(Params):
    """Parameters of k-POD."""

    n_init: int = both(10, "Starts; the best one counts.", ge=1, le=MOST_STARTS)
    max_iter: int = both(
        100, "Fillings of a start, and then passes over the rows, at the most.", ge=1, le=MOST_ITERATIONS
    )
    instead: ClassVar[Mapping[str, str]] = MappingProxyType({"standardize": "say scale=standard"})

    scale: Annotated[str, OneOf(SCALES)] = both("none", "Whether columns are scaled first to mean 0 and variance 1.")


def run_pooled(
    algorithm: Algorithm,
    params: Mapping[str, object],
    sites: Mapping[str, FloatArray | Table],
    options: JobOptions,
    index: Mapping[str, IntArray] | None = None,
) -> Outcome:
    """Run a baseline on the pooled rows of all sites; what its `bytes_up` counts are the rows themselves.

    Args:
        algorithm: a baseline of the registry.
        params: its settings.
        sites: rows (n_i, d) by site; those of a baseline for different columns (n_i, d_i), known by their names.
        options: settings every job has.
        index: where each site's rows are in the data set they were assigned from, so that the result does not depend on
            the split; None for the order of the sites. The data set may have more rows than the sites.

    Raises:
        UserError: a setting is unknown, the sites' rows do not fit together, or there are fewer than k.
        JobFailed: the sites have no columns in common.
    """
    settings = algorithm.check(options.k, options.seed, params).model_dump()
    tables = {site: rows if isinstance(rows, Table) else Table(rows) for site, rows in sites.items()}
    _check_values(tables)
    if (n := sum(map(len, tables.values()))) < options.k:
        raise UserError(f"k={options.k} is more than the {n} rows of all sites together")
    index = _closed_up(index) if index else _in_order(tables)
    columns = None
    if algorithm.partial:
        columns = gather({site: alignment.describe(table, sums=False, min_count=1) for site, table in tables.items()})
    if columns is None:
        _check_poolable(tables)
    X = np.empty((n, len(columns.codes) if columns else next(iter(tables.values())).X.shape[1]))
    for site, table in tables.items():
        X[index[site]] = columns.spread(site, alignment.own_view(table, columns.sent())[0]) if columns else table.X
    started, centroids = perf_counter(), algorithm.function()(X, **settings)
    if (different := _few_different(X, options.k)) is not None:
        centroids = different
    seconds = perf_counter() - started
    arrays, own = {"centroids": centroids}, _scaling(X, **settings)
    if columns is None:
        arrays |= own.sent()
        found, sums = assessment.assessment_sums(own.scaled(X), own.scaled(centroids))
        metrics = assessment.label_free_metrics(own.scaled(centroids), sums)
    else:
        columns = replace(columns, mean=own.mean, deviation=own.deviation)
        arrays |= columns.kept() | columns.sent() | {different_result.MASK: ~np.isnan(centroids)}
        arrays |= {} if own.mean is None else {different_result.STANDARDIZED: np.array(True)}
        found = different_result.place_rows(algorithm.name, params, arrays, X)
        metrics = _metrics_of_known(columns, {site: X[index[site]] for site in tables}, centroids)
    return Outcome(
        arrays=arrays,
        metrics=metrics if options.assess else {},
        rounds=[],
        sites=sorted(sites),
        refused={},
        bytes_up=sum(table.X.nbytes for table in tables.values()),
        bytes_down=0,
        seconds_local=0.0,
        seconds_merge=seconds,
        labels={site: found[index[site]] for site in tables},
    )


def _few_different(X: FloatArray, k: int) -> FloatArray | None:
    """Return the different rows (m, d) of X (n, d) where there are fewer than k, so that k-means would repeat centroids; else None."""
    for rows in (X[: 100 * k], X):  # the first rows say it at once, unless they repeat
        missing = np.isnan(rows)
        different = np.unique(np.hstack([np.where(missing, 0.0, rows), missing]), axis=0)  # NaN does not equal NaN
        if len(different) >= k:
            return None
    values, gaps = np.hsplit(different, 2)
    return np.where(gaps > 0, np.nan, values)


def _metrics_of_known(
    columns: Columns, rows: Mapping[str, FloatArray], centroids: FloatArray
) -> dict[str, float | None]:
    """Return the label-free metrics over the entries that are known, in the units in which the rows were clustered."""
    centers, parts = columns.scaled(centroids), []
    for site, own in rows.items():
        has = columns.mask(site)
        parts.append(masked_sums(columns.scaled(own)[:, has], centers[:, has]))
    return masked_metrics(centers, {name: np.sum([part[name] for part in parts], axis=0) for name in assessment.SUMS})


def _closed_up(index: Mapping[str, IntArray]) -> dict[str, IntArray]:
    """Return the places of the rows among those that any site has."""
    present = np.sort(np.concatenate(list(index.values())))
    return {site: np.searchsorted(present, rows) for site, rows in index.items()}


def _in_order(sites: Mapping[str, Table]) -> dict[str, IntArray]:
    ends = np.cumsum([len(rows) for rows in sites.values()])
    return {site: np.arange(end - len(sites[site]), end) for site, end in zip(sites, ends, strict=True)}


def _check_poolable(sites: Mapping[str, Table]) -> None:
    (usual, _), *_ = Counter(table.X.shape[1] for table in sites.values()).most_common(1)
    for site, table in sites.items():
        if table.X.shape[1] != usual:
            raise UserError(f"{site} has {table.X.shape[1]} columns where most sites have {usual}")


def _check_values(sites: Mapping[str, Table]) -> None:
    for site, table in sites.items():
        largest = max(-table.X.min(initial=0), table.X.max(initial=0))
        if not np.isfinite(largest):
            raise UserError(f"{site} has rows with NaN or infinite values; remove or impute them at the site")
        if problem := size_problem(float(largest)):
            raise UserError(f"{site} {problem}")


def _scaling(
    X: FloatArray, scale: str = "none", categories: Sequence[Sequence[int]] | None = None, **_: object
) -> Columns:
    """Return how the columns of all rows (n, d) are scaled, those of each category as one."""
    if any(not 0 <= column < X.shape[1] for group in categories or () for column in group):
        raise UserError(f"categories: expected columns from 0 to {X.shape[1] - 1}, got {categories}")
    if scale == "none":
        return Columns()
    mean, deviation = location_and_scale(X)
    return scaled_together(Columns(mean=mean, deviation=deviation), categories or (), mean, deviation)


def central_kmeans(
    X: FloatArray, k: int, seed: int = 0, n_init: int | None = None, max_iter: int = 300, **scaling: Any
) -> FloatArray:
    """Return the centroids (k, d) of scikit-learn's k-means on all rows (n, d); `scaling` are `scale` and `categories`.

    It shares no code with the federated algorithms, so that a fault of theirs cannot hide in the comparison.

    A baseline in a local optimum makes federated results look too good, so `n_init=None` is 10 starts up to k = 20, and k / 2 above: in
    the plane, with centers five deviations apart, one start found the optimum with chance 0.94 for k = 10 and 0.15 for k = 60.
    """
    n_init = max(10, k // 2) if n_init is None else n_init
    check_int("n_init", n_init, minimum=1)
    check_int("max_iter", max_iter, minimum=1)
    from sklearn.cluster import KMeans

    columns = _scaling(X, **scaling)
    with one_thread():
        model = KMeans(k, n_init=n_init, max_iter=max_iter, random_state=seed).fit(columns.scaled(X))
    return columns.unscaled(model.cluster_centers_)
