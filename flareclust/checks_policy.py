"""The promise of all federated algorithms that a site's policy holds, whatever the job asks."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust.checks_tools import Exchange, PromiseBroken, blobs, ensure, exchanges
from flareclust.core.lloyd import assign
from flareclust.core.microaggregation import microaggregate
from flareclust.errors import BadMessage, Refusal
from flareclust.executors.task import ASSESS, ASSESSMENT
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.rounding import rounded
from flareclust.privacy.site_terms import SiteTerms
from flareclust.registry import Algorithm
from flareclust.tables import Table
from flareclust.typing import Array, FloatArray, never

_K, _FLOOR = 3, 10

#: Policies that every algorithm is run under, by what they are about.
_POLICIES: Mapping[str, Policy] = {
    "floor": Policy(min_count=_FLOOR),
    "rounded": Policy(min_count=_FLOOR, round_counts=8),
    "few centroids": Policy(max_centroids=_K - 1),
    "few rounds": Policy(max_rounds=2),
    "some arrays": Policy(arrays=("centroids", "counts")),
    "many rows": Policy(min_rows=130),
}


def check_policies_hold(algorithm: Algorithm) -> None:
    """A site's policy holds against jobs that ask for more: floor, rounding, sizes, exchanges, names, privacy."""
    sites = _sites()
    asked = {"min_count": 1} if "min_count" in algorithm.parameters() else {}
    for about, policy in _POLICIES.items():
        refused: dict[str, list[str]] = {}
        sent = exchanges(algorithm, sites, _K, policy=policy, assess=True, refused=refused, **asked)
        for one in sent:
            _ensure_within(algorithm, one, sites[one.task.site], policy, about)
        for site in sites:
            own = [one for one in sent if one.task.site == site]
            ensure(len(own) <= policy.max_rounds, algorithm, f"{about}: {site} answered {len(own)} times")
            ensure(
                not own or len(sites[site]) >= policy.min_rows, algorithm, f"{about}: {site} has fewer rows, and sent"
            )
    if not algorithm.executor_class().private:
        _check_independent(algorithm, sites, asked)
    if "seeds" in algorithm.parameters():
        sent = exchanges(algorithm, sites, _K, policy=Policy(), seeds="rows")
        ensure(not sent, algorithm, "sent rows as seeds although the site has a policy")
    if not algorithm.executor_class().private:
        sent = exchanges(algorithm, sites, _K, policy=replace(Policy(), dp=_DP), assess=True)
        ensure(not sent, algorithm, "sent numbers that are not differentially private to a policy that asks for such")


_DP = DifferentialPrivacy(bounds=(-100.0, 100.0), epsilon=1.0, delta=1e-6, budget=10.0)


def _sites() -> dict[str, FloatArray]:
    """Return sites with clusters of 60 rows, one with four rows of the third cluster and two far away, one with 14 rows."""
    rng = np.random.default_rng(8)
    rows, _ = blobs(_K, 3, 60, rng)
    full = {f"site-{i}": rows + 0.1 * rng.normal(size=rows.shape) for i in (1, 2, 3)}
    far = 1e3 + rng.normal(size=(2, 3))
    full["site-4"] = np.concatenate([rows[:120] + 0.1 * rng.normal(size=(120, 3)), rows[120:124], far])
    return full | {"site-5": rng.normal(scale=8.0, size=(14, 3))}  # one group, in cells of fewer rows than it has


def _check_independent(algorithm: Algorithm, sites: Mapping[str, FloatArray], asked: Mapping[str, int]) -> None:
    """Ensure that replies follow from the microaggregated rows alone: with other rows in their place they are the same.

    Each question is asked twice, of two executors, so that nothing that one of them remembers counts either.
    """
    policy = Policy(min_count=_FLOOR)
    for one in exchanges(algorithm, sites, _K, policy=policy, assess=True, **dict[str, Any](asked)):
        rows = sites[one.task.site]
        other = np.random.default_rng(3).normal(50.0, 20.0, rows.shape)
        for own in (rows, other):
            executor, _ = algorithm.build(_K, 0, asked)
            terms = _SameGroups(policy, "check")
            terms.rows = rows
            for time in ("first", "second"):
                try:
                    again = executor.answer(one.task, own, never, terms).arrays
                except (Refusal, BadMessage) as reason:
                    raise PromiseBroken(
                        f"{algorithm.name}: step {one.task.step}: refused the {time} time: {reason}"
                    ) from reason
                for name, value in one.arrays.items():
                    ensure(
                        np.array_equal(again[name], value, equal_nan=True),
                        algorithm,
                        f"step {one.task.step}: {name} changes with the rows, although the microaggregated rows are the "
                        f"same ({time} time); compute replies from `data`, and keep nothing in the executor",
                    )


class _SameGroups(SiteTerms):
    """Terms under which a site's jobs see the same microaggregated rows, whatever its rows are."""

    rows: FloatArray

    def microaggregated(self, table: Table) -> Table:
        return replace(table, X=super().microaggregated(Table(self.rows)).X)


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
        told = value[value != 0]
        if value.dtype == np.int64:
            ensure(bool((told >= policy.min_count).all()), algorithm, f"{what} {name} below {policy.min_count}")
        if policy.round_counts > 1:
            ensure(bool((told % policy.round_counts == 0).all()), algorithm, f"{what} {name} that are not rounded")
    if one.task.step == ASSESS:
        _ensure_large_cells(algorithm, one, rows, policy, what)


def _ensure_large_cells(algorithm: Algorithm, one: Exchange, rows: FloatArray, policy: Policy, what: str) -> None:
    """Ensure that the assessment is of cells at or above the floor: numbers, distances and sums over all of them."""
    centroids = one.task.arrays["centroids"]
    rows = np.concatenate(list(microaggregate(rows, policy.min_count)))
    labels, squared = assign(rows, centroids)
    cells = np.bincount(labels, minlength=len(centroids))
    small = (cells > 0) & (cells < policy.min_count)
    kept = np.where(small, 0, cells)
    told = rounded(kept, policy.round_counts, policy.min_count)
    by = told / np.maximum(kept, 1)
    ensure(np.array_equal(one.arrays["counts"], told), algorithm, f"{what} counts of other cells")
    for name, values in (("scatter", np.sqrt(squared)), ("sse", squared)):
        sums = np.bincount(labels, values, minlength=len(centroids)) * by
        right = np.allclose(one.arrays[name], sums if name == "scatter" else sums.sum(), rtol=1e-9, atol=1e-12)
        ensure(right, algorithm, f"{what} {name} of rows in small cells")


def _counts(algorithm: Algorithm, one: Exchange) -> Iterator[tuple[str, Array]]:
    schema = ASSESSMENT if one.task.step == ASSESS else algorithm.executor_class().schema(one.task.step)
    yield from ((name, one.arrays[name]) for name, field in schema.fields.items() if field.rows)
