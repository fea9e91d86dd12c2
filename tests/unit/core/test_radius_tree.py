"""Groups by radius from a tree against the loop of FeCA's Algorithm 5."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust.aggregators import feca
from flareclust.core import radius_tree
from flareclust.core.radius_tree import group_around
from tests.examples import examples


@st.composite
def problems(draw):
    """Points on a lattice (equal ones, and distances that equal a radius) or off it, in few or many columns, near 0 or far."""
    n, d = draw(st.integers(1, 200)), draw(st.sampled_from([1, 2, 3, 7, 8, 9, 17, 130, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        points, radii = rng.integers(0, 3, (n, d)) * draw(st.sampled_from([1.0, 0.1])), rng.integers(0, 5, n) / 2
        radii = np.where(rng.random(n) < 0.5, radii, np.sqrt(((points - points[0]) ** 2).sum(axis=1)))
    else:
        points = rng.normal(size=(n, d)) + 3 * rng.normal(size=(5, d))[rng.integers(5, size=n)]
        radii = np.sqrt(d) * rng.uniform(0, 4, n)
    scale = draw(st.sampled_from([1.0, 1e-170, 1e130]))
    return points * scale + draw(st.sampled_from([0.0, 1e6 * scale])), radii * scale


@settings(max_examples=examples(200), deadline=None)
@given(problems())
def test_a_tree_gives_the_groups_of_the_loop(problem):
    points, radii = problem
    order = np.argsort(-radii, kind="stable")
    literal, found = feca.group_in_turn(points, radii, order), group_around(points, radii, order)
    np.testing.assert_array_equal(found[0], literal[0])
    np.testing.assert_array_equal(found[1], literal[1])


def test_the_loop_and_the_tree_agree_where_one_takes_over(monkeypatch, rng):
    points, radii = rng.normal(size=(3000, 2)), rng.uniform(0, 0.1, 3000)
    literal = feca.group_in_turn(points, radii, np.argsort(-radii, kind="stable"))
    monkeypatch.setattr(feca, "group_around", spy := Spy())
    for found, expected in zip(feca.group_by_radius(points, radii), literal, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert spy.calls == 1


class Spy:
    calls = 0

    def __call__(self, *given_):
        self.calls += 1
        return group_around(*given_)


@pytest.mark.parametrize("n", [0, 1, 48, 49, 193])
def test_any_number_of_points_has_a_place_in_the_tree(n):
    points = np.arange(n, dtype=float)[:, None]
    groups, picked = group_around(points, np.full(n, 0.5), np.arange(n))
    np.testing.assert_array_equal(groups, np.arange(n))
    np.testing.assert_array_equal(picked, np.arange(n))


def test_a_search_does_not_look_at_all_points(monkeypatch):
    """Each of the groups is one point; a loop over all would compare n^2 pairs."""
    seen = []
    plain = radius_tree._group.py_func
    monkeypatch.setattr(
        radius_tree, "squared_distance", lambda row, point: seen.append(0) or ((row - point) ** 2).sum()
    )
    monkeypatch.setattr(radius_tree, "_group", lambda *a: plain(*a))
    n = 2000
    monkeypatch.setitem(plain.__globals__, "squared_distance", radius_tree.squared_distance)
    groups, _ = group_around(np.random.default_rng(0).uniform(size=(n, 2)), np.full(n, 1e-9), np.arange(n))
    assert len(np.unique(groups)) == n
    assert len(seen) < 40 * n
