"""Huang's distance as a Euclidean one, and modes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust import UserError
from flareclust.core import categories as category_columns
from flareclust.core.disclosure import describable
from tests.examples import examples

#: Two numbers, a category of three values, one of two.
GROUPS = [[2, 3, 4], [5, 6]]


def one_hot(values, sizes=(3, 2)):
    return np.concatenate(
        [np.eye(size)[column] for column, size in zip(np.asarray(values).T, sizes, strict=True)], axis=1
    )


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_in_scaled_columns_the_euclidean_distance_is_huangs(seed, gamma):
    rng = np.random.default_rng(seed)
    numbers, values = rng.normal(size=(2, 2)), np.column_stack([rng.integers(3, size=2), rng.integers(2, size=2)])
    expected = ((numbers[0] - numbers[1]) ** 2).sum() + gamma * (values[0] != values[1]).sum()
    rows = np.concatenate([numbers, one_hot(values)], axis=1)
    scaled = rows / np.where(category_columns.in_categories(GROUPS, 7), category_columns.divisor(gamma), 1.0)
    assert ((scaled[0] - scaled[1]) ** 2).sum() == pytest.approx(expected, rel=1e-12)


def test_the_mode_is_the_most_frequent_value_and_of_equal_ones_the_first():
    means = np.array([[1.5, 2.5, 0.2, 0.5, 0.3, 0.5, 0.5], [0.0, 0.0, 1 / 3 - 1e-12, 1 / 3, 1 / 3, 0.0, 0.0]])
    expected = [[1.5, 2.5, 0.0, 2.0, 0.0, 2.0, 0.0], [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(
        category_columns.with_modes(means, GROUPS, 2.0), expected
    )  # nobody in the second has the last category
    assert means[0, 2] == 0.2


def test_gamma_is_the_mean_variance_over_the_mean_chance_to_differ():
    gamma, even, rare = category_columns.usual_gamma, np.array([0.5, 0.5]), np.array([0.9, 0.1])
    assert gamma(np.array([1.0, 3.0]), [even]) == 10.0
    assert gamma(np.array([1.0, 3.0]), [even, rare]) == pytest.approx(5 / np.mean([0.5, 0.18]))
    assert gamma(np.array([1.0, 0.0]), [0.5 * even, np.array([1.0, 0.0]), np.zeros(2)]) == 2.0  # half the rows know one
    assert gamma(np.zeros(2), [even]) == gamma(np.empty(0), [even]) == gamma(np.ones(1), [np.ones(1)]) == 1.0


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(lambda counts: sum(map(bool, counts)) > 1))
def test_no_split_by_a_category_explains_more_than_one_by_a_normal_number(counts):
    rows = np.repeat(np.eye(len(counts)), counts, axis=0)
    rows /= np.sqrt(rows.var(axis=0).sum() / category_columns._category_variance(np.array(counts) / sum(counts)))
    assert rows.var(axis=0).sum() <= 1 + 1e-9
    taken = [
        sum(len(part) * ((part.mean(axis=0) - rows.mean(axis=0)) ** 2).sum() for part in (rows[own], rows[~own]))
        / len(rows)
        for own in (rows[:, column] > 0 for column in np.flatnonzero(counts))
    ]
    assert max(taken) <= 2 / np.pi + 1e-9
    assert rows.var(axis=0).sum() == pytest.approx(1) or max(taken) == pytest.approx(2 / np.pi)


@pytest.mark.parametrize(
    ("shares", "variance"),
    [
        ([0.5, 0.5], 2 / np.pi),
        ([0.9, 0.1], 2 / np.pi),
        ([1 / 3, 1 / 3, 1 / 3], 1),  # a split explains half of it
        ([0.2] * 5, 1),  # and a quarter
        ([1, 0], 1),  # nothing to scale
        ([0, 0], 1),
    ],
)
def test_variances_of_categories(shares, variance):
    assert category_columns._category_variance(np.array(shares, dtype=float)) == pytest.approx(variance)


def test_the_variance_of_a_number_is_the_median_of_those_that_vary():
    deviation, divisors = np.array([2.0, 3.0, 0.0, 1.0]), np.array([2.0, 1.0, 100.0, 2.0])
    assert category_columns.number_variance(deviation, divisors) == 1.0  # of 1, 9 and 1/4
    assert (
        category_columns.number_variance(np.zeros(1), np.ones(1))
        == category_columns.number_variance(np.empty(0), np.empty(0))
        == 1.0
    )


def test_columns_of_a_category_hold_one_one_at_most():
    rows = np.concatenate([np.full((2, 2), 7.0), one_hot([[0, 1], [2, 0]])], axis=1)
    assert category_columns.are_one_hot(rows, GROUPS)
    missing, twice, other = rows.copy(), rows.copy(), rows.copy()
    missing[0, 2:5] = 0.0
    twice[0, 3] = 1.0
    other[1, 6] = 0.5
    assert category_columns.are_one_hot(missing, GROUPS)
    assert not category_columns.are_one_hot(twice, GROUPS)
    assert not category_columns.are_one_hot(other, GROUPS)


@pytest.mark.parametrize("groups", ["sex", [3], [[]], [[1, 2], [2, 3]], [[-1]], [["sex"]], [[True, 2]]])
def test_groups_that_are_none_are_refused(groups):
    with pytest.raises(UserError, match="categories must be a list with a list of columns"):
        category_columns.check_groups(groups)


def test_identical_rows_are_described_where_all_columns_are_categories():
    """Three rows or more, and `min_count`; never numbers that happen to be the same, nor single rows."""
    rows = one_hot([[0, 1]] * 3 + [[1, 1]] * 2 + [[2, 0]])
    labels = np.array([0, 0, 0, 1, 1, 2])
    centroids, ones = rows[[0, 3, 5]], np.ones(5)
    assert describable(rows, labels, centroids, 1, ones=ones).tolist() == [True, False, False]
    assert describable(rows, labels, centroids, 4, ones=ones).tolist() == [False, False, False]
    assert not describable(rows, labels, centroids, 1).any()
    assert not describable(5.0 * rows, labels, 5.0 * centroids, 1, ones=ones).any()
    assert describable(5.0 * rows, labels, 5.0 * centroids, 1, ones=5.0 * ones).tolist() == [True, False, False]
