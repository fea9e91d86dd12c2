import numpy as np
import pytest
import sklearn.cluster
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust._foundation.errors import Aborted, UserError
from flareclust.core.seeds import farthest_first, kmeans_plusplus

GRIDS = arrays(np.float64, st.tuples(st.integers(1, 25), st.integers(1, 3)), elements=st.integers(-3, 3).map(float))


class Always:
    """A source of uniform numbers that is stuck."""

    def __init__(self, value):
        self.value = value

    def random(self, size):
        return np.full(size, self.value)


def mixture(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 3 * rng.normal(size=(8, d))[rng.integers(8, size=n)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d", "k"), [(50, 2, 1), (500, 2, 15), (3000, 3, 8), (800, 16, 40), (1000, 64, 60)])
def test_seeds_are_those_of_scikit_learn(n, d, k, weighted):
    X = mixture(n, d)
    weights = np.random.default_rng(1).random(n) * 5 if weighted else None
    for seed in range(5):
        expected, rows = sklearn.cluster.kmeans_plusplus(X, k, random_state=seed, sample_weight=weights)

        centroids, indices = kmeans_plusplus(X, k, np.random.RandomState(seed), weights=weights)

        np.testing.assert_array_equal(indices, rows)
        np.testing.assert_array_equal(centroids, expected)


@pytest.mark.parametrize("shift", [0, 2**13, 2**20, 2**34])
def test_far_from_0_seeds_are_those_that_scikit_learn_chooses_near_0(shift):
    X = np.rint(20 * mixture(300, 3))  # whole numbers, so that the shift itself rounds nothing
    elsewhere = 0
    for seed in range(20):
        _, near = sklearn.cluster.kmeans_plusplus(X, 6, random_state=seed)
        _, far = sklearn.cluster.kmeans_plusplus(X + shift, 6, random_state=seed)
        elsewhere += not np.array_equal(near, far)
        np.testing.assert_array_equal(kmeans_plusplus(X + shift, 6, np.random.RandomState(seed))[1], near)
    # A square of 2**34 is rounded to multiples of 2**16, which is more than these squared distances.
    assert (elsewhere > 0) == (shift == 2**34)


@pytest.mark.parametrize("unit", [2.0**-200, 2.0**200])
def test_the_unit_of_the_columns_decides_nothing(unit):
    X = mixture(300, 3)
    for seed in range(5):
        _, expected = sklearn.cluster.kmeans_plusplus(X, 9, random_state=seed)
        np.testing.assert_array_equal(kmeans_plusplus(unit * X, 9, np.random.RandomState(seed))[1], expected)


def test_the_number_of_candidates_is_that_of_scikit_learn():
    X = mixture(400, 2)
    _, rows = sklearn.cluster.kmeans_plusplus(X, 9, random_state=3, n_local_trials=1)
    np.testing.assert_array_equal(kmeans_plusplus(X, 9, np.random.RandomState(3), n_candidates=1)[1], rows)


def test_every_seed_is_a_distinct_row_and_no_row_of_weight_0():
    X = np.arange(6.0).reshape(-1, 1)
    weights = [1, 0, 2, 1, 0, 1]
    for seed in range(20):
        _, indices = kmeans_plusplus(X, 4, np.random.default_rng(seed), weights=weights)
        assert sorted(indices) == [0, 2, 3, 5]


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_extreme_uniform_numbers_choose_rows_that_count(uniform):
    X = np.array([[9.0], [0.0], [1.0], [2.0], [9.0]])
    _, indices = kmeans_plusplus(X, 3, Always(uniform), weights=[0, 1, 1, 1, 0])
    assert sorted(indices) == [1, 2, 3]


def test_a_draw_rounded_up_to_the_total_chooses_a_row_that_counts():
    X = np.array([[0.0], [2e-162], [0.0]])  # the only positive squared distance is the smallest float
    assert kmeans_plusplus(X, 2, Always(np.nextafter(1.0, 0.0)))[1].tolist() == [2, 1]


def test_seeding_stops_when_no_distinct_row_is_left():
    X = np.array([[1.0, 1.0]] * 4 + [[2.0, 2.0]] * 3)
    for seed in range(10):
        centroids, indices = kmeans_plusplus(X, 5, np.random.default_rng(seed))
        assert len(indices) == 2
        np.testing.assert_array_equal(np.sort(centroids[:, 0]), [1.0, 2.0])


def test_a_row_of_weight_0_does_not_keep_seeding_going():
    centroids, _ = kmeans_plusplus([[0.0], [0.0], [7.0]], 2, np.random.default_rng(0), weights=[1, 1, 0])
    np.testing.assert_array_equal(centroids, [[0.0]])


@pytest.mark.parametrize("weights", [None, np.arange(700.0)])
def test_seeds_do_not_depend_on_how_many_are_chosen_at_a_time(monkeypatch, weights):
    X, found = mixture(700, 3), []
    for work in (1, 700 * 3 * 5 * 4, 10**9):
        monkeypatch.setattr("flareclust.core.seeds._WORK_PER_CALL", work)
        rng = np.random.default_rng(0)
        found.append((kmeans_plusplus(X, 20, rng, weights=weights)[1].tolist(), rng.random()))
    assert found[0] == found[1] == found[2]


def test_seeding_can_be_aborted(monkeypatch):
    monkeypatch.setattr("flareclust.core.seeds._WORK_PER_CALL", 1)  # a seed at a time
    answers = iter([False, False, True])
    with pytest.raises(Aborted, match="seed 4 of 10"):
        kmeans_plusplus(mixture(50, 2), 10, np.random.default_rng(0), aborted=lambda: next(answers))


@pytest.mark.parametrize(
    ("k", "options", "message"),
    [
        (0, {}, "k must be between 1 and"),
        (5, {}, "k must be between 1 and the number of rows, 4"),
        (2, {"n_candidates": 0}, "n_candidates must be at least 1"),
        (2, {"weights": [1, 1]}, "each of the 4 rows"),
    ],
)
def test_kmeans_plusplus_says_what_is_wrong(k, options, message):
    with pytest.raises(UserError, match=message):
        kmeans_plusplus(np.zeros((4, 1)), k, np.random.default_rng(0), **options)


def literal_farthest_first(points, k, start):
    chosen = list(start)
    while len(chosen) < k:
        closest = [min(((p - points[c]) ** 2).sum() for c in chosen) for p in points]
        if max(closest) == 0:
            break
        chosen.append(closest.index(max(closest)))
    return chosen


def test_farthest_first_by_hand():
    points = np.array([[0.0], [10.0], [4.0], [6.0], [11.0]])
    # From 0: 11 is at 11; then 4, 6, 10 are at 4, 5, 1 from {0, 11}: 6; then 4 at 2, 10 at 1.
    np.testing.assert_array_equal(farthest_first(points, 5, [0]), [0, 4, 3, 2, 1])


def test_farthest_first_gives_ties_to_the_lowest_index():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    np.testing.assert_array_equal(farthest_first(points, 3, [0]), [0, 1, 2])


@pytest.mark.parametrize("d", [1, 9])  # few columns are in tiles
def test_farthest_first_stops_when_all_points_coincide_with_chosen_ones(d):
    points = np.eye(1, d) * np.array([[1.0], [2.0], [1.0], [2.0]])
    np.testing.assert_array_equal(farthest_first(points, 4, [2]), [2, 1])
    np.testing.assert_array_equal(farthest_first(points, 4, [0, 2, 1]), [0, 2, 1])


@settings(deadline=None)
@given(GRIDS, st.data())
def test_farthest_first_equals_its_literal_form(points, data):
    n = len(points)
    k = data.draw(st.integers(1, n))
    start = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=k, unique=True))
    assert farthest_first(points, k, start).tolist() == literal_farthest_first(points, k, start)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-155, 0.0), (1e140, 0.0), (1e155, 0.0), (1.0, 1e9)])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 20])
