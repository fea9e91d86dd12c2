"""What a site and the server of FKM compute in a round, by hand and against literal twins."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.fkm import FKMAggregator, _FKMState
from flareclust.data.tables import Table
from flareclust.executors.fkm import FKMExecutor, FKMParams, clusters
from flareclust.federation.server import ServerJob
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.task import StepName, Task
from tests.examples import examples
from tests.twins import points, squared
from tests.unit.algorithms.fkm_cases import assigned, in_order, twin_update


def line(*numbers):
    return np.array(numbers, dtype=float).reshape(-1, 1)


def sent(**sites):
    """Replies from pairs of a mean on a line and its number of rows."""
    return {
        name: {"centroids": line(*(mean for mean, _ in pairs)), "counts": np.array([rows for _, rows in pairs])}
        for name, pairs in sites.items()
    }


def merge(k, replies, round_=None, **settings_):
    return FKMAggregator(k, **settings_).merge(round_ or Round(state=_FKMState()), replies, np.random.default_rng(0))


def local_update(rows, centroids, local_iter, least, aborted=never_abort):
    """Update the clusters of rows (n, d) that have `least` of them."""
    params = FKMParams(k=len(centroids), min_count=least, local_iter=local_iter)
    return clusters(
        params, task(centroids), SiteRows(Table(rows), np.random.default_rng(0), aborted, SiteContext(least))
    )


def task(centroids):
    return Task(StepName.CLUSTER, 1, {"centroids": centroids}, "site-1")


def some_rows(seed, n, d, spread=4.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + spread * rng.normal(size=(3, d))[rng.integers(3, size=n)]


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 30),
    d=st.integers(1, 4),
    k=st.integers(1, 9),
    p=st.integers(1, 4),
    local_iter=st.integers(1, 4),
)
def test_a_site_updates_by_algorithm_1(seed, n, d, k, p, local_iter):
    X = some_rows(seed, n, d)
    C_g = some_rows(seed + 1, k, d)
    assume(n >= p)  # else the site refuses
    expected = twin_update(points(X), points(C_g), p, local_iter)

    found = local_update(X, C_g, local_iter, p)

    np.testing.assert_array_equal(found.counts, [s for _, s in expected])
    means = np.reshape([c for c, _ in expected], (-1, d))  # none, where nothing may be sent
    np.testing.assert_allclose(found.centroids, means, rtol=1e-9, atol=1e-9)


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 10**6), c=st.integers(1, 30), d=st.integers(1, 3), k=st.integers(1, 8))
def test_the_server_ends_where_weighted_kmeans_does(seed, c, d, k):
    rng = np.random.default_rng(seed)
    C_l, S_l = rng.normal(size=(c, d)), rng.integers(1, 50, size=c)

    merged = merge(k, {"a": {"centroids": C_l[:7], "counts": S_l[:7]}, "b": {"centroids": C_l[7:], "counts": S_l[7:]}})

    C_g = merged.task["centroids"]
    assert len(C_g) == min(k, c)
    own = assigned(points(C_l), points(C_g))
    F_km = 0.0
    for i in range(len(C_g)):
        members = [j for j in range(c) if own[j] == i]
        np.testing.assert_allclose(C_g[i], sum(S_l[j] * C_l[j] for j in members) / sum(S_l[j] for j in members))
        assert merged.state.counts[i] == sum(S_l[j] for j in members)
        F_km += sum(S_l[j] * squared(C_l[j], C_g[i]) for j in members)
    assert merged.diagnostics["objective"] == pytest.approx(F_km, rel=1e-9, abs=1e-9)


# ---- by hand ----


def test_a_site_updates_the_clusters_that_it_has():
    # 0, 2 go to 1 and 11, 14 to 10. 500 has no rows, and 40 has one, which is not sent.
    reply = FKMExecutor(4).answer(task(line(1, 500, 10, 41)), line(0, 2, 11, 14, 40), never_abort).arrays
    np.testing.assert_array_equal(reply["centroids"], line(1, 12.5))
    np.testing.assert_array_equal(reply["counts"], [2, 2])


def test_more_local_iterations_by_hand():
    # {0, 1, 4, 6} and {9}, means 2.75 and 9. Now 6 is 3.25 and 3 away: {0, 1, 4} and {6, 9}.
    rows, start = line(0, 1, 4, 6, 9), line(4, 9)
    once, twice = (local_update(rows, start, iterations, 2) for iterations in (1, 2))
    np.testing.assert_array_equal(once.centroids, line(2.75))
    np.testing.assert_array_equal(once.counts, [4])
    np.testing.assert_allclose(twice.centroids, line(5 / 3, 7.5), rtol=1e-15)
    np.testing.assert_array_equal(twice.counts, [3, 2])


def test_a_cluster_that_loses_its_rows_on_the_way_is_dropped():
    # {3.7, 3.9}, {4, 6}, {6.1, 6.4}, means 3.8, 5, 6.25. Then 4 and 6 both leave the second.
    rows, start = line(3.7, 3.9, 4, 6, 6.1, 6.4), line(2.9, 5, 7.1)
    for iterations in (2, 3, 300):
        found = local_update(rows, start, iterations, 2)
        np.testing.assert_allclose(found.centroids, line(11.6 / 3, 18.5 / 3), rtol=1e-15)
        np.testing.assert_array_equal(found.counts, [3, 3])


def test_the_server_weighs_means_by_their_rows():
    # {1, 3} with 10 and 30 rows; {11, 12} with 2 and 2; 54 alone.
    replies = sent(a=[(1, 10), (11, 2)], b=[(12, 2), (54, 3), (3, 30)])
    merged = merge(3, replies)
    order = np.argsort(merged.task["centroids"][:, 0])
    np.testing.assert_allclose(merged.task["centroids"][order], line(2.5, 11.5, 54), rtol=1e-15)
    np.testing.assert_array_equal(merged.state.counts[order], [40, 4, 3])
    np.testing.assert_array_equal(merged.state.received_site, [0, 0, 1, 1, 1])
    # 10 * 1.5² + 30 * 0.5² + 2 * 0.5² + 2 * 0.5²
    assert merged.diagnostics == {"received": 5.0, "centroids": 3.0, "objective": pytest.approx(31.0)}
    assert not merged.done


def test_a_start_of_distributed_kmeans_plusplus_counts_seeds_once_and_only_at_the_start():
    replies = sent(a=[(0, 30)], b=[(4, 10)])
    assert merge(1, replies, start="weighted").task["centroids"] == 1.0
    first = merge(1, replies, start="kmeans")
    assert first.task["centroids"] == 2.0
    assert first.diagnostics["objective"] == 30 * 4 + 10 * 4
    later = replace(first, index=1)
    assert merge(1, replies, later, start="kmeans").task["centroids"] == 1.0


def test_each_round_is_seeded_anew():
    replies = sent(a=[(i**1.5, 2 + i % 3) for i in range(40)])
    merged = [
        merge(5, replies, Round({"centroids": old}, state=_FKMState(), index=3), n_init=1)
        for old in (line(0, 0.1, 0.2, 0.3, 0.4), line(9, 50, 90, 120, 200))
    ]
    np.testing.assert_array_equal(merged[0].task["centroids"], merged[1].task["centroids"])


def test_fewer_different_means_than_k_give_fewer_centroids():
    merged = merge(5, sent(a=[(1, 2), (7, 3)], b=[(7, 4)]))
    np.testing.assert_array_equal(in_order(merged.task["centroids"]), line(1, 7))
    assert np.isnan(merged.state.history[0]).sum() == 3


def test_the_shift_is_that_of_matched_centroids_and_is_left_out_where_their_number_changes():
    replies = sent(a=[(0, 4), (10, 4)])
    # 1 moves to 0 and 10 stays; the spread of 0 and 10 is 5.
    moved = merge(2, replies, Round({"centroids": line(10, 1)}, state=_FKMState(), index=1))
    assert moved.diagnostics["shift"] == pytest.approx(0.2)
    assert not moved.done
    assert merge(2, replies, Round({"centroids": line(10, 1)}, state=_FKMState(), index=1), tol=0.21).done
    other = merge(2, replies, Round({"centroids": line(10)}, state=_FKMState(), index=1), tol=1e9)
    assert "shift" not in other.diagnostics
    assert not other.done


# ---- small sites ----


def test_a_site_without_a_cluster_that_it_may_send_sits_the_round_out():
    rows, centroids = line(0, 10, 20), line(1, 9, 21, 40)
    reply = FKMExecutor(4).answer(task(centroids), rows, never_abort).arrays
    assert (reply["centroids"].shape, reply["counts"].shape) == ((0, 1), (0,))

    alone = sent(a=[(5, 4), (9, 2)])
    beside = alone | {"b": {name: reply[name] for name in ("centroids", "counts")}}
    old = Round({"centroids": line(5, 9)}, state=_FKMState(), index=1)
    for name, value in merge(2, alone, old).state.arrays().items():
        np.testing.assert_array_equal(merge(2, beside, old).state.arrays()[name], value)
    with pytest.raises(JobFailed, match="set a lower min_count, or ask for fewer clusters"):
        merge(2, {"b": beside["b"]})


def test_the_last_centroids_are_the_result_where_all_sites_sit_out_a_later_round():
    first = merge(2, sent(a=[(5, 4), (9, 2)]))
    silent = {"a": {"centroids": line(), "counts": np.array([], int)}}
    last = merge(2, silent, replace(first, index=1), tol=0)
    assert last.done
    assert last.diagnostics == {"received": 0.0, "centroids": 2.0}
    np.testing.assert_array_equal(last.task["centroids"], first.task["centroids"])
    np.testing.assert_array_equal(last.state.history, np.repeat(first.state.history, 2, axis=0))
    np.testing.assert_array_equal(last.state.counts, first.state.counts)


def test_a_site_that_sits_out_comes_back():
    rows = line(0, 4.5, 12, 16)
    silent = FKMExecutor(4).answer(task(line(0.1, 4, 12.1, 16.1)), rows, never_abort).arrays
    assert silent["counts"].tolist() == []
    again = FKMExecutor(4).answer(task(line(2, 13, 40, 50)), rows, never_abort).arrays
    assert again["counts"].tolist() == [2, 2]


def test_a_site_with_too_few_rows_refuses():
    for arrays in ({}, {"centroids": line(1, 2)}):
        with pytest.raises(Refusal, match="min_count=3"):
            FKMExecutor(4, min_count=3).answer(Task(StepName.CLUSTER, 0, arrays, "a"), line(1, 2), never_abort)


# ---- privacy ----


def rounds_of_one_site(rows, k, **settings_):
    """Yield what a site sends in six rounds when it is alone, so that the centroids fit it as closely as can be."""
    executor, aggregator = get("fkm").build(k, 0, {"tol": 0, **settings_})
    round_ = ServerJob(aggregator).first()
    for number in range(6):
        arrays = dict(executor.answer(Task(StepName.CLUSTER, number, round_.task, "site-1"), rows, never_abort).arrays)
        arrays.pop("seconds")
        yield arrays
        round_ = ServerJob(aggregator).advance(round_, {"site-1": arrays})


@pytest.mark.parametrize("local_iter", [1, 2, 30])
@pytest.mark.parametrize("min_count", [1, 2, 4])
def test_no_row_is_sent_in_any_round(min_count, local_iter):
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(50, 2))
    for rows in (
        np.concatenate([ordinary, 1e3 * np.eye(2)]),
        np.concatenate([ordinary, np.full((20, 2), 99.0)]),
        rng.integers(0, 6, size=(60, 2)).astype(float),
    ):
        for sent_ in rounds_of_one_site(rows, 8, min_count=min_count, local_iter=local_iter):
            assert np.abs(sent_["centroids"][:, None] - rows[None]).max(axis=2).min() > 1e-12
            assert sent_["counts"].min() >= max(2, min_count)
