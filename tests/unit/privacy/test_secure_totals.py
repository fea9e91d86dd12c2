"""Results from masked totals are those from plain sums."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flareclust
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.refinement import SPREAD, UPDATE
from flareclust.federation.server import ServerJob
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.fixed_point import WORDS
from flareclust.privacy.secure_aggregation.totals import Layout
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import GROUPS, StepName, Task
from flareclust.testing import iid_sites
from flareclust.testing.promised import overlapping_sites
from tests.examples import examples
from tests.unit.privacy.secure_cases import OPTIONS, PLAIN, asker

# Totals


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.0, 1e4, 1e9])
)
def test_the_total_is_the_exact_one_rounded_once(seed: int, m: int, k: int, d: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout(GROUPS, {"K": k, "d": d})
    replies, summed = [], np.zeros((WORDS, layout.width), np.uint64)
    for _ in range(m):
        groups = np.flatnonzero(rng.random(k) < 0.7)
        reply = {
            "cluster": groups,
            "counts": rng.integers(1, 2**40, len(groups)),
            "centroids": rng.normal(size=(len(groups), d)) * 10.0 ** rng.integers(-3, 4) + offset,
            "m2": rng.exponential(size=(len(groups), d)),
        }
        replies.append(reply)
        fixed_point.add(summed, layout.words(reply))
    found = layout.reply(fixed_point.decode(summed))
    reported = {r for reply in replies for r in reply["cluster"].tolist()}
    assert found["cluster"].tolist() == sorted(reported)
    for at, r in enumerate(sorted(reported)):
        own = [(reply, reply["cluster"].tolist().index(r)) for reply in replies if r in reply["cluster"]]
        n = sum(int(reply["counts"][i]) for reply, i in own)
        assert found["counts"][at] == n
        for j in range(d):
            mean = sum(int(reply["counts"][i]) * Fraction(float(reply["centroids"][i, j])) for reply, i in own) / n
            assert found["centroids"][at, j] == float(mean)
            around = sum(
                Fraction(float(reply["m2"][i, j]))
                + int(reply["counts"][i]) * (Fraction(float(reply["centroids"][i, j])) - mean) ** 2
                for reply, i in own
            )
            assert found["m2"][at, j] == pytest.approx(float(around), rel=1e-15)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 6), st.integers(1, 5), st.sampled_from([0.0, 1e6]))
@example(3302, 3, 3, 0.0)  # a cluster of two rows, less than a total needs
def test_lloyd_with_secure_sums_is_lloyd_on_the_rows_of_all_sites(seed: int, m: int, k: int, offset: float) -> None:
    """However few rows a cluster has at one site: a total must be large enough, and not each site's part of it."""
    rng = np.random.default_rng(seed)
    sites = {f"site-{i}": rng.normal(size=(int(rng.integers(2, 60)), 2)) + offset for i in range(m)}
    start = rng.normal(size=(k, 2)) + offset
    params = {"start": start.tolist(), "rounds": 4, "tol": 0.0}
    secure = run_inprocess(get("lloyd"), params, sites, JobOptions(k=k, seed=seed, secure_sums=True))
    X, expected = np.concatenate([sites[site] for site in sorted(sites)]), start
    for found in secure.arrays["history"]:
        distances = ((X[:, None] - expected) ** 2).sum(axis=2)
        enough = np.bincount(distances.argmin(axis=1), minlength=k) >= LEAST_ROWS
        labels = np.where(enough, distances, np.inf).argmin(axis=1)
        expected = np.array([X[labels == r].mean(axis=0) if enough[r] else expected[r] for r in range(k)])
        np.testing.assert_allclose(found, expected, rtol=0, atol=16 * np.spacing(1.0 + offset))
    assert not secure.refused


