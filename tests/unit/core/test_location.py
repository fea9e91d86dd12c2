"""The middle of weighted points: hand-worked cases, a twin by minimisation, and what holds for all points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from flareclust.core import robust
from flareclust.protocol.schema import MOST_ROWS
from tests.examples import examples


def column(*values):
    return np.array(values, dtype=float)[:, None]


# Trimmed mean and medians


def test_a_trimmed_mean_leaves_out_both_ends():
    assert robust._trimmed_mean(column(100, 1, 3, 0, 2), np.ones(5), 0.2) == pytest.approx([2.0])


def test_a_trimmed_mean_cuts_weight_and_not_values():
    # Of the weight 4 half a unit goes at each end: 2.5 of the value 0 and 0.5 of the value 10 are left.
    assert robust._trimmed_mean(column(0, 10), np.array([3.0, 1.0]), 0.125) == pytest.approx([5 / 3])
    assert robust._trimmed_mean(column(0, 10), np.array([3.0, 1.0]), 0.25) == pytest.approx([0.0])


def test_nothing_trimmed_is_the_weighted_mean():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(9, 3)), rng.uniform(1, 5, 9)
    np.testing.assert_allclose(robust._trimmed_mean(points, weights, 0.0), np.average(points, axis=0, weights=weights))


def test_rounding_lets_no_huge_value_into_a_trimmed_mean():
    values = np.append(np.linspace(0, 1, 9), 1e139)[:, None]
    weights = np.full(10, 0.1)  # whose sums are not exact
    assert 0.4 < robust._trimmed_mean(values, weights, 0.1)[0] < 0.7


def test_the_weighted_median_is_where_half_the_weight_is_reached():
    assert robust._weighted_median(column(3, 1, 2), np.ones(3)) == pytest.approx([2.0])
    assert robust._weighted_median(column(2, 1), np.ones(2)) == pytest.approx([1.5])
    assert robust._weighted_median(column(1, 2), np.array([3.0, 1.0])) == pytest.approx([1.0])
    assert robust._weighted_median(column(1, 2, 8), np.array([1.0, 1.0, 2.0])) == pytest.approx([5.0])


# The geometric median


def test_the_geometric_median_of_a_square_is_its_middle():
    corners = np.array([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0]])
    np.testing.assert_allclose(robust._geometric_median(corners, np.ones(4)), [1.0, 1.0], atol=1e-9)


def test_the_geometric_median_of_a_triangle_is_its_fermat_point():
    triangle = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, np.sqrt(3)]])
    np.testing.assert_allclose(robust._geometric_median(triangle, np.ones(3)), [1.0, np.sqrt(3) / 3], atol=1e-8)


def test_the_geometric_median_of_a_blunt_triangle_is_its_corner():
    triangle = np.array([[0.0, 0.0], [10.0, 1.0], [-10.0, 1.0]])  # an angle of more than 120 degrees
    np.testing.assert_allclose(robust._geometric_median(triangle, np.ones(3)), [0.0, 0.0], atol=1e-3)


def test_a_point_with_half_the_weight_is_the_geometric_median():
    points = np.array([[5.0, 5.0], [0.0, 1.0], [3.0, -2.0], [-4.0, 0.0]])
    np.testing.assert_allclose(robust._geometric_median(points, np.array([4.0, 1.0, 1.0, 1.0])), [5.0, 5.0], atol=1e-8)


def test_weiszfeld_goes_on_from_a_point_that_is_hit_and_is_not_the_median():
    points = np.array([[0.0, 0.0], [1.0, 10.0], [2.0, 20.0], [-10.0, -1.0], [-20.0, -2.0]])
    assert np.array_equal(np.median(points, axis=0), points[0])  # the start is a point
    found = robust._geometric_median(points, np.ones(5))
    assert np.abs(found).max() > 0.1
    np.testing.assert_allclose(found, _minimized(points, np.ones(5)), atol=1e-4)


def _minimized(points, weights):
    def total(x):
        return (weights * np.sqrt(((points - x) ** 2).sum(axis=1))).sum()

    return minimize(total, points.mean(axis=0) + 1e-3, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x


@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_median_has_the_smallest_sum_of_distances(seed):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(12, 2)), rng.uniform(0.1, 3, 12)
    np.testing.assert_allclose(robust._geometric_median(points, weights), _minimized(points, weights), atol=1e-5)


def test_equal_points_are_their_own_middle():
    points = np.full((4, 2), 7.0)
    assert np.array_equal(robust._geometric_median(points, np.ones(4)), [7.0, 7.0])
    assert np.array_equal(robust._center(points, np.ones(4), 0.2), [7.0, 7.0])


@pytest.mark.parametrize("trim", [0.2, None])
def test_absurd_points_do_not_move_the_middle_and_overflow_nothing(trim):
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(8, 3))
    untrusted = 1e139 * np.array([[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])
    with np.errstate(all="raise", under="ignore"):
        found = robust._center(np.concatenate([honest, untrusted]), np.full(10, float(MOST_ROWS)), trim)
        assert np.abs(robust._geometric_median(np.concatenate([honest, untrusted]), np.ones(10))).max() < 3
    np.testing.assert_allclose(found, robust._center(honest, np.ones(8), trim), atol=1e-9)


def test_of_three_the_one_far_away_is_left_out():
    near = np.array([[0.0, 0.0], [1.0, 0.0]])
    far = np.array([[2 * robust._FAR, 0.0]])
    assert robust._center(np.concatenate([near, far]), np.ones(3), 0.2)[0] == pytest.approx(0.5)
    assert robust._center(np.concatenate([near, far / robust._FAR]), np.ones(3), 0.0)[0] == pytest.approx(1.0)


coordinates = st.floats(-100, 100).map(lambda x: round(x, 3))
some_points = st.integers(3, 9).flatmap(
    lambda s: st.tuples(
        st.lists(st.tuples(coordinates, coordinates), min_size=s, max_size=s),
        st.lists(st.integers(1, 50), min_size=s, max_size=s),
        st.permutations(range(s)),
    )
)


@settings(max_examples=examples(60), deadline=None)
@given(some_points, st.sampled_from([0.0, 0.2]))
def test_the_middle_follows_translations_and_does_not_know_the_order(drawn, trim):
    points, weights, order = np.array(drawn[0]), np.array(drawn[1], float), list(drawn[2])
    found = robust._trimmed_mean(points, weights, trim)
    np.testing.assert_allclose(robust._trimmed_mean(points[order], weights[order], trim), found, atol=1e-9)
    np.testing.assert_allclose(robust._trimmed_mean(points + 1000.0, weights, trim), found + 1000.0, atol=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(some_points)
def test_no_other_point_has_a_smaller_sum_of_distances(drawn):
    points, weights, order = np.array(drawn[0]), np.array(drawn[1], float), list(drawn[2])

    def total(x):
        return (weights * np.sqrt(((points - x) ** 2).sum(axis=1))).sum()

    found = robust._geometric_median(points, weights)
    slack = 1e-5 * weights.sum() * np.ptp(points)
    assert total(found) <= min(total(point) for point in points) + slack
    assert total(robust._geometric_median(points[order], weights[order])) == pytest.approx(
        total(found), abs=slack + 1e-12
    )
    assert total(robust._geometric_median(points + 500.0, weights) - 500.0) == pytest.approx(
        total(found), abs=slack + 1e-9
    )
