"""The promises that some algorithms make, by the names that their registry lines use."""

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import labels_of
from flareclust.core.rounds import HISTORY
from flareclust.data.tables import Table
from flareclust.evaluation.scores import unstack
from flareclust.preparation import settings
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import StepName, Task
from flareclust.testing.differential_privacy import check_differentially_private
from flareclust.testing.tools import ContractViolation, blobs, ensure, ensure_no_row, exchanges, iid_sites, run, seen_by

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


def _check_partial_features(algorithm: Algorithm) -> None:
    """Sites with different columns work together by the names of these; no site sends a row or another's column."""
    sites, _ = overlapping_sites()
    outcome = run(algorithm, sites, k=4)
    names, mask = outcome.arrays["column_names"].tolist(), outcome.arrays["mask"]
    ensure(set(names) <= set(_NAMES), algorithm, f"the result has the columns {names}")
    ensure(not outcome.refused, algorithm, f"refused {outcome.refused}")
    known = ~np.isnan(outcome.centroids)
    ensure(np.array_equal(mask, known), algorithm, "mask does not say which entries of the centroids are known")

    turned = {
        site: Table(np.ascontiguousarray(table.X[:, ::-1]), (table.columns or ())[::-1])
        for site, table in sites.items()
    }
    again = run(algorithm, turned, k=4)
    order = [again.arrays["column_names"].tolist().index(name) for name in names]
    same = np.allclose(outcome.centroids, again.centroids[:, order], atol=1e-9, equal_nan=True)
    ensure(same, algorithm, "the order of a site's columns changed the result")

    if not algorithm.federated:
        return
    for scale in settings.SCALE:
        for task, arrays in exchanges(algorithm, sites, k=4, scale=scale):
            rows = sites[task.site].X
            for name, value in arrays.items():
                if value.dtype == np.float64 and value.ndim and value.shape[-1] == rows.shape[1]:
                    ensure_no_row(algorithm, name, value, rows)
    _ensure_no_remainder(algorithm)
    apart = {"north": sites["north"], "east": Table(sites["south"].X, ("a", "b", "c", "d")), "west": sites["west"]}
    try:
        run(algorithm, apart, k=4)
    except JobFailed as error:
        ensure("east" in str(error), algorithm, f"a site without a common column is not named: {error}")
    else:
        raise ContractViolation(f"{algorithm.name}: a site that shares no column with any other was taken")


def _check_recovers_partial(algorithm: Algorithm) -> None:
    """Separated clusters are found in all columns, though no site has them all."""
    for seed in range(5):
        sites, centers = overlapping_sites(seed)
        outcome = run(algorithm, sites, k=4, seed=seed)
        order = [_NAMES.tolist().index(name) for name in outcome.arrays["column_names"]]
        ensure(bool(outcome.arrays["mask"].all()), algorithm, "entries of centroids stayed unknown")
        _ensure_found(algorithm, outcome.centroids, centers[:, order])


def _ensure_no_remainder(algorithm: Algorithm) -> None:
    """Ensure that a site's sums, less those of its clusters, are not those of a row that it keeps back."""
    sites, _ = overlapping_sites()
    north = sites["north"]
    for apart in ([[900.0, 800.0, 700.0, 600.0]], np.full((9, 4), 500.0)):  # alone, and repeated
        rows = np.concatenate([north.X, apart])
        odd = sites | {"north": Table(rows, north.columns)}
        description: dict[str, FloatArray] = {}
        for task, arrays in exchanges(algorithm, odd, k=5, scale="standard"):
            if task.site == "north" and task.step == StepName.DESCRIBE:
                description = arrays
            elif task.site == "north" and "counts" in arrays and len(description["mean"]):
                positions = np.isin(task.arrays["columns"], description["codes"])
                scale, mean = task.arrays["deviation"][positions], task.arrays["mean"][positions]
                order = [description["codes"].tolist().index(code) for code in task.arrays["columns"][positions]]
                counts, centroids = arrays["counts"], arrays["centroids"]
                own = centroids if centroids.shape[1] == len(order) else centroids[:, positions]
                back = len(rows) - int(counts.sum())
                rest = description["mean"][order] * len(rows) - (counts[:, None] * (own * scale + mean)).sum(axis=0)
                gap = np.abs(rows[:, order] - rest / max(back, 1)).max(axis=1).min()
                hidden = back == 0 or (back > 2 and bool(gap > 1e-6))
                ensure(hidden, algorithm, "a site's sums give away a row kept back")


