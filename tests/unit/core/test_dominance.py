"""No value of a row stands alone in the mean of its group: the p % rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust.core.microaggregation import _SHARE, groups_of, microaggregate, released, without_dominant

FLOOR = 10


def one_group(*values):
    X = np.array(values, dtype=float)[:, None]
    moved, labels = without_dominant(X, np.zeros(len(X), dtype=int))
    return moved[:, 0].tolist() if (labels == 0).all() else []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0, 0, 0, 3.7], [0, 0, 0, 0, 0, 0]),
        ([5, 5, 5, 5, 9, 1], [5, 5, 5, 5, 5, 5]),
        ([5, 5, 5, 9, 9, 1], [5, 5, 5, 9, 9, 1]),  # three: their sum is of three rows
        ([0, 0.1, -0.1, 0, 100, 0], [0] * 6),
        ([0, 0.1, -0.1, 0, 100, -50], [0, 0.1, -0.1, 0, 0.1, -0.1]),
        ([0, 0, 0, 0, 3.19, 231.87, 273.28], [0] * 7),  # three of 3.19 would disclose the 3.19
        ([0, 0, 0, 1, 1, 1, 50, 600], [0, 0, 0, 1, 1, 1, 2, 2]),
        ([0, 1e-4, -1e-2, 1, -100, 1e4, -1e6], []),  # moved to one row's value, as far down as one goes
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
        ([1, 1, 1, 8], []),  # of four, both others: two rows are too few to move to
        ([1, 1, 1, 8, 9], [1, 1, 1, 1, 1]),
        ([1, 2, 9], [1, 2, 9]),  # of three, only a value beside which the others are as good as equal
        ([1.9, 2, 9], []),
        ([0, 0, 3, 5], [0, 0, 3, 5]),  # of four the median is no row's: so few rows hide little
        ([7, 7, 7], [7, 7, 7]),
    ],
)
def test_by_hand(values, expected):
    np.testing.assert_allclose(one_group(*values), expected, atol=1e-12)


def test_rows_of_no_group_stay_and_groups_do_not_mix():
    X = np.array([[0.0], [9.0], [0.0], [0.0], [0.0], [0.0], [0.0], [4.0], [4.0], [4.0], [5.0], [4.0], [4.0], [8.0]])
    labels = np.array([0, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(without_dominant(X, labels)[0][:, 0], [0, 9, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4])
    none, groups = without_dominant(X, np.full(len(X), -1))
    np.testing.assert_array_equal(none, X)
    assert (groups == -1).all()


def plainwithout_dominant(X, labels, share=_SHARE):
    """Plain NumPy: deviations from the median are cut to the largest one that those below it hide, else the group is none."""
    moved, kept = X.copy(), labels.copy()
    for g in np.unique(labels[labels >= 0]):
        members = np.flatnonzero(labels == g)
        for j in range(X.shape[1]):
            values = X[members, j]
            median = np.median(values)
            away = np.abs(values - median)
            ranked = np.argsort(away, kind="stable")
            below = np.concatenate([[0.0], away[ranked].cumsum()])  # of those with a smaller rank
            most = 2 if len(members) > 3 else 1
            if below[-1 - most] >= share * away.max():
                continue
            hidden = (away[ranked] == 0) | (below[:-1] >= share * away[ranked])
            last = max(np.flatnonzero(hidden[: len(members) - most]), default=-1)
            if last < 2:
                kept[members] = -1
                break
            beyond = ranked[last + 1 :]
            moved[members[beyond], j] = np.where(
                values[beyond] > median, median + away[ranked[last]], median - away[ranked[last]]
            )
    return moved, kept


@pytest.mark.parametrize("seed", range(20))
def test_as_plain_numpy_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) * 10.0 ** rng.integers(0, 5, (60, 3))
    X[rng.random(X.shape) < 0.5] = 0
    labels = rng.integers(-1, 8, 60)
    found, expected = without_dominant(X, labels), plainwithout_dominant(X, labels)
    np.testing.assert_array_equal(found[1], expected[1])
    released = found[1] >= 0  # values of other groups may have moved before the column that decides
    np.testing.assert_array_equal(found[0][released], expected[0][released])
    assert not np.array_equal(found[0], X)


groups = arrays(
    np.float64,
    st.tuples(st.integers(6, 25), st.integers(1, 3)),
    elements=st.one_of(st.just(0), st.floats(-1e6, 1e6, width=32)),
)


@settings(deadline=None)
@given(groups)
def test_what_is_left_would_not_be_moved_again(X):
    """An attacker who knows the median and the sum is off by a tenth of the largest deviation, or as large ones are of several."""
    moved, labels = without_dominant(X, np.zeros(len(X), dtype=int))
    if (labels < 0).any():
        return
    again, labels = without_dominant(moved, labels)
    np.testing.assert_allclose(again, moved, rtol=1e-9, atol=1e-9 * np.abs(X).max())
    assert (labels == 0).all()
    for before, after in zip(X.T, moved.T, strict=True):
        away = np.sort(np.abs(after - np.median(before)))
        assert away[:-2].sum() >= _SHARE * away[-1] * (1 - 1e-6)


# ---- in a table ----


def test_a_value_that_one_row_has_in_a_column_is_not_disclosed(rng):
    X = np.column_stack([rng.normal(size=(500, 2)), np.zeros(500)])
    X[77, 2] = 123456.789
    (made,) = microaggregate(X, FLOOR)
    assert len(made) == 500
    np.testing.assert_array_equal(made[:, 2], 0.0)


def test_a_table_with_one_value_in_each_row_tells_none(rng):
    (made,) = microaggregate(np.diag(rng.normal(5, 1, 40)), FLOOR)
    assert len(made) == 0
    X = np.column_stack([np.diag(rng.normal(5, 1, 40)), rng.normal(size=40)])
    (made,) = microaggregate(X, FLOOR)
    assert len(made) == 40
    np.testing.assert_array_equal(made[:, :40], 0.0)


@pytest.mark.parametrize("copies", [9, 10, 16, 17])
def test_no_repeated_row_is_the_mean_of_a_group(rng, copies):
    """Of eight copies and two others all moved to the copies, and the mean was that row in all columns."""
    X = rng.normal(size=(600, 5))
    X = np.concatenate([X, *[np.repeat(X[i : i + 1], copies - 1, axis=0) for i in range(20)]])
    ordered = X[np.lexsort(X.T[::-1])]
    moved, labels = released(ordered, groups_of(ordered, FLOOR))
    means = np.array([moved[labels == g].mean(axis=0) for g in range(labels.max() + 1)])
    assert np.abs(X[:20, None] - means[None]).max(axis=2).min() > 1e-4


@pytest.mark.parametrize(("sigma", "share"), [(1.5, 0.2), (2.0, 0.3)])
def test_costs_among_zeros_are_not_disclosed_by_thirds_of_a_sum(rng, sigma, share):
    n = 2000
    cost = np.where(rng.random(n) < share, np.round(rng.lognormal(7, sigma, n), 2), 0)
    X = np.column_stack([np.round(rng.normal(60, 15, n)), np.round(rng.normal(5, 1, n), 1), cost])
    ordered = X[np.lexsort(X.T[::-1])]
    moved, labels = released(ordered, groups_of(ordered, FLOOR))
    reported = 0
    for g in range(labels.max() + 1):
        total, own = moved[labels == g, 2].sum(), ordered[labels == g, 2]
        reported += any(
            np.abs(own[own > 0] - total / parts).min(initial=np.inf) < 1e-6 * cost.std() for parts in (1, 2, 3)
        )
    assert reported == 0


def test_rare_categories_are_reported_from_three_rows_on(rng):
    """Ten categories of 1 to 10 rows among a common one: sums below three are never disclosed."""
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
