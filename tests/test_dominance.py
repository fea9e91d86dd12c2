"""No value of a row stands alone in the mean of its group: the p % rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust.core.dominance import SHARE, without_dominant
from flareclust.core.microaggregation import microaggregate

FLOOR = 10


def one_group(*values):
    X = np.array(values, dtype=float)[:, None]
    return without_dominant(X, np.zeros(len(X), dtype=int))[:, 0].tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0, 0, 0, 3.7], [0, 0, 0, 0, 0, 0]),
        ([5, 5, 5, 5, 9, 1], [5, 5, 5, 5, 5, 5]),
        ([5, 5, 5, 9, 9, 1], [5, 5, 5, 9, 9, 1]),  # three: their sum is of three rows
        ([0, 0.1, -0.1, 0, 100, 0], [0, 0.1, -0.1, 0, 0.1, 0]),
        ([0, 0.1, -0.1, 0, 100, -50], [0, 0.1, -0.1, 0, 0.1, -0.1]),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
        ([1, 1, 1, 8], [1, 1, 1, 1]),
        ([1, 2, 9], [1, 2, 9]),  # of a small group, only a value beside which the others are as good as equal
        ([1.9, 2, 9], [1.9, 2, 2.1]),
        ([7, 7, 7], [7, 7, 7]),
    ],
)
def test_by_hand(values, expected):
    np.testing.assert_allclose(one_group(*values), expected, atol=1e-12)


def test_rows_of_no_group_stay_and_groups_do_not_mix():
    X = np.array([[0.0], [9.0], [0.0], [0.0], [0.0], [0.0], [0.0], [4.0], [4.0], [4.0], [5.0], [4.0], [4.0], [8.0]])
    labels = np.array([0, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(without_dominant(X, labels)[:, 0], [0, 9, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4])
    none = without_dominant(X, np.full(len(X), -1))
    np.testing.assert_array_equal(none, X)


groups = arrays(
    np.float64,
    st.tuples(st.integers(6, 25), st.integers(1, 3)),
    elements=st.one_of(st.just(0), st.floats(-1e6, 1e6, width=32)),
)


@settings(deadline=None)
@given(groups)
def test_what_the_others_add_up_to_hides_the_largest(X):
    """Whoever knows the median, the sum and the second largest deviation is off by a tenth of the largest, or it is shared."""
    moved = without_dominant(X, np.zeros(len(X), dtype=int))
    for before, after in zip(X.T, moved.T, strict=True):
        away = np.sort(np.abs(after - np.median(before)))
        unshared = away[-1] > away[-3] * (1 + 1e-9)
        assert not unshared or away[:-2].sum() >= SHARE * away[-1] * (1 - 1e-9)


# ---- in a table ----


def test_a_value_that_one_row_has_in_a_column_is_not_told(rng):
    X = np.column_stack([rng.normal(size=(500, 2)), np.zeros(500)])
    X[77, 2] = 123456.789
    (made,) = microaggregate(X, FLOOR)
    assert len(made) == 500
    np.testing.assert_array_equal(made[:, 2], 0.0)


def test_a_table_with_one_value_in_each_row_tells_none(rng):
    (made,) = microaggregate(np.diag(rng.normal(5, 1, 40)), FLOOR)
    np.testing.assert_array_equal(made, 0.0)


def test_rare_categories_are_told_from_three_rows_on(rng):
    """Ten categories of 1 to 10 rows among a common one: sums below three are never told."""
    category = np.concatenate([np.full(c, c) for c in range(1, 11)] + [np.zeros(445, dtype=int)])
    X = np.column_stack([np.eye(11)[category], rng.normal(size=(500, 1))])
    (made,) = microaggregate(X, FLOOR)
    sums = made[:, 1:11].sum(axis=0)
    assert (np.abs(sums) < 1e-9).any()
    assert ((np.abs(sums) < 1e-9) | (sums > 3 - 1e-9)).all()


def test_a_column_of_many_values_is_left_alone(rng):
    X = rng.normal(size=(400, 3))
    (made,) = microaggregate(X, FLOOR)
    np.testing.assert_allclose(made.sum(axis=0), X.sum(axis=0), rtol=1e-9)