def _check_one_shot(algorithm: Algorithm) -> None:
    """One exchange is enough."""
    sites, _ = iid_sites()
    rounds = run(algorithm, sites, k=4).n_rounds
    ensure(rounds == 1, algorithm, f"took {rounds} rounds")


def check_recovers_iid(algorithm: Algorithm) -> None:
    """Separated clusters that every site sees are found, each center within the standard error of some sites."""
    for seed in range(5):
        sites, centers = iid_sites(m=5, k=5, seed=seed)
        _ensure_found(algorithm, run(algorithm, sites, k=5, seed=seed).centroids, centers)


def _check_recovers_non_iid(algorithm: Algorithm) -> None:
    """Separated clusters are found where no site sees more than two of six."""
    for seed in range(5):
        rows, centers = blobs(6, 3, 120, np.random.default_rng(seed))
        cluster, pairs = np.repeat(np.arange(6), 120), [(0, 1), (2, 3), (4, 5), (1, 2), (3, 4)]
        sites = {f"site-{i + 1}": rows[np.isin(cluster, pair)] for i, pair in enumerate(pairs)}
        few = {"k_local": 2} if "k_local" in algorithm.parameters() else {}
        _ensure_found(algorithm, run(algorithm, sites, k=6, seed=seed, **few).centroids, centers)


def _check_uneven_k(algorithm: Algorithm) -> None:
    """Sites may look for different numbers of clusters, given by name in the setting `k_local`."""
    rows, centers = blobs(4, 3, 100, np.random.default_rng(0))
    sites = {"a": rows[:100], "b": rows[100:400], "c": rows[:200]}
    outcome = run(algorithm, sites, k=4, k_local={"a": 1, "b": 3, "c": 2})
    _ensure_found(algorithm, outcome.centroids, centers)


def _check_small_sites(algorithm: Algorithm) -> None:
    """A site with fewer rows than k takes part."""
    sites, _ = iid_sites(m=4)
    small = np.random.default_rng(0).normal(size=(6, 3))
    outcome = run(algorithm, sites | {"site-small": small}, k=8)
    ensure(not outcome.refused, algorithm, f"refused {outcome.refused}")


def check_translation(algorithm: Algorithm) -> None:
    """Moving all rows moves the centroids with them."""
    sites, _ = iid_sites()
    shift, here = np.array([100.0, -50.0, 25.0]), run(algorithm, sites, k=4).centroids
    there = run(algorithm, {site: rows + shift for site, rows in sites.items()}, k=4).centroids
    ensure(bool(np.allclose(there - shift, here, atol=1e-9)), algorithm, "the centroids did not move with the rows")


def _check_iterative(algorithm: Algorithm) -> None:
    """`rounds` bounds the exchanges, 0 is refused, and the centroids of every round are kept under `history`."""
    try:
        algorithm.build(4, 0, {"rounds": 0})
    except UserError:
        pass
    else:
        raise ContractViolation(f"{algorithm.name}: rounds=0 was taken")
    rng = np.random.default_rng(0)  # without clusters, so that no round is the last by itself
    sites = {f"site-{i}": rng.normal(size=(80, 3)) for i in range(3)}
    short, long = (run(algorithm, sites, k=4, rounds=rounds) for rounds in (2, 4))
    for outcome in (short, long):
        history = outcome.arrays[HISTORY]
        ensure(len(history) == outcome.n_rounds, algorithm, "the history is not as long as there were rounds")
        last = history[-1][~np.isnan(history[-1]).any(axis=1)]
        ensure(np.array_equal(last, outcome.centroids), algorithm, "the history does not end with the result")
    ensure(long.n_rounds - short.n_rounds == 2, algorithm, "two rounds more did not make two more exchanges")
    kept = short.n_rounds
    same = np.array_equal(short.arrays[HISTORY], long.arrays[HISTORY][:kept], equal_nan=True)
    ensure(same, algorithm, "the first rounds of a longer run differ from those of a shorter one")


