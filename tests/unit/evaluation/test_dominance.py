"""The rules of dominance against their definitions, and the bounds by moments against the rows behind them."""

import numpy as np
import pytest

from flareclust.evaluation.dominance import dominance_by_moments, dominance_in


def by_definition(values):
    """Return whether the p % rule (10) and the (2, 90) rule forbid the total of these values."""
    first, second, *others = [*sorted(values, reverse=True), 0.0, 0.0][: max(len(values), 2)]
    return sum(others) < 0.1 * first, first + second > 0.9 * (first + second + sum(others))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([100, 5, 3, 2, 1], (True, True)),  # the others are 6, below 10
        ([100, 5, 4, 3, 3], (False, True)),  # exactly 10
        ([50, 40, 5, 5], (False, False)),  # the two are exactly 90
        ([50, 41, 5, 4], (False, True)),
        ([1, 1, 1, 1], (False, False)),
        ([7, 6], (True, True)),
        ([7], (True, True)),
        ([0, 0, 0], (False, False)),
    ],
)
def test_cells_worked_by_hand(values, expected):
    found = dominance_in(np.array(values, dtype=float)[:, None], np.zeros(len(values), dtype=np.int64), 1)
    assert (bool(found.p_ratio[0, 0]), bool(found.nk[0, 0])) == expected == by_definition(values)


def test_negative_values_are_counted_and_not_judged():
    found = dominance_in(np.array([[-1.0], [100.0], [1.0]]), np.zeros(3, dtype=np.int64), 1)
    assert found.negative.all()
    assert not found.p_ratio.any()
    assert not found.nk.any()


def test_rows_of_no_cell_do_not_count():
    found = dominance_in(np.array([[1.0], [1.0], [1.0], [900.0]]), np.array([0, 0, 0, -1]), 2)
    assert not found.p_ratio.any()
    assert not found.unknown.any()


def test_what_moments_exclude_no_rows_do():
    rng = np.random.default_rng(0)
    excluded = 0
    for _ in range(500):
        values = rng.exponential(1.0, size=int(rng.integers(1, 40))) ** rng.uniform(0.2, 3)
        n, mean = np.array([[len(values)]]), np.array([[values.mean()]])
        found = dominance_by_moments(n, mean, np.array([[((values - values.mean()) ** 2).sum()]]))
        dominated = any(by_definition(values))
        assert found.p_ratio.any() == found.nk.any() == (len(values) <= 2)
        if not found.unknown.any() and len(values) > 2:
            assert not dominated
            excluded += 1
    assert excluded > 100


def test_the_worst_case_of_the_moments_is_reached():
    # One value far from n - 1 equal ones is the case in which Samuelson's inequality is an equality.
    values = np.array([[1.0]] * 20 + [[1000.0]])
    found = dominance_by_moments(
        np.array([[21]]), values.mean(axis=0)[None], ((values - values.mean()) ** 2).sum(axis=0)[None]
    )
    assert found.unknown.all()
    assert not found.exact


def test_empty_cells_say_nothing():
    found = dominance_by_moments(np.array([[0]]), np.zeros((1, 1)), np.zeros((1, 1)))
    assert not any(getattr(found, name).any() for name in ("p_ratio", "nk", "negative", "unknown"))
