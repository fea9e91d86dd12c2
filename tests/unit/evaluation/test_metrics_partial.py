"""The measures for sites with different columns agree with what is worked out by hand and by plain loops."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.evaluation import metrics

nan = np.nan


def _with_gaps(rng: np.random.Generator, k: int, d: int, gaps: float) -> np.ndarray:
    return np.where(rng.random((k, d)) < gaps, nan, rng.normal(size=(k, d)))


# Optimal centroids


def test_optimal_centroids_worked_by_hand() -> None:
    first = [[1.0, 2.0, nan], [3.0, 4.0, nan], [10.0, 10.0, nan]]
    second = [[nan, 6.0, 5.0], [nan, 30.0, 7.0]]
    # Class 0: column 0 from two rows, column 1 from three, column 2 from one.
    expected = [[2.0, 4.0, 5.0], [10.0, 20.0, 7.0]]
    np.testing.assert_array_equal(expected, metrics.optimal_centroids([first, second], [[0, 0, 4], [0, 4]]))


def test_an_entry_that_no_site_with_the_class_has_is_unknown() -> None:
    found = metrics.optimal_centroids([[[1.0, nan]], [[nan, 3.0]]], [["b"], ["a"]])
    np.testing.assert_array_equal([[nan, 3.0], [1.0, nan]], found)


@settings(deadline=None)  # the first run imports scipy
@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 4))
def test_optimal_centroids_are_those_of_the_literal_formula(seed: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    classes = [rng.integers(3, size=rng.integers(1, 8)) for _ in range(m)]
    rows = [_with_gaps(rng, len(own), d, 0.4) for own in classes]
    names = sorted({int(name) for own in classes for name in own})
    expected = np.full((len(names), d), nan)
    for (r, name), j in product(enumerate(names), range(d)):
        values = [
            row[j]
            for own, labels in zip(rows, classes, strict=True)
            for row, label in zip(own, labels, strict=True)
            if label == name and not np.isnan(row[j])
        ]
        if values:
            expected[r, j] = sum(values) / len(values)
    np.testing.assert_allclose(expected, metrics.optimal_centroids(rows, classes), rtol=1e-12, atol=1e-12)


def test_with_all_columns_everywhere_optimal_centroids_are_the_class_means() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.permutation(np.arange(30) % 4)
    expected = [X[y == c].mean(axis=0) for c in range(4)]
    np.testing.assert_allclose(expected, metrics.optimal_centroids([X[:11], X[11:]], [y[:11], y[11:]]))


def test_rows_and_classes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="rows of 2, classes of 1"):
        metrics.optimal_centroids([[[1.0]], [[1.0]]], [[0]])
    with pytest.raises(UserError, match=r"classes of site 1: expected one per row, shape \(1,\), got shape \(2,\)"):
        metrics.optimal_centroids([[[1.0]]], [[0, 0]])
    with pytest.raises(UserError, match="same columns at all sites"):
        metrics.optimal_centroids([[[1.0]], [[1.0, 2.0]]], [[0], [0]])
    with pytest.raises(UserError, match="at least one row"):
        metrics.optimal_centroids([], [])
    with pytest.raises(UserError, match="rows of site 1: expected a 2-D array"):
        metrics.optimal_centroids([[1.0]], [[0]])
    with pytest.raises(UserError, match="expected an array of numbers; got list"):
        metrics.optimal_centroids([[["x"]]], [[0]])


# Matching and metric E3


@settings(deadline=None)  # the first run imports scipy
@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
def test_a_column_that_nobody_knows_leaves_the_matching_as_it_is(seed: int, k: int, k_true: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    found, true = rng.normal(size=(k, d)), rng.normal(size=(k_true, d))
    wider = [np.column_stack([points, np.full(len(points), nan)]) for points in (found, true)]
    np.testing.assert_array_equal(metrics.match_centroids(found, true), metrics.match_centroids(*wider))


@settings(deadline=None)  # the first run imports scipy
@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.3, 0.7]))
def test_the_matching_has_most_comparable_pairs_and_then_the_least_squares(
    seed: int, k: int, k_true: int, gaps: float
) -> None:
    rng = np.random.default_rng(seed)
    found, true = _with_gaps(rng, k, 3, gaps), _with_gaps(rng, k_true, 3, gaps)

    def square(i: int, j: int) -> float:
        return float(3 * np.mean([(a - b) ** 2 for a, b in zip(found[i], true[j], strict=True) if a - b == a - b]))

    def worth(pairs: list[tuple[int, int]]) -> tuple[int, float]:
        kept = [(i, j) for i, j in pairs if not np.isnan(found[i] - true[j]).all()]
        return -len(kept), sum(square(i, j) for i, j in kept)

    small, large = sorted([k, k_true])
    every = [list(zip(range(small), chosen, strict=True)) for chosen in permutations(range(large), small)]
    best = min(worth(pairs if k <= k_true else [(i, j) for j, i in pairs]) for pairs in every)
    index, true_index = metrics.match_centroids(found, true)
    assert (np.diff(index) > 0).all()
    actual = worth(list(zip(index.tolist(), true_index.tolist(), strict=True)))
    assert actual[0] == best[0] == -len(index)
    assert actual[1] == pytest.approx(best[1], abs=1e-12)


def test_relative_distance_and_cosine_worked_by_hand() -> None:
    true = np.array([[3.0, 4.0, 12.0], [0.0, 1.0, 100.0]])
    found = np.array([[0.0, 2.0, nan], [3.0, 4.0, 12.0]])
    # The first is the second true one: in columns 0 and 1 it is 1 from (0, 1), of length 1. The other is exact.
    assert metrics.relative_distance(found, true) == pytest.approx(0.5)
    assert metrics.cosine(found, true) == pytest.approx(1.0)
    found[0] = [1.0, 1.0, nan]
    assert metrics.relative_distance(found, true) == pytest.approx(0.5)
    assert metrics.cosine(found, true) == pytest.approx((1 + 1 / np.sqrt(2)) / 2)


def test_more_unknown_entries_do_not_make_a_centroid_look_nearer() -> None:
    true = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    # 0.8 away in the one column that it has, and 0.7 in each of four: the means decide, not the sums.
    found = np.array([[0.8, nan, nan, nan], [0.3, 0.3, 0.3, 0.3]])
    assert metrics.match_centroids(found, true)[1].tolist() == [1, 0]
    assert metrics.match_centroids(found[:1], true)[1].tolist() == [1]


def test_centroids_at_the_origin_have_a_distance_and_a_cosine() -> None:
    origin = np.zeros((1, 2))
    assert metrics.relative_distance(origin, origin) == 0
    assert metrics.relative_distance([[0.0, 1.0]], origin) == np.inf
    assert metrics.relative_distance(origin, [[0.0, 2.0]]) == 1
    assert metrics.cosine(origin, origin) == 1
    assert metrics.cosine(origin, [[0.0, 2.0]]) == 0


def test_pairs_without_a_common_entry_are_left_out() -> None:
    found, true = [[nan, 1.0], [2.0, nan]], [[2.0, nan], [3.0, nan]]
    assert [index.tolist() for index in metrics.match_centroids(found, true)] == [[1], [0]]
    assert metrics.relative_distance(found, true) == 0
    assert np.isnan(metrics.relative_distance([[nan, 1.0]], [[1.0, nan]]))
    assert np.isnan(metrics.cosine([[nan, 1.0]], [[1.0, nan]]))


@settings(deadline=None)  # the first run imports scipy
@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_the_unit_and_the_order_of_the_centroids_do_not_matter(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    found, true = _with_gaps(rng, 4, 5, 0.2), rng.normal(size=(4, 5))
    for measure in (metrics.relative_distance, metrics.cosine):
        assert measure(unit * found[::-1], unit * true) == pytest.approx(measure(found, true), rel=1e-9, nan_ok=True)


def test_the_cosine_of_very_long_and_very_short_centroids_is_right() -> None:
    assert metrics.cosine([[1e-150, 0.0]], [[1e150, 1e150]]) == pytest.approx(1 / np.sqrt(2))


@pytest.mark.parametrize("measure", [metrics.match_centroids, metrics.relative_distance, metrics.cosine])
def test_centroids_that_cannot_be_compared_are_refused(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(UserError, match=r"same number of columns.*\(1, 2\) and \(1, 1\)"):
        measure([[1.0, 2.0]], [[1.0]])
    with pytest.raises(UserError, match="found: expected a 2-D array with at least one row"):
        measure(np.zeros((0, 2)), np.zeros((1, 2)))
    with pytest.raises(UserError, match="true: expected finite numbers, or NaN for unknown ones; got 1 infinite"):
        measure([[1.0]], [[np.inf]])


# Metrics E1 and E4


def test_the_class_of_a_local_cluster_is_that_of_most_of_its_rows() -> None:
    labels = [0, 0, 0, 1, 1, -1, 3, 3]
    classes = [2, 2, 0, 5, 5, 1, 4, 1]
    assert metrics.majority_class(labels, classes, 4).tolist() == [2, 5, -1, 1]  # a tie goes to the lower class
    assert metrics.majority_class([], [], 2).tolist() == [-1, -1]


def test_correct_aggregation_worked_by_hand() -> None:
    assert metrics.correct_aggregation([2, 0, 2, 0], [0, 1, 0, 1]) == 1
    assert metrics.correct_aggregation([0, 0, 0, 1], [0, 0, 1, 1]) == 0.75
    assert metrics.correct_aggregation([0, -1, 1, -1], [0, 0, 1, 1]) == 0.5
    assert metrics.correct_aggregation([0, 0, 0, 0], [0, 1, 2, 3]) == 0.25
    assert metrics.correct_aggregation([-1, -1], [0, 1]) == 0


@settings(deadline=None)  # the first run imports scipy
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_correct_aggregation_is_the_best_of_all_one_to_one_maps(pairs: list[tuple[int, int]]) -> None:
    best = max(sum(g >= 0 and to[g] == c for g, c in pairs) for to in permutations(range(4)))
    assert metrics.correct_aggregation(*zip(*pairs, strict=True)) == pytest.approx(best / len(pairs))


def test_groups_and_classes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"true: expected integers, shape \(2,\); got int64 of shape \(1,\)"):
        metrics.correct_aggregation([0, 1], [0])
    with pytest.raises(UserError, match="group: expected integers, a 1-D array; got float64"):
        metrics.correct_aggregation([0.0, 1.0], [0, 1])
    for group, true in (([], []), ([0], [-1])):
        with pytest.raises(UserError, match="at least one local cluster, and a true class >= 0 of each"):
            metrics.correct_aggregation(group, true)
    with pytest.raises(UserError, match="labels below 2"):
        metrics.majority_class([0, 2], [0, 0], 2)
    with pytest.raises(UserError, match="classes >= 0"):
        metrics.majority_class([0, 1], [0, -1], 2)


# Assumption 8


def _rate(X: list[list[float]], y: list[int], columns: dict[str, list[int]], triplets: int = 1000) -> float:
    """Return the rate with all rows at each site in turn."""
    sites = list(columns)
    rows = {site: np.arange(len(X))[i :: len(sites)] for i, site in enumerate(sites)}
    held = {site: np.array(own) for site, own in columns.items()}
    return metrics.assumption_8_rate(X, y, rows, held, np.random.default_rng(0), triplets)


def test_assumption_8_worked_by_hand() -> None:
    # In full, rows 0 and 1 of class 0 are 2 apart and the third is more than 5 away from both; in column 0 it is between.
    X, y = [[0.0, 0.0], [2.0, 0.0], [1.0, 5.0]], [0, 0, 1]
    assert _rate(X, y, {"a": [0]}) == 0
    assert _rate(X, y, {"a": [1]}) == 1
    assert _rate(X, y, {"a": [0, 1]}) == 1
    # From the first row the third is nearer than the second, so nothing is asked; from the second it is farther by a
    # hair, and in column 1 they are equally far.
    X = [[0.0, 0.0], [0.0, 9.0], [1.0, 0.0]]
    assert _rate(X, y, {"a": [0]}) == 1
    assert _rate(X, y, {"a": [1]}, 4000) == pytest.approx(0.5, abs=0.03)


def test_columns_that_are_constant_keep_everything_together() -> None:
    X, y = [[0.0, 3.0], [1.0, 3.0], [5.0, 3.0]], [0, 0, 1]
    assert _rate(X, y, {"a": [1]}) == 0  # 0 < 0 does not hold


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 999))
def test_the_rate_is_that_over_all_triplets_up_to_sampling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d = 24, 4
    X, y = rng.normal(size=(n, d)) * [1, 2, 5, 1], rng.integers(3, size=n)
    y[:4] = [0, 0, 1, 2]
    home = np.arange(n) % 3
    columns = {"a": np.array([0, 1]), "b": np.array([1, 2]), "c": np.array([2, 3])}  # a and c: nothing in common
    rows = {site: np.flatnonzero(home == i) for i, site in enumerate(columns)}
    held = [set(own.tolist()) for own in columns.values()]

    def scaled(a: int, b: int) -> float:
        common = sorted(held[home[a]] & held[home[b]])
        return float(np.linalg.norm(X[a, common] - X[b, common]) / np.linalg.norm(np.ptp(X[:, common], axis=0)))

    right = [
        not np.linalg.norm(X[a] - X[b]) < np.linalg.norm(X[a] - X[c]) or scaled(a, b) < scaled(a, c)
        for a, b, c in product(range(n), repeat=3)
        if a != b and y[a] == y[b] != y[c] and held[home[a]] & held[home[b]] and held[home[a]] & held[home[c]]
    ]
    actual = metrics.assumption_8_rate(X, y, rows, columns, rng, triplets=20_000)
    # A standard deviation of 0.0035 at the most; four and a half of them.
    assert actual == pytest.approx(np.mean(right), abs=0.016)


def test_rows_of_no_site_are_not_looked_at() -> None:
    X, y = [[0.0], [1.0], [9.0], [0.5], [1e6]], [0, 0, 1, 1, 0]
    rows, columns = {"a": np.arange(3)}, {"a": np.array([0])}
    assert metrics.assumption_8_rate(X, y, rows, columns, np.random.default_rng(0)) == 1


def test_rows_without_a_triplet_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, columns = np.zeros((4, 2)), {"a": np.array([0]), "b": np.array([1])}
    rows = {"a": np.array([0, 1]), "b": np.array([2, 3])}
    for y in ([0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 1]):
        with pytest.raises(UserError, match="no triplet to test"):
            metrics.assumption_8_rate(X, y, rows, columns, rng)
    with pytest.raises(UserError, match=r"of the same sites, got \['a', 'b'\] and \['a'\]"):
        metrics.assumption_8_rate(X, [0, 0, 0, 1], rows, {"a": np.array([0])}, rng)
    with pytest.raises(UserError, match="classes: expected one per row"):
        metrics.assumption_8_rate(X, [0, 1], rows, columns, rng)