def _check_embeds(algorithm: Algorithm) -> None:
    """The result has what rows are embedded with: the label of each is the centroid nearest to its embedding."""
    sites, _ = iid_sites()
    outcome = run(algorithm, sites, k=4)
    for site, rows in sites.items():
        embedded = seen_by(algorithm, Task(StepName.ASSESS, 0, outcome.arrays, site), rows)
        ensure(embedded.shape != rows.shape, algorithm, "rows are not embedded")
        same = np.array_equal(labels_of(embedded, outcome.centroids), outcome.labels[site])
        ensure(same, algorithm, "labels are not those of the nearest centroids of the embedded rows")


def _check_equals_central(algorithm: Algorithm) -> None:
    """From the same start, the centroids of every round are those of Lloyd's algorithm on the pooled rows, to 1e-10."""
    rng = np.random.default_rng(1)
    sites = {f"site-{i}": rng.normal(size=(100, 3)) for i in range(3)}
    rows, centroids = np.concatenate(list(sites.values())), rng.normal(size=(4, 3))
    history = run(algorithm, sites, k=4, start=centroids.tolist(), rounds=8, tol=0.0).arrays[HISTORY]
    ensure(len(history) == 8, algorithm, f"took {len(history)} rounds where 8 were asked for")
    for found in history:
        nearest = ((rows[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
        centroids = np.stack([rows[nearest == c].mean(axis=0) for c in range(4)])
        gap = float(np.abs(found - centroids).max())
        ensure(gap < 1e-10, algorithm, f"a round is {gap:.1e} away from Lloyd's algorithm on the pooled rows")


def _check_never_worse(algorithm: Algorithm) -> None:
    """The inertia is at most that of every candidate that was compared, also after polishing."""
    for seed, polish in product(range(3), (0, 2)):
        rng = np.random.default_rng(seed)
        sites = {f"site-{i}": rng.normal(rng.normal(size=3), 1.0, size=(60 + 20 * i, 3)) for i in range(4)}
        outcome = run(algorithm, sites, k=6, seed=seed, polish=polish)
        rows, found = np.concatenate(list(sites.values())), outcome.metrics["inertia"]
        for centroids in unstack(outcome.arrays):
            inertia = float(((rows[:, None] - centroids[None]) ** 2).sum(axis=2).min(axis=1).sum())
            better = found is not None and found <= inertia * (1 + 1e-12)
            ensure(better, algorithm, f"inertia {found} against {inertia}")


def _ensure_found(algorithm: Algorithm, centroids: FloatArray, centers: FloatArray) -> None:
    """Ensure a centroid within 0.5 of every center, where clusters have standard deviation 1 and stand 20 apart."""
    gaps = np.linalg.norm(centers[:, None] - centroids[None], axis=2).min(axis=1)
    ensure(bool(gaps.max() < 0.5), algorithm, f"a cluster was missed by {gaps.max():.2f}")


PROMISES: Mapping[str, Callable[[Algorithm], None]] = {
    "one-shot": _check_one_shot,
    "recovers-iid": check_recovers_iid,
    "recovers-non-iid": _check_recovers_non_iid,
    "uneven-k": _check_uneven_k,
    "small-sites": _check_small_sites,
    "translation": check_translation,
    "iterative": _check_iterative,
    "embeds": _check_embeds,
    "equals-central": _check_equals_central,
    "never-worse": _check_never_worse,
    "partial-features": _check_partial_features,
    "recovers-partial": _check_recovers_partial,
    "differentially-private": check_differentially_private,
}