def test_farthest_first_leaves_out_no_row_that_counts(d, scale, shift):
    rng = np.random.default_rng(d)
    points = shift + scale * (rng.integers(0, 4, (300, d)) + rng.normal(0, 0.2, (300, d)))
    with np.errstate(over="ignore"):  # from 1e154 on squares are infinite
        assert farthest_first(points, 60, [7, 3]).tolist() == literal_farthest_first(points, 60, [7, 3])


@settings(deadline=None)
@given(GRIDS, st.integers(1, 10), st.integers(0, 1000))
def test_seeds_are_distinct_rows_and_as_many_as_there_are(X, k, seed):
    assume(k <= len(X))
    centroids, indices = kmeans_plusplus(X, k, np.random.default_rng(seed))
    np.testing.assert_array_equal(centroids, X[indices])
    assert len(np.unique(centroids, axis=0)) == len(indices) == min(k, len(np.unique(X, axis=0)))


@pytest.mark.parametrize(
    ("k", "start", "message"),
    [
        (2, [], "1 to k=2 indices"),
        (2, [0, 1, 2], "1 to k=2 indices"),
        (2, [0.0], "float64"),
        (2, [4], r"different points in 0\.\.3"),
        (2, [1, 1], "different points"),
        (5, [0], "number of rows, 4"),
    ],
)
def test_farthest_first_says_what_is_wrong(k, start, message):
    with pytest.raises(UserError, match=message):
        farthest_first(np.zeros((4, 1)), k, start)
