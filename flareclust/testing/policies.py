"""The promise of all federated algorithms that a site's policy holds, whatever the job asks."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from flareclust._foundation.typing import Array, FloatArray
from flareclust.core.disclosure import rounded
from flareclust.core.lloyd import assign
from flareclust.core.microaggregation import microaggregate
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import ASSESS
from flareclust.testing.groups import FLOOR, K, sites_of_groups
from flareclust.testing.tools import Exchange, blobs, ensure, exchanges, seen_by

#: Policies that every algorithm is run under, by what they are about.
_POLICIES: Mapping[str, Policy] = {
    "floor": Policy(min_count=FLOOR),
    "rounded": Policy(min_count=FLOOR, round_counts=8),
    "few centroids": Policy(max_centroids=K - 1),
    "few rounds": Policy(max_rounds=2),
    "some arrays": Policy(arrays=("centroids", "counts")),
    "many rows": Policy(min_rows=130),
}


def check_policies_hold(algorithm: Algorithm) -> None:
    """A site's policy holds against jobs that ask for more: floor, rounding, sizes, exchanges, names, privacy."""
    sites = sites_of_groups()
    settings = {"min_count": 1} if "min_count" in algorithm.parameters() else {}
    for about, policy in _POLICIES.items():
        refused: dict[str, list[str]] = {}
        sent = exchanges(algorithm, sites, K, policy=policy, assess=True, refused=refused, **settings)
        for one in sent:
            _ensure_within(algorithm, one, sites[one.task.site], policy, about)
        for site in sites:
            own = [one for one in sent if one.task.site == site]
            ensure(len(own) <= policy.max_rounds, algorithm, f"{about}: {site} answered {len(own)} times")
            ensure(
                not own or len(sites[site]) >= policy.min_rows, algorithm, f"{about}: {site} has fewer rows, and sent"
            )
    _ensure_hidden_cells_count_nowhere(algorithm)
    if "seeds" in algorithm.parameters():
        sent = exchanges(algorithm, sites, K, policy=Policy(), seeds="rows")
        ensure(not sent, algorithm, "sent rows as seeds although the site has a policy")
    if not algorithm.executor_class().private:
        sent = exchanges(algorithm, sites, K, policy=replace(Policy(), dp=_DP), assess=True)
        ensure(not sent, algorithm, "sent numbers that are not differentially private to a policy that asks for such")


def _ensure_hidden_cells_count_nowhere(algorithm: Algorithm) -> None:
    """Ensure that what stands in the place of missing cells follows from no cell that the groups do not show."""
    if "missing" not in algorithm.parameters():
        return
    policy = Policy(min_count=FLOOR)
    sent, again = (
        exchanges(algorithm, _sites_with_gaps(*hidden), K, policy=policy, missing="mean", assess=True)
        for hidden in ((1e3, 0.5), (4e3, 0.7))
    )
    ensure(bool(sent) and len(sent) == len(again), algorithm, "gaps: other exchanges where no group shows another cell")
    for one, two in zip(sent, again, strict=True):
        same = all(np.array_equal(value, two.arrays[name], equal_nan=True) for name, value in one.arrays.items())
        ensure(same, algorithm, f"gaps, step {one.task.step}: sent what follows from cells that no group shows")


def _sites_with_gaps(far: float, alone: float) -> dict[str, FloatArray]:
    """Return sites of three groups in which three rows alone know a column, beside a row that is far from all.

    Args:
        far: all cells of the row that is in no group.
        alone: those of the three rows, and one that the p % rule moves.
    """
    rng, tables = np.random.default_rng(9), {}
    centers = blobs(K, 4, 1, rng)[1]
    for site in ("site-1", "site-2", "site-3"):
        rows = np.repeat(centers, 15, axis=0) + rng.normal(size=(15 * K, 4))
        for i, group in enumerate(np.split(rows, K)):
            group[:, i] = np.nan
            group[:3, i] = alone
        rows[:15, 3] = 0.0
        rows[7, 3] = alone
        tables[site] = np.concatenate([rows, np.full((1, 4), far)])
    return tables


_DP = DifferentialPrivacy(bounds=(-100.0, 100.0), epsilon=1.0, delta=1e-6, budget=10.0)


def _ensure_within(algorithm: Algorithm, one: Exchange, rows: FloatArray, policy: Policy, about: str) -> None:
    """Ensure that what left a site with these rows is within its policy, without asking what enforces it."""
    what = f"{about}, step {one.task.step}: {one.task.site} sent"
    allowed = policy.arrays
    ensure(allowed is None or set(one.arrays) <= set(allowed), algorithm, f"{what} other arrays: {sorted(one.arrays)}")
    for name, value in one.arrays.items():
        if name == "centroids":
            ensure(len(value) <= policy.max_centroids, algorithm, f"{what} {len(value)} centroids")
            reach = np.abs(value).max(initial=0.0)
            ensure(bool(reach < 100), algorithm, f"{what} a centroid at {reach:.0f}, where it has two rows")
    for name, value in _counts(algorithm, one):
        counts = value[value != 0]
        if value.dtype == np.int64:
            ensure(bool((counts >= policy.min_count).all()), algorithm, f"{what} {name} below {policy.min_count}")
        if policy.round_counts > 1:
            ensure(bool((counts % policy.round_counts == 0).all()), algorithm, f"{what} {name} that are not rounded")
    if one.task.step == ASSESS:
        _ensure_large_cells(algorithm, one, rows, policy, what)


def _ensure_large_cells(algorithm: Algorithm, one: Exchange, rows: FloatArray, policy: Policy, what: str) -> None:
    """Ensure that the assessment is of cells at or above the floor: numbers, distances and sums over all of them."""
    centroids = one.task.arrays["centroids"]
    rows = seen_by(algorithm, one.task, np.concatenate(list(microaggregate(rows, policy.min_count))))
    labels, squared = assign(rows, centroids)
    cells = np.bincount(labels, minlength=len(centroids))
    small = (cells > 0) & (cells < policy.min_count)
    kept = np.where(small, 0, cells)
    counts = rounded(kept, policy.round_counts, policy.min_count)
    by = counts / np.maximum(kept, 1)
    ensure(np.array_equal(one.arrays["counts"], counts), algorithm, f"{what} counts of other cells")
    for name, values in (("scatter", np.sqrt(squared)), ("sse", squared)):
        sums = np.bincount(labels, values, minlength=len(centroids)) * by
        right = np.allclose(one.arrays[name], sums if name == "scatter" else sums.sum(), rtol=1e-9, atol=1e-12)
        ensure(right, algorithm, f"{what} {name} of rows in small cells")


def _counts(algorithm: Algorithm, one: Exchange) -> Iterator[tuple[str, Array]]:
    schema = algorithm.executor_class().step(one.task.step).schema
    yield from ((name, one.arrays[name]) for name, field in schema.fields.items() if field.rows)