def test_plain_rounds_give_the_same_only_while_no_site_withholds_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 40, 2))
    sites = {f"site-{i}": own + [[10.0 * (j % 2), 0.0] for j in range(40)] for i, own in enumerate(rows)}
    start = [[0.0, 0.0], [10.0, 0.0]]

    def centroids(tables: Mapping[str, FloatArray], secure: bool) -> FloatArray:
        options = JobOptions(k=2, seed=0, secure_sums=secure)
        return run_inprocess(get("lloyd"), {"start": start, "rounds": 1}, tables, options).centroids

    np.testing.assert_allclose(centroids(sites, True), centroids(sites, False), rtol=0, atol=16 * np.spacing(10.0))
    alone = {**sites, "site-3": np.concatenate([sites["site-0"][::2], [[14.0, 3.0]]])}
    pooled = np.concatenate(list(alone.values()))
    right = pooled[:, 0] > 5
    np.testing.assert_allclose(centroids(alone, True)[1], pooled[right].mean(axis=0), atol=16 * np.spacing(10.0))
    np.testing.assert_allclose(centroids(alone, False)[1], pooled[right][:-1].mean(axis=0), atol=16 * np.spacing(10.0))


def test_rows_of_a_cluster_with_too_few_in_all_go_to_the_nearest_that_has_enough() -> None:
    """So that all rows are in the totals, and no difference is about the few."""
    near = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]])
    alone = np.array([[50.0, 50.0]])
    sites = {"a": near, "b": near + 10, "c": np.concatenate([near + 0.3, alone])}
    start = [[0.0, 0.0], [10.0, 10.0], [50.0, 49.0]]
    found = run_inprocess(get("lloyd"), {"start": start, "rounds": 1}, sites, JobOptions(k=3, seed=0, secure_sums=True))
    np.testing.assert_array_equal(found.centroids[2], start[2])
    np.testing.assert_allclose(found.centroids[1], np.concatenate([near + 10, alone]).mean(axis=0))
    np.testing.assert_allclose(found.centroids[0], np.concatenate([near, near + 0.3]).mean(axis=0))


@pytest.mark.parametrize(("rows", "policy"), [(2, None), (12, Policy(min_count=10))], ids=["no policy", "policy"])
def test_where_no_cluster_has_enough_rows_in_all_centroids_stay(rows: int, policy: Policy | None) -> None:
    sites = {f"site-{i}": np.random.default_rng(i).uniform(size=(rows, 2)) for i in range(3)}
    start = np.concatenate(list(sites.values()))
    options = JobOptions(k=len(start), seed=0, secure_sums=True)
    found = run_inprocess(get("lloyd"), {"start": start.tolist()}, sites, options, policy=policy)
    np.testing.assert_array_equal(found.centroids, start)


def test_refining_ends_where_no_cluster_has_enough_rows_in_all() -> None:
    sites = {f"site-{i}": np.random.default_rng(i).uniform(size=(12, 2)) for i in range(3)}
    options = JobOptions(k=8, seed=0, secure_sums=True)
    found = run_inprocess(get("portfolio"), {"polish": 1}, sites, options, policy=Policy(min_count=10))
    assert np.isfinite(found.centroids).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.sampled_from(["lloyd", "portfolio"]))
