"""The promises of algorithms for sites with different columns."""

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray
from flareclust.data.tables import Table
from flareclust.executors.parameters import SCALE
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import DESCRIBE
from flareclust.testing.tools import ContractViolation, ensure, exchanges, run

_NAMES = np.array(["age", "crp", "iron", "lactate", "sodium", "urea"])
_HELD = {"north": (0, 1, 2, 3), "south": (2, 3, 4, 5), "west": (1, 2, 3, 4)}


def overlapping_sites(seed: int = 0) -> tuple[dict[str, Table], FloatArray]:
    """Return three sites with four of six columns each, two of them at all sites, and the four clusters' centers (4, 6)."""
    rng = np.random.default_rng(seed)
    centers = rng.choice((-10.0, 10.0), (4, len(_NAMES)))
    centers[:, 2:4] = [(-10, -10), (-10, 10), (10, -10), (10, 10)]  # so that they are apart at every site
    rows = np.repeat(centers, 200, axis=0)
    rows = rows + rng.normal(size=rows.shape)
    order = rng.permutation(len(rows))
    parts = np.array_split(order, len(_HELD))
    sites = {
        site: Table(np.ascontiguousarray(rows[np.ix_(part, np.array(columns))]), tuple(_NAMES[list(columns)]))
        for (site, columns), part in zip(_HELD.items(), parts, strict=True)
    }
    return sites, centers


def check_partial_features(algorithm: Algorithm) -> None:
    """Sites with different columns work together by the names of these; no site sends a row or another's column."""
    sites, _ = overlapping_sites()
    outcome = run(algorithm, sites, k=4)
    names, mask = outcome.arrays["column_names"].tolist(), outcome.arrays["mask"]
    ensure(set(names) <= set(_NAMES), algorithm, f"the result has the columns {names}")
    ensure(not outcome.refused, algorithm, f"refused {outcome.refused}")
    known = ~np.isnan(outcome.centroids)
    ensure(np.array_equal(mask, known), algorithm, "mask does not say which entries of the centroids are known")

    turned = {
        site: Table(np.ascontiguousarray(table.X[:, ::-1]), table.columns[::-1])
        for site, table in sites.items()
        if table.columns
    }
    again = run(algorithm, turned, k=4)
    order = [again.arrays["column_names"].tolist().index(name) for name in names]
    same = np.allclose(outcome.centroids, again.centroids[:, order], atol=1e-9, equal_nan=True)
    ensure(same, algorithm, "the order of a site's columns changed the result")

    if not algorithm.federated:
        return
    for scale in SCALE:
        for task, arrays in exchanges(algorithm, sites, k=4, scale=scale):
            _ensure_no_row(algorithm, arrays, sites[task.site].X)
    _ensure_no_remainder(algorithm)
    apart = {"north": sites["north"], "east": Table(sites["south"].X, ("a", "b", "c", "d")), "west": sites["west"]}
    try:
        run(algorithm, apart, k=4)
    except JobFailed as error:
        ensure("east" in str(error), algorithm, f"a site without a common column is not named: {error}")
    else:
        raise ContractViolation(f"{algorithm.name}: a site that shares no column with any other was taken")


def check_recovers_partial(algorithm: Algorithm) -> None:
    """Separated clusters are found in all columns, though no site has them all."""
    for seed in range(5):
        sites, centers = overlapping_sites(seed)
        outcome = run(algorithm, sites, k=4, seed=seed)
        order = [_NAMES.tolist().index(name) for name in outcome.arrays["column_names"]]
        ensure(bool(outcome.arrays["mask"].all()), algorithm, "entries of centroids stayed unknown")
        gaps = np.linalg.norm(centers[:, None, order] - outcome.centroids[None], axis=2).min(axis=1)
        ensure(bool(gaps.max() < 0.5), algorithm, f"a cluster was missed by {gaps.max():.2f}")


def _ensure_no_remainder(algorithm: Algorithm) -> None:
    """Ensure that a site's sums, less those of its clusters, are not those of a row that it keeps back."""
    sites, _ = overlapping_sites()
    north = sites["north"]
    lonely = np.concatenate([north.X, [[900.0, 800.0, 700.0, 600.0]]])
    repeated = np.concatenate([north.X, np.full((9, 4), 500.0)])
    for rows in (lonely, repeated):
        odd = sites | {"north": Table(rows, north.columns)}
        description: dict[str, FloatArray] = {}
        for task, arrays in exchanges(algorithm, odd, k=5, scale="standard"):
            if task.site == "north" and task.step == DESCRIBE:
                description = arrays
            elif task.site == "north" and "counts" in arrays and len(description["mean"]):
                positions = np.isin(task.arrays["columns"], description["codes"])
                scale, mean = task.arrays["deviation"][positions], task.arrays["mean"][positions]
                order = [description["codes"].tolist().index(code) for code in task.arrays["columns"][positions]]
                centroids = (
                    arrays["centroids"]
                    if arrays["centroids"].shape[1] == len(order)
                    else arrays["centroids"][:, positions]
                )
                own = rows[:, order]
                back = len(rows) - int(arrays["counts"].sum())
                rest = description["mean"][order] * len(rows) - (
                    arrays["counts"][:, None] * (centroids * scale + mean)
                ).sum(axis=0)
                gap = np.abs(own - rest / max(back, 1)).max(axis=1).min()
                ensure(
                    back == 0 or (back > 2 and bool(gap > 1e-6)), algorithm, "a site's sums give away a row kept back"
                )


def _ensure_no_row(algorithm: Algorithm, arrays: dict[str, FloatArray], rows: FloatArray) -> None:
    for name, value in arrays.items():
        if value.dtype == np.float64 and value.ndim and value.shape[-1] == rows.shape[1]:
            gap = np.abs(value.reshape(-1, 1, rows.shape[1]) - rows[None]).max(axis=2).min(initial=np.inf)
            ensure(bool(gap > 1e-12), algorithm, f"{name} holds a row of the site's data")
