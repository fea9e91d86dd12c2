"""Memberships of rows in fuzzy clusters: by hand, exact, and whatever the numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import flareclust
from flareclust.core.fuzzy import memberships
from flareclust.core.lloyd import assign
from tests.examples import examples
from tests.unit.core.fuzzy_cases import problem, twin_row

LATTICE = st.integers(-4, 4).map(float)


@st.composite
def on_a_lattice(draw):
    """Rows and centroids that often coincide."""
    d = draw(st.integers(1, 3))
    rows = draw(arrays(np.float64, (draw(st.integers(1, 12)), d), elements=LATTICE))
    return rows, draw(arrays(np.float64, (draw(st.integers(1, 5)), d), elements=LATTICE))


# ---- memberships ----


def test_memberships_by_hand():
    # Distances 1 and 3: u = (1 + 1/9)^-1 = 0.9 with m = 2, and (1 + 1/3)^-1 = 0.75 with m = 3.
    X, centroids = [[0.0], [1.0], [4.0]], [[0.0], [4.0]]
    np.testing.assert_allclose(memberships(X, centroids), [[1, 0], [0.9, 0.1], [0, 1]], rtol=1e-15)
    np.testing.assert_allclose(memberships(X, centroids, 3), [[1, 0], [0.75, 0.25], [0, 1]], rtol=1e-15)


def test_users_get_them_from_the_package():
    assert flareclust.memberships is memberships


@settings(max_examples=examples(200), deadline=None)
@given(on_a_lattice())
def test_memberships_are_the_exact_ones(given_):
    X, centroids = given_
    exact = [[Fraction(v) for v in row] for row in X], [[Fraction(v) for v in row] for row in centroids]
    expected = [[float(v) for v in twin_row(x, exact[1], 2)] for x in exact[0]]
    np.testing.assert_allclose(memberships(X, centroids), expected, rtol=1e-14)


# 600 centroids: 16 rows in a tile; both sides of its edges.
@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (257, 2, 3), (40, 70, 5), (33, 2, 600)])
@pytest.mark.parametrize("m", [1.2, 2.0, 3.5])
def test_memberships_are_those_of_the_formula(n, d, k, m):
    rng = np.random.default_rng(n)
    X, centroids = rng.normal(size=(n, d)), rng.normal(size=(k, d))
    power = ((X[:, None] - centroids[None]) ** 2).sum(axis=2) ** (-1 / (m - 1))
    np.testing.assert_allclose(memberships(X, centroids, m), power / power.sum(axis=1, keepdims=True), rtol=1e-9)


def test_a_row_that_coincides_with_centroids_belongs_to_them_alone_in_equal_parts():
    centroids = [[5.0, 5.0], [1.0, 2.0], [9.0, 9.0], [1.0, 2.0]]
    for m in (1.01, 2, 30):
        np.testing.assert_array_equal(memberships([[1.0, 2.0]], centroids, m), [[0, 0.5, 0, 0.5]])


@pytest.mark.parametrize(
    ("row", "centroids", "expected"),
    [
        # Distances 2 and sqrt(2) in units of 1.7e308: u = 1/3, 2/3. The differences alone overflow.
        ([1.7e308, 0], [[-1.7e308, 0], [0, 1.7e308]], [1 / 3, 2 / 3]),
        ([1e200, 0], [[-1e200, 0], [1e200, 1e200]], [0.2, 0.8]),
        # The smallest numbers there are: distances 1 and 2 in units of 5e-324, whose squares are 0.
        ([0, 0], [[5e-324, 0], [0, 1e-323]], [0.8, 0.2]),
        ([0, 0], [[1e-200, 0], [0, 3e-200]], [0.9, 0.1]),
        ([0, 0], [[1e-200, 0], [0, 1e200]], [1, 0]),
        ([1e308, 3], [[1e308, 3], [-1e308, 3]], [1, 0]),
    ],
)
def test_no_distance_is_too_large_or_too_small(row, centroids, expected):
    np.testing.assert_allclose(memberships([row], centroids), [expected], rtol=1e-12)


ANY = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=examples(300), deadline=None)
@given(
    X=arrays(np.float64, (3, 2), elements=ANY),
    centroids=arrays(np.float64, (3, 2), elements=ANY),
    m=st.sampled_from([1 + 1e-15, 1.0001, 1.5, 2.0, 7.0, 1e300]),
)
def test_every_row_adds_up_to_one_whatever_the_numbers(X, centroids, m):
    u = memberships(X, centroids, m)
    assert (u >= 0).all()
    np.testing.assert_allclose(u.sum(axis=1), 1, rtol=1e-14)


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 10**6), m=st.sampled_from([1.1, 2.0, 5.0]), k=st.integers(1, 6))
def test_the_nearest_centroid_has_the_largest_membership(seed, m, k):
    X, centroids = problem(seed, k=k)
    u = memberships(X, centroids, m)
    np.testing.assert_array_equal(u.argmax(axis=1), assign(X, centroids)[0])


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 10**6), m=st.sampled_from([1.3, 2.0, 4.0]))
def test_memberships_have_no_unit_no_origin_and_no_order(seed, m):
    X, centroids = problem(seed)
    u = memberships(X, centroids, m)
    np.testing.assert_allclose(memberships(X * 1e-7 + 3, centroids * 1e-7 + 3, m), u, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(memberships(X * 2.0**40, centroids * 2.0**40, m), u, rtol=1e-13)
    rows, clusters = np.random.default_rng(seed).permutation(len(X)), np.arange(len(centroids))[::-1]
    np.testing.assert_allclose(memberships(X[rows], centroids[clusters], m), u[rows][:, clusters], rtol=1e-13)


def test_there_may_be_no_rows():
    assert memberships(np.empty((0, 2)), [[0.0, 1.0]]).shape == (0, 1)
