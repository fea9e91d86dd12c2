"""Merging and scaled distances with unknown entries, by hand."""

import tracemalloc

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.core.lloyd import assign
from flareclust.core.missing import distances as masked_distances
from flareclust.core.missing.distances import PHIS, Extremes, extremes, nearest, scaled_distances
from flareclust.core.missing.grouping import merge, objective
from tests.unit.core.masked_cases import (
    NAN,
)

# ---- by hand: merge and distances ----


def test_merge_weighs_every_entry_by_the_rows_that_saw_it():
    # (1 * 1 + 3 * 3) / 4 = 2.5; the second entry is known to the second only, the third to none.
    np.testing.assert_array_equal(merge([[1.0, NAN, NAN], [3.0, 5.0, NAN]], [1, 3]), [2.5, 5.0, NAN])


def test_merging_nothing_knows_nothing():
    assert np.isnan(merge(np.empty((0, 3)), [])).all()


def test_a_distance_is_divided_by_that_of_the_extremes_on_the_common_entries():
    S = [[0.0, 0.0, 1.0], [6.0, 8.0, 2.0]]
    # Entries 0 and 1: 5 of 10. Entry 2 alone is common to the last pair: 0.5 of 1.
    A, B = [[0.0, 0.0, NAN], [NAN, NAN, 1.5]], [[3.0, 4.0, 1.0], [NAN, NAN, 2.0]]
    np.testing.assert_allclose(scaled_distances(A, B, extremes(S)), [[0.5, NAN], [0.5, 0.5]], rtol=1e-15)


def test_cosine_distances_by_hand():
    # 1 - cos of a right angle is 1, of 45 degrees 1 - 1/sqrt 2, which is also that of the extremes (1, 1) and (1, 0).
    over = Extremes(np.array([1.0, 1.0]), np.array([1.0, 0.0]))
    unit = 1 - 0.5**0.5
    got = scaled_distances([[5.0, 0.0]], [[0.0, 2.0], [3.0, 3.0], [9.0, 0.0], [0.0, 0.0]], over, "cosine")
    np.testing.assert_allclose(got, [[1 / unit, 1, 0, 1 / unit]], rtol=1e-14)


@pytest.mark.parametrize("phi", PHIS)
def test_points_that_agree_on_a_constant_column_alone_have_no_distance(phi):
    S = np.array([[0.1, 0.1], [0.1, 0.1]])
    assert np.isnan(scaled_distances(S, S, extremes(S), phi)).all()
    zero = np.zeros((2, 3))
    assert np.isnan(scaled_distances(zero, zero, extremes(zero), phi)).all()


def test_a_column_that_is_constant_but_for_rounding_gives_no_distance_and_changes_none():
    S = [[0.3], [0.1 + 0.2]]
    assert S[0] != S[1]
    assert np.isnan(scaled_distances(S[:1], S[1:], extremes(S))).all()
    large = [[1e15, 0.0], [1e15, 1.0], [1e15, 4.0]]
    np.testing.assert_array_equal(scaled_distances(large[:1], large, extremes(large)), [[0, 0.25, 1]])


@pytest.mark.parametrize("phi", PHIS)
def test_a_centroid_that_agrees_with_rows_in_a_constant_column_alone_does_not_attract_them(phi):
    centroids = [[7.0, 1.0, 9.0], [7.0, 9.0, 1.0], [7.0, NAN, NAN]]
    assert nearest([[7.0, 2.0, 8.0], [7.0, 8.0, 2.0]], centroids, phi).tolist() == [0, 1]


@pytest.mark.parametrize("phi", PHIS)
def test_rows_that_no_centroid_has_a_distance_to_belong_to_the_first_with_a_common_entry(phi):
    assert nearest([[7.0, NAN], [5.0, NAN]], [[NAN, 3.0], [7.0, 1.0], [7.0, 5.0]], phi).tolist() == [1, 1]


def test_extremes_ignore_what_is_unknown():
    high, low = extremes([[1.0, NAN, NAN], [NAN, 2.0, NAN], [3.0, -4.0, NAN]])
    np.testing.assert_array_equal(high, [3.0, 2.0, NAN])
    np.testing.assert_array_equal(low, [1.0, -4.0, NAN])


def test_blocks_keep_memory_bounded_and_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(3000, 200)), rng.normal(size=(10, 200))
    A[rng.random(A.shape) < 0.3] = NAN
    A[:500] = A[0]
    over, want = extremes(A), scaled_distances(A, B, extremes(A))
    monkeypatch.setattr(masked_distances, "_BLOCK", 1 << 14)
    tracemalloc.start()
    got = scaled_distances(A, B, over)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert peak < A.nbytes / 2


# ---- by hand: nearest ----


def test_where_all_is_known_nearest_is_plain_assignment():
    rng = np.random.default_rng(1)
    X, centroids = rng.normal(size=(50, 3)), rng.normal(size=(4, 3))
    np.testing.assert_array_equal(nearest(X, centroids), assign(X, centroids)[0])
    unknown = np.column_stack([centroids, np.full(4, NAN)])
    np.testing.assert_array_equal(nearest(np.column_stack([X, X[:, 0]]), unknown), assign(X, centroids)[0])


def test_nearest_scales_each_subspace_before_it_compares():
    # 2 of the first column's range of 10 is nearer than 1 of the second's range of 2, though 1 < 2.
    centroids = [[0.0, NAN], [10.0, NAN], [NAN, 0.0], [NAN, 2.0]]
    assert nearest([[2.0, 1.0], [NAN, 0.1], [5.0, NAN]], centroids).tolist() == [0, 2, 0]


@pytest.mark.parametrize("phi", PHIS)
def test_rows_without_an_entry_that_a_centroid_knows_get_no_label(phi):
    assert nearest([[NAN, 3.0], [1.0, 3.0]], [[1.0, NAN], [4.0, NAN]], phi).tolist() == [-1, 0]
    assert nearest([[1.0, 3.0]], [[NAN, NAN]], phi).tolist() == [-1]
    assert nearest(np.empty((0, 2)), [[1.0, NAN], [NAN, 2.0]], phi).tolist() == []


def test_nearest_takes_the_lower_index_of_equals():
    assert nearest([[1.0, 5.0]], [[0.0, NAN], [2.0, NAN], [1.0, NAN], [1.0, NAN]]).tolist() == [2]
    assert nearest([[1.0, 5.0]], [[NAN, 0.0], [0.0, NAN], [2.0, NAN], [NAN, 10.0]]).tolist() == [0]


# ---- both, and what cannot be ----


def test_distances_refuse_columns_that_differ_and_the_objective_groups_that_are_not():
    with pytest.raises(UserError, match="same columns"):
        scaled_distances([[0.0]], [[0.0, 1.0]], extremes([[0.0]]))
    with pytest.raises(UserError, match="same columns"):
        nearest([[0.0]], [[0.0, 1.0]])
    with pytest.raises(UserError, match="at least one row"):
        nearest([[0.0]], np.empty((0, 1)))
    with pytest.raises(UserError, match="below k=1"):
        objective([[0.0], [1.0]], [1, 1], [0, 1], 1)