def test_totals_are_of_all_rows_in_groups_that_are_large_enough(seed: int, min_count: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    sites = {f"site-{i}": rng.standard_t(1.5, size=(int(rng.integers(8, 30)), 2)) for i in range(4)}
    executor, aggregator = get(name).build(6, seed, {"min_count": min_count, "split_merge": 2})
    reported: list[Message] = []
    advance = ServerJob.advance

    def listening(job: ServerJob, round_: Round, replies: Mapping[str, Message]) -> Round:
        if round_.step in (SPREAD, UPDATE):
            starts = np.flatnonzero(np.diff(round_.task.get("candidate", np.zeros(1)), prepend=-1))
            (total,) = replies.values()
            for first, end in zip(starts, [*starts[1:], 10**6], strict=True):
                own = (total["cluster"] >= first) & (total["cluster"] < end)
                reported.append({name: total[name][own] for name in ("counts", "centroids")})
        return advance(job, round_, replies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerJob, "advance", listening)
        run_federation(
            aggregator, asker(sites, dict.fromkeys(sites, executor)), list(sites), FederationOptions(secure_sums=True)
        )
    rows = np.concatenate(list(sites.values()))
    assert reported
    for total in reported:
        assert (total["counts"] >= max(min_count, 3)).all()
        assert total["counts"].sum() == len(rows)
        np.testing.assert_allclose(total["counts"] @ total["centroids"], rows.sum(axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-imputed"])
def test_standardisation_from_totals_is_the_plain_one(name: str) -> None:
    tables, _ = overlapping_sites()
    params = {} if name == "fkm-imputed" else {"scale": "standard"}
    plain = run_inprocess(get(name), params, tables, PLAIN)
    secure = run_inprocess(get(name), params, tables, OPTIONS)
    for array in ("mean", "deviation"):
        np.testing.assert_allclose(secure.arrays[array], plain.arrays[array], rtol=1e-14)
    np.testing.assert_array_equal(secure.arrays["column_masks"], plain.arrays["column_masks"])
    np.testing.assert_allclose(secure.centroids, plain.centroids, rtol=1e-9, atol=1e-12)
    assert [record["step"] for record in secure.rounds[:3]] == [StepName.KEYS, StepName.DESCRIBE, StepName.MOMENTS]
    assert secure.n_rounds == plain.n_rounds


def test_with_secure_sums_a_description_tells_no_sums() -> None:
    tables, _ = overlapping_sites()
    site, own = next(iter(tables.items()))
    executor = get("masked").build(4, 0, {"scale": "standard"})[0]
    assert len(executor.answer(Task(StepName.DESCRIBE, 0, {}, site), own, never_abort).arrays["mean"])
    executor.answer(Task(StepName.KEYS, 0, {}, site), own, never_abort)
    reported = executor.answer(Task(StepName.DESCRIBE, 0, {}, site), own, never_abort).arrays
    assert len(reported["mean"]) == len(reported["m2"]) == 0


def test_the_portfolio_scores_and_polishes_with_totals() -> None:
    sites, _ = iid_sites()
    plain = run_inprocess(get("portfolio"), {"polish": 2}, sites, PLAIN)
    secure = run_inprocess(get("portfolio"), {"polish": 2}, sites, OPTIONS)
    np.testing.assert_allclose(secure.centroids, plain.centroids, rtol=1e-14)
    np.testing.assert_allclose(secure.arrays["candidate_inertia"], plain.arrays["candidate_inertia"], rtol=1e-14)
    assert ["site by site: those to cluster" in warning for warning in secure.warnings] == [True]


def test_totals_less_local_clusters_are_never_of_a_single_row() -> None:
    rows = np.concatenate([iid_sites()[0]["site-1"], [[1e3, 0.0, 0.0]]])
    executor = get("portfolio").build(8, 0, {})[0]

    def untold() -> FloatArray:
        """Return the sum of the rows in no cluster that is sent, as the server computes it from a total over all rows."""
        sent = executor.answer(Task(StepName.CLUSTER, 0, {}, "site-1"), rows, never_abort).arrays
        return np.append(rows.sum(axis=0) - sent["counts"] @ sent["centroids"], len(rows) - sent["counts"].sum())

    np.testing.assert_allclose(untold(), [1e3, 0, 0, 1], atol=1e-6)  # no totals follow: the outlier stays unknown
    executor.answer(Task(StepName.KEYS, 0, {}, "site-1"), rows, never_abort)
    assert untold()[-1] == 0  # it has joined others


def test_a_site_whose_clusters_would_leave_one_row_alone_sends_one_cluster() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.3], [50.0, 50.0], [50.0, 50.0]])
    executor = get("portfolio").build(2, 0, {})[0]
    executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort)
    sent = executor.answer(Task(StepName.CLUSTER, 0, {}, "a"), rows, never_abort).arrays
    np.testing.assert_allclose(sent["centroids"], rows.mean(axis=0)[None])


# The start


@pytest.mark.parametrize("name", ["s3", "s4"])
def test_the_start_from_totals_ends_near_the_optimum(shared_data: object, name: str) -> None:
    result = flareclust.run("lloyd", data=name, n_sites=10, secure_sums=True)
    optimum = {"s3": 1.68893e13, "s4": 1.57031e13}[name]
    assert result.metrics["inertia"] == pytest.approx(optimum, rel=2e-3)
