"""What a site and the server of FFCM compute in a round, by hand and against a literal twin."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.ffcm import FFCMAggregator, FFCMState, _average, _draw_start
from flareclust.core import clusterers
from flareclust.core.fuzzy import FuzzyClustering
from flareclust.executors.ffcm import FUZZY, FFCMExecutor, _describable_centroids, _start_cells
from flareclust.federation.server import ServerJob
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import BadMessage
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import exchanges
from tests.computed import computed
from tests.examples import examples
from tests.unit.algorithms.ffcm_cases import FFCM, twin_describable
from tests.unit.core.fuzzy_cases import twin


def line(*numbers):
    return np.array(numbers, dtype=float).reshape(-1, 1)


def fuzzy_task(centroids, round_=1):
    return Task(FUZZY, round_, {"centroids": np.asarray(centroids, dtype=float)}, "site-1")


# ---- the site ----


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(8, 20),
    d=st.integers(1, 3),
    k=st.integers(1, 4),
    m=st.sampled_from([1.3, 2.0, 3.0]),
    min_count=st.integers(1, 4),
    support=st.sampled_from(["um", "u"]),
)
def test_a_site_answers_as_the_literal_algorithm(seed, n, d, k, m, min_count, support):
    rng = np.random.default_rng(seed)
    X, start = rng.normal(size=(n, d)), rng.normal(size=(k, d))
    X[rng.random(n) < 0.3] = X[0]  # some rows are repeated
    executor = FFCMExecutor(k, min_count=min_count, fuzzifier=m, max_iter=4, support=support)
    centroids, u, _ = twin(X, start, m, 4, 1e-3)
    sent = np.flatnonzero(twin_describable(X, u, centroids, m, min_count))

    if not len(sent):
        with pytest.raises(Refusal, match="nothing it may send"):
            computed(executor, fuzzy_task(start), X, rng, never_abort)
        return
    reply = computed(executor, fuzzy_task(start), X, rng, never_abort)

    np.testing.assert_array_equal(reply["cluster"], sent)
    np.testing.assert_allclose(reply["centroids"], centroids[sent], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(reply["support"], (u if support == "u" else u**m).sum(axis=0)[sent], rtol=1e-8)


def fuzzy_result(X, u, m=2.0):
    weights = u**m
    centroids = weights.T @ X / weights.sum(axis=0)[:, None]
    return FuzzyClustering(centroids, u, u.sum(axis=0), weights.sum(axis=0), 1)


@pytest.mark.parametrize(
    ("rows", "first", "min_count", "allowed"),
    [
        ((0, 2, 9), (0.9, 0.9, 0.1), 2, True),
        ((0, 2, 9), (0.9, 0.9, 0.1), 3, False),  # a cell of two rows
        ((0, 2, 9), (0.9, 0.1, 0.1), 1, False),  # of one
        ((2, 2, 9), (0.9, 0.9, 0.1), 2, False),  # of one row twice
        ((0, 2, 9), (0.9, 0.6, 0.1), 2, False),  # .81 against .36 + .01: one row has two thirds of the weight
        ((0, 2, 9, 9, 9, 9), (0.9, 0.6, 0.4, 0.4, 0.4, 0.4), 2, True),  # .81 against .36 + .64
        ((0, 2, 9, 9, 9, 9), (0.9, 0.6, 0.4, 0.4, 0.4, 0.4), 3, False),
        ((0, 0, 0, 2, 9), (0.9, 0.9, 0.9, 0.6, 0.1), 2, False),  # a repeated row outweighs those that differ from it
        ((0, 0, 0, 2, 9), (0.9, 0.9, 0.9, 0.9, 0.1), 2, True),
        ((0, 2, 1), (0.8, 0.8, 0.0), 2, False),  # their mean is a row, of another cell
    ],
)
def test_a_fuzzy_centroid_is_never_as_good_as_one_row(rows, first, min_count, allowed):
    u = np.column_stack([first, 1 - np.array(first)])
    found = _describable_centroids(line(*rows), fuzzy_result(line(*rows), u), 2.0, min_count)
    assert found[0] == allowed


def test_nothing_sent_in_any_round_is_a_row():
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(50, 2))
    odd = {
        "alone": np.concatenate([ordinary, 1e3 * np.eye(2)]),
        "repeated": np.concatenate([ordinary, np.full((20, 2), 99.0)]),
        "whole": np.repeat(np.arange(9.0)[:, None], 2, axis=1) + np.repeat([0.0, 90.0, 900.0], 3)[:, None],
        "few": ordinary[:5],
    }
    sent = 0
    for rows, min_count, m, version in product(odd.values(), (1, 2), (1.05, 2.0), ("v1", "v2")):
        params = {"min_count": min_count, "fuzzifier": m, "version": version, "rounds": 3, "max_iter": 3}
        for _, arrays_ in exchanges(FFCM, {"site-1": rows}, 4, **params):
            spread = np.ptp(rows, axis=0).max()
            gap = np.abs(arrays_["centroids"][:, None] - rows[None]).max(axis=2).min()
            assert gap > 1e-9 * spread
            sent += 1
    assert sent > 50


@pytest.mark.parametrize("start", ["random", "k-means++"])
def test_what_starts_is_means_of_cells_with_their_rows(start):
    X = np.random.default_rng(0).normal(size=(60, 2))
    cells = _start_cells(X, 5, start, 2, np.random.default_rng(3), never_abort)
    for c, (mean, count) in enumerate(zip(cells.centroids, cells.counts, strict=True)):
        np.testing.assert_allclose(mean, X[cells.labels == c].mean(axis=0), rtol=1e-12)
        assert count == (cells.labels == c).sum() >= 2
    if start == "random":
        seeds = X[np.random.default_rng(3).choice(60, 5, replace=False)]
        nearest = ((X[:, None] - seeds[None]) ** 2).sum(axis=2).argmin(axis=1)
        means = [X[nearest == c].mean(axis=0) for c in range(5) if (nearest == c).sum() >= 2]
        np.testing.assert_allclose(cells.centroids, means, rtol=1e-12)


def test_a_small_site_draws_fewer_rows():
    X = np.random.default_rng(0).normal(size=(7, 2))
    for seed in range(20):
        assert len(_start_cells(X, 5, "random", 3, np.random.default_rng(seed), never_abort).counts) <= 2


def test_a_site_with_nothing_to_send_says_so():
    executor = FFCMExecutor(2, min_count=3)
    rng = np.random.default_rng(0)
    for task in (Task(StepName.CLUSTER, 0, {}, "a"), fuzzy_task([[0.0], [1.0]])):
        with pytest.raises(Refusal, match="fewer rows than min_count=3"):
            executor.answer(task, line(0, 1), never_abort)
        with pytest.raises(Refusal, match="nothing it may send"):
            computed(executor, task, line(5, 5, 5, 5), rng, never_abort)
        with pytest.raises(Aborted):
            computed(executor, task, line(0, 1, 2, 3, 9), rng, lambda: True)
    with pytest.raises(Refusal, match="rows of 1 columns where the federation has 2"):
        executor.answer(fuzzy_task([[0.0, 1.0]]), line(0, 1, 2, 3, 9), never_abort)
    with pytest.raises(BadMessage, match="does not have"):
        executor.answer(Task("fuzzi", 0, {}, "a"), line(0, 1, 2, 3, 9), never_abort)


# ---- the server ----


def test_v1_by_hand():
    # Cluster 0: (3 * 1 + 1 * 5) / 4; cluster 1 came from nobody; cluster 2 from one site.
    before = line(0, 10, 20)
    after = _average(before, line(1, 22, 5), np.array([3.0, 2.0, 1.0]), np.array([0, 2, 0]))
    np.testing.assert_allclose(after, line(2, 10, 22), rtol=1e-15)
    np.testing.assert_array_equal(before, line(0, 10, 20))


def test_v2_by_hand():
    # Three groups of what came back, wherever it came from; weights move a group's mean.
    centers, weights = line(0, 10, 1, 30, 11, 31), np.array([3.0, 1, 1, 1, 1, 1])
    for seed in range(5):
        plain, labels = clusterers.weighted_kmeans(centers, np.ones(6), 3, 10, np.random.default_rng(seed))
        np.testing.assert_allclose(np.sort(plain, axis=0), line(0.5, 10.5, 30.5))
        np.testing.assert_allclose(plain[labels], line(0.5, 10.5, 0.5, 30.5, 10.5, 30.5))
        weighted, _ = clusterers.weighted_kmeans(centers, weights, 3, 10, np.random.default_rng(seed))
        np.testing.assert_allclose(np.sort(weighted, axis=0), line(0.25, 10.5, 30.5))
    few, _ = clusterers.weighted_kmeans(line(1, 1, 2), np.ones(3), 3, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(few, axis=0), line(1, 2))


def test_the_start_is_drawn_in_proportion_to_rows():
    centers, rows = line(0, 1, 2, 1), np.array([10, 5, 70, 15])  # 1 came from two sites: 20 rows
    rng = np.random.default_rng(0)
    drawn = [float(_draw_start(centers, rows, 1, "random", rng)[0, 0]) for _ in range(2000)]
    shares = [np.mean(np.array(drawn) == value) for value in (0, 1, 2)]
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.7], atol=0.04)
    for start in ("random", "k-means++"):
        assert all(len(np.unique(_draw_start(centers, rows, 2, start, rng))) == 2 for _ in range(50))
        np.testing.assert_array_equal(_draw_start(centers, rows, 5, start, rng), line(0, 1, 2))


def test_k_means_plusplus_takes_one_cell_of_each_cluster():
    # Two sites each with cells in three clusters; an independent draw would often take one cluster twice.
    centers, rows = line(0, 100, 200, 0.1, 100.1, 200.1), np.full(6, 10)
    for seed in range(30):
        start = _draw_start(centers, rows, 3, "k-means++", np.random.default_rng(seed))
        np.testing.assert_array_equal(np.sort(np.round(start, -1), axis=0), line(0, 100, 200))


def reply(centroids, support, cluster):
    return {
        "centroids": line(*centroids),
        "support": np.array(support, dtype=float),
        "cluster": np.array(cluster, dtype=np.int64),
    }


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_round_by_hand(version):
    # v1: (1 * 1 + 3 * 3) / 4 and (9 * 1 + 11 * 1) / 2. v2: groups 1, 3 and 9, 11.
    expected = {"v1": line(2.5, 10), "v2": line(2, 10)}[version]
    replies = {"a": reply((1, 9), (1, 1), (0, 1)), "b": reply((11, 3), (1, 3), (1, 0))}
    aggregator = FFCMAggregator(2, version=version, rounds=2)
    sent = Round({"centroids": line(0, 8)}, state=FFCMState(), step=FUZZY, index=1)
    first = ServerJob(aggregator).advance(sent, replies)
    order = first.task["centroids"][:, 0].argsort()
    np.testing.assert_allclose(first.task["centroids"][order], expected)
    np.testing.assert_allclose(first.state.support[order], [4, 2])
    np.testing.assert_array_equal(first.state.received_site, [0, 0, 1, 1])
    assert (first.done, first.step, first.index) == (False, FUZZY, 2)
    assert first.diagnostics["received"] == 4
    # Matched in either order: the larger shift over the spread of the new centroids.
    shifts = np.abs(expected - line(0, 8)).max() / (np.ptp(expected) / 2)
    assert first.diagnostics["shift"] == pytest.approx(shifts)
    last = ServerJob(aggregator).advance(first, replies)
    assert last.done
    assert last.state.history.shape == (2, 2, 1)
