"""A site in the rounds of Algorithm 1: alignment of its clusters, sitting out, and what it sends."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.site_clusters import _CLUSTERERS_AT_SITES
from flareclust.data.tables import Table
from flareclust.executors.masked import UPDATE, MaskedExecutor, _aligned, _compatible
from flareclust.federation.server import ServerJob
from flareclust.protocol.task import StepName, Task
from tests.examples import examples
from tests.unit.algorithms.different_columns_cases import NAN, exchange, started, window_sites

# ---- the site's side by hand ----


def test_a_centroid_with_too_few_rows_is_not_compatible():
    data = np.array([[0.0, 0.0], [1, 0], [9, 9], [10, 9], [11, 9]])
    centroids = np.array([[0.4, 0.0], [10.0, NAN], [50, 50]])
    np.testing.assert_allclose(_compatible(data, centroids, 2, "euclidean"), [[0.4, 0], [10, 9]])
    np.testing.assert_allclose(_compatible(data, centroids, 3, "euclidean"), [[10, 9]])
    assert _compatible(data, centroids, 4, "euclidean").shape == (0, 2)
    assert np.isnan(centroids[1, 1])  # what the server sent is left as it is


def test_alignment_adds_up_to_the_least_cost():
    centroids = np.array([[0.0], [4.0], [100.0]])
    # The nearest of both is 4; together they cost least as 0 and 4.
    assert _aligned(np.array([[3.0], [5.0]]), centroids, "euclidean").tolist() == [0, 1]
    assert _aligned(np.array([[5.0], [3.0]]), centroids, "euclidean").tolist() == [1, 0]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3, unique=True))
def test_alignment_keeps_the_order_in_a_single_column(numbers):
    """Sums of distances are equal where all of one side lie beyond all of the other: 5 + 2 and 1 + 6."""
    assert _aligned(np.array([[5.0], [6.0]]), np.array([[0.0], [4.0]]), "euclidean").tolist() == [0, 1]
    assume(np.diff(np.sort(numbers)).min() > 1e-3)
    beyond = np.array(numbers)[:, None] + 200
    ranks = np.argsort(np.argsort(numbers)).tolist()
    assert _aligned(beyond, np.array([[-60.0], [10.0], [60.0]]), "euclidean").tolist() == ranks


def test_what_cannot_be_compared_is_not_matched():
    centroids = np.array([[0.0, NAN], [NAN, NAN], [9.0, 1.0]])
    assert _aligned(np.array([[1.0, 1], [8, 1]]), centroids, "euclidean").tolist() == [0, 2]
    assert sorted(_aligned(np.array([[1.0, 1], [8, 1], [30, 1]]), centroids, "euclidean").tolist()) == [-1, 0, 2]


def test_a_site_without_a_cluster_that_it_may_send_sits_the_round_out():
    rows = np.array([[0.0], [10], [21]])
    reply = (
        MaskedExecutor(3)
        .answer(Task(UPDATE, 1, {"centroids": np.array([[1.0], [9], [21]])}, "b"), rows, never_abort)
        .arrays
    )
    assert (reply["centroids"].shape, reply["counts"].shape, reply["cluster"].shape) == ((0, 1), (0,), (0,))
    again = (
        MaskedExecutor(3)
        .answer(Task(UPDATE, 2, {"centroids": np.array([[4.0], [22], [90]])}, "b"), rows, never_abort)
        .arrays
    )
    assert again["counts"].tolist() == [3]
    assert again["cluster"].tolist() == [0]


def test_a_site_with_other_rows_than_any_known_entry_sits_out():
    reply = MaskedExecutor(2).answer(
        Task(UPDATE, 1, {"centroids": np.full((2, 1), NAN)}, "b"), np.array([[0.0], [1], [3]]), never_abort
    )
    assert reply.arrays["counts"].tolist() == []


def test_a_site_that_sits_out_leaves_the_round_to_the_others():
    sites, _, _ = window_sites(m=3)
    executor, aggregator, round_ = started(sites, 3)
    _, replies = exchange(executor, aggregator, round_, sites)
    d = replies["site-1"]["centroids"].shape[1]
    silent = {"centroids": np.empty((0, d)), "counts": np.empty(0, int), "cluster": np.empty(0, int)}
    beside = ServerJob(aggregator).advance(round_, replies | {"site-1": silent})
    without = ServerJob(aggregator).advance(round_, {s: replies[s] for s in ("site-0", "site-2")})
    np.testing.assert_array_equal(beside.task["centroids"], without.task["centroids"])
    nobody = ServerJob(aggregator).advance(round_, {"site-1": silent})
    np.testing.assert_array_equal(nobody.task["centroids"], round_.task["centroids"])
    np.testing.assert_array_equal(nobody.state.counts, round_.state.counts)
    assert nobody.done
    assert not beside.done


# ---- privacy ----


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("min_count", [1, 2, 5])
def test_no_row_and_no_small_cluster_is_sent_in_any_round(min_count, clusterer):
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(50, 2))
    for X in (
        np.concatenate([ordinary, 1e3 * np.eye(2)]),
        np.concatenate([ordinary, np.full((20, 2), 99.0)]),
        rng.integers(0, 6, size=(60, 2)).astype(float),
    ):
        sites = {"a": Table(X, ("p", "q")), "b": Table(rng.normal(size=(30, 2)), ("q", "r"))}
        executor, aggregator, round_ = started(sites, 6, min_count=min_count, clusterer=clusterer, rounds=9, tol=0)
        executor.answer(Task(StepName.CLUSTER, 0, {}, "a"), X, never_abort)
        for _ in range(5):
            round_, replies = exchange(executor, aggregator, round_, sites)
            sent = replies["a"]
            assert set(sent) == {"centroids", "counts", "cluster"}
            if len(sent["counts"]):
                assert np.abs(sent["centroids"][:, None] - X[None]).max(axis=2).min() > 1e-12
                assert sent["counts"].min() >= max(2, min_count)
            assert len(np.unique(sent["cluster"])) == len(sent["cluster"])


def test_a_site_with_too_few_rows_refuses():
    for step, arrays in ((StepName.CLUSTER, {}), (UPDATE, {"centroids": np.array([[1.0], [2.0]])})):
        with pytest.raises(Refusal, match="min_count=3"):
            MaskedExecutor(4, min_count=3).answer(Task(step, 0, arrays, "a"), np.array([[1.0], [2.0]]), never_abort)
