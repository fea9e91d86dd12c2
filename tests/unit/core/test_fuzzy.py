"""Fuzzy c-means against a slow literal twin, by hand, and against its invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Aborted, UserError
from flareclust.core import fuzzy
from flareclust.core.fuzzy import fuzzy_cmeans, memberships
from flareclust.core.lloyd import lloyd
from tests.examples import examples
from tests.unit.core.fuzzy_cases import problem, twin


def objective(X, centroids, m):
    squared = ((X[:, None] - centroids[None]) ** 2).sum(axis=2)
    return float((memberships(X, centroids, m) ** m * squared).sum())


# ---- the iteration ----


def test_one_iteration_by_hand():
    # Rows -3, 0, 3 from -1 and 1: u of -3 is (1 + 4/16)^-1 = .8 and .2, of 0 it is .5 and .5.
    # The first mean is (.64 * -3 + .25 * 0 + .04 * 3) / .93 = -1.8 / .93.
    found = fuzzy_cmeans([[-3.0], [0.0], [3.0]], [[-1.0], [1.0]], max_iter=1)
    np.testing.assert_allclose(found.centroids, [[-1.8 / 0.93], [1.8 / 0.93]], rtol=1e-14)
    np.testing.assert_allclose(found.memberships, [[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]], rtol=1e-14)
    np.testing.assert_allclose(found.sum_u, [1.5, 1.5], rtol=1e-14)
    np.testing.assert_allclose(found.sum_um, [0.93, 0.93], rtol=1e-14)
    assert found.n_iter == 1


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(12, 20),
    d=st.integers(1, 3),
    k=st.integers(1, 4),
    m=st.sampled_from([1.5, 2.0, 3.0]),
    max_iter=st.integers(1, 6),
    tol=st.sampled_from([0.0, 1e-3, 0.1]),
)
def test_it_is_the_literal_algorithm(seed, n, d, k, m, max_iter, tol):
    X, start = problem(seed, n, d, k)
    centroids, u, n_iter = twin(X, start, m, max_iter, tol)

    found = fuzzy_cmeans(X, start, m, max_iter=max_iter, tol=tol)

    assert found.n_iter == n_iter
    np.testing.assert_allclose(found.centroids, centroids, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.memberships, u, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.sum_u, u.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.sum_um, (u**m).sum(axis=0), rtol=1e-8)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), m=st.sampled_from([1.2, 2.0, 4.0]))
def test_no_iteration_makes_the_objective_larger(seed, m):
    X, centroids = problem(seed, n=60, k=4)
    for _ in range(5):
        moved = fuzzy_cmeans(X, centroids, m, max_iter=1).centroids
        assert objective(X, moved, m) <= objective(X, centroids, m) * (1 + 1e-12)
        centroids = moved


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), m=st.sampled_from([1.3, 2.0]))
def test_centroids_move_with_the_rows_and_do_not_depend_on_their_order(seed, m):
    X, start = problem(seed)
    found = fuzzy_cmeans(X, start, m, max_iter=5, tol=0).centroids
    shift = np.array([2.0**20, -(2.0**20)])
    there = fuzzy_cmeans(X + shift, start + shift, m, max_iter=5, tol=0).centroids
    np.testing.assert_allclose(there - shift, found, atol=1e-6)
    order = np.random.default_rng(seed).permutation(len(X))
    np.testing.assert_allclose(fuzzy_cmeans(X[order], start, m, max_iter=5, tol=0).centroids, found, atol=1e-9)


def test_it_stops_when_memberships_settle():
    X, start = problem(0, n=200)
    found = fuzzy_cmeans(X, start, max_iter=500, tol=1e-6)
    assert 1 < found.n_iter < 500
    again = fuzzy_cmeans(X, found.centroids, max_iter=1)
    assert np.abs(again.memberships - found.memberships).max() <= 1e-5
    assert fuzzy_cmeans(X, start, max_iter=500, tol=0.05).n_iter < found.n_iter


def test_near_a_fuzzifier_of_one_it_is_k_means():
    X, _ = problem(1, n=200)
    hard = lloyd(X, X[:3], max_iter=5, tol=0)
    soft = fuzzy_cmeans(X, X[:3], 1 + 1e-6, max_iter=5, tol=0)
    np.testing.assert_allclose(soft.centroids, hard.centroids, atol=1e-3)


def test_a_centroid_without_weight_stays_where_it_was():
    # Both rows coincide with centroids, so the third has no part in them.
    found = fuzzy_cmeans([[0.0], [1.0]], [[0.0], [1.0], [7.0]], max_iter=3)
    np.testing.assert_array_equal(found.centroids, [[0.0], [1.0], [7.0]])
    np.testing.assert_array_equal(found.sum_um, [1, 1, 0])
    # Far away with a small fuzzifier: (1 / 1000)^200 is no number.
    far = fuzzy_cmeans([[0.0], [1.0], [2.0]], [[0.9], [1000.0]], 1.01, max_iter=1)
    assert far.centroids[1, 0] == 1000
    assert far.sum_um[1] == 0


def test_calls_of_any_size_give_the_same_bits(monkeypatch):
    X, start = problem(2, n=700)
    monkeypatch.setattr(fuzzy, "_BLOCK", 1)
    whole = fuzzy_cmeans(X, start, 1.7)
    monkeypatch.setattr(fuzzy, "_WORK_PER_CALL", 1)
    for one, other in zip(whole, fuzzy_cmeans(X, start, 1.7), strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_can_be_stopped_between_calls(monkeypatch):
    X, start = problem(3, n=10 * fuzzy._TILE)
    monkeypatch.setattr(fuzzy, "_BLOCK", 1)
    monkeypatch.setattr(fuzzy, "_WORK_PER_CALL", 1)
    asked = []

    def after_fifteen():
        asked.append(None)
        return len(asked) > 15

    with pytest.raises(Aborted, match="iteration 2"):
        fuzzy_cmeans(X, start, aborted=after_fifteen)
    assert len(asked) == 16


def test_arguments_are_left_alone_and_may_have_any_form():
    X, start = problem(4)
    X.flags.writeable = start.flags.writeable = False
    kept = start.copy()
    expected = fuzzy_cmeans(X, start, 2, tol=0).centroids
    for form in (X.tolist(), np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.astype(X.dtype.newbyteorder())):
        np.testing.assert_array_equal(fuzzy_cmeans(form, start, np.float32(2), tol=0).centroids, expected)
    np.testing.assert_array_equal(start, kept)
    fuzzy.warm_up()
    memberships(X, start)
    assert len(fuzzy._nearness.signatures) == len(fuzzy._exchange.signatures) == 1


# ---- bad input ----


@pytest.mark.parametrize("fuzzifier", [1, 1.0, 0.5, 0, -2, np.nan, np.inf, True, "2", None, [2]])
def test_a_fuzzifier_is_a_finite_number_above_one(fuzzifier):
    for call in (memberships, fuzzy_cmeans):
        with pytest.raises(UserError, match="fuzzifier must be a finite number greater than 1, got"):
            call([[0.0], [1.0]], [[0.0]], fuzzifier)


@pytest.mark.parametrize(
    ("X", "start", "more", "message"),
    [
        (np.empty((0, 2)), [[0.0, 0.0]], {}, "at least one row"),
        ([[0.0, np.nan]], [[0.0, 0.0]], {}, "must be finite"),
        ([0.0, 1.0], [[0.0]], {}, "two axes"),
        ([[0.0], [1.0]], [[0.0, 1.0]], {}, "centroids have 2 features but X has 1"),
        ([[0.0], [1.0]], np.empty((0, 1)), {}, "centroids must have at least one row"),
        ([[0.0], [1.0]], [[0.0]], {"max_iter": 0}, "max_iter must be at least 1"),
        ([[0.0], [1.0]], [[0.0]], {"tol": -1.0}, "tol must be a finite number of at least 0"),
    ],
)
def test_bad_input_is_named(X, start, more, message):
    with pytest.raises(UserError, match=message):
        fuzzy_cmeans(X, start, **more)


@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (127, 2, 3), (129, 3, 15), (600, 16, 4), (40_000, 2, 2)])
@pytest.mark.parametrize("m", [1.5, 1.7, 2.0, 3.0])
def test_rows_in_tiles_and_blocks_are_those_of_whole_arrays(n, d, k, m):
    X, start = problem(n, n, d, k)
    X[n // 2] = start[0]  # a row without a distance beside others
    squared = ((X[:, None] - start) ** 2).sum(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = squared ** (-1 / (m - 1))
        u = np.where(np.isinf(u).any(axis=1, keepdims=True), np.isinf(u), u / u.sum(axis=1, keepdims=True))
    weights = u**m

    found = fuzzy_cmeans(X, start, m, max_iter=1)

    np.testing.assert_allclose(found.memberships, u, rtol=1e-11)
    np.testing.assert_array_equal(memberships(X, start, m), found.memberships)
    np.testing.assert_allclose(found.sum_u, u.sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(found.sum_um, weights.sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(found.centroids, (weights.T @ X) / weights.sum(axis=0)[:, None], rtol=1e-10, atol=1e-12)


def test_distances_of_very_different_size_keep_their_share_in_the_sums():
    # 1e-300 and 1 apart: (1e-300)^(2 / 6) = 1e-100, and u^m = 1e-700 is 0; the squares alone would be 0 at once.
    found = fuzzy_cmeans([[1e-300], [0.5]], [[0.0], [1.0]], 7.0, max_iter=1)
    np.testing.assert_allclose(found.memberships, [[1, 1e-100], [0.5, 0.5]], rtol=1e-12)
    np.testing.assert_allclose(found.sum_um, [1 + 0.5**7, 0.5**7], rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_the_rest_of_a_block_takes_no_part():
    # Near a fuzzifier of 1, powers of what is left of the block before would be divisions by zero.
    X, start = np.zeros((fuzzy._block(4) + 5, 2)), [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    np.testing.assert_array_equal(fuzzy_cmeans(X, start, 1.001, max_iter=1).memberships, 0.25)
    np.testing.assert_array_equal(memberships(X, start, 1.001), 0.25)


def test_nothing_is_computed_of_what_lies_behind_the_rows():
    """Which may be what no process may read: the rows can be a file's."""
    X, n = np.zeros((2 * fuzzy._TILE, 2)), fuzzy._TILE + 2
    ratios, extreme = np.full((3, len(X)), np.nan), np.zeros(len(X), bool)
    assert not fuzzy._nearness(X[:n], np.eye(3, 2) + 1, ratios, extreme)
    assert not np.isnan(ratios[:, :n]).any()
    assert np.isnan(ratios[:, n:]).all()


def test_threads_are_limited_once_and_not_in_each_iteration(monkeypatch):
    entered, limit = [], fuzzy.one_thread
    monkeypatch.setattr(fuzzy, "one_thread", lambda: entered.append(1) or limit())
    X = np.random.default_rng(0).normal(size=(50, 2))
    assert fuzzy_cmeans(X, X[:3], max_iter=5, tol=0.0).n_iter == 5
    assert len(entered) == 1
