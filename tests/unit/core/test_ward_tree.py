"""Ward's tree over weighted points: against SciPy's on the rows, its cuts, and the cut that lasts longest."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.errors import UserError
from flareclust.core.ward_tree import cut, longest_lived, representatives, ward_linkage


def blobs(k, n, d=2, apart=10.0, seed=0):
    rng = np.random.default_rng(seed)
    return np.repeat(apart * rng.normal(size=(k, d)), n, axis=0) + rng.normal(size=(k * n, d))


@pytest.mark.parametrize("d", [1, 3])
def test_of_single_rows_it_is_the_tree_of_scipy(d):
    X = np.random.default_rng(d).normal(size=(150, d))
    found, expected = ward_linkage(X, np.ones(150)), linkage(X, "ward")
    np.testing.assert_allclose(found.height, expected[:, 2], rtol=1e-9)
    np.testing.assert_array_equal(np.sort(found.rows), np.sort(expected[:, 3]))
    np.testing.assert_array_equal(np.column_stack([found.left, found.right]), np.sort(expected[:, :2].astype(int)))


def test_a_weighted_point_is_worth_its_rows_repeated():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(20, 3)), rng.integers(1, 6, 20)
    rows = np.repeat(points, weights, axis=0)
    expected = linkage(rows, "ward")[len(rows) - 20 :, 2]  # the merges of equal rows have height 0
    np.testing.assert_allclose(ward_linkage(points, weights).height, expected, rtol=1e-9)


def test_squared_heights_add_up_to_the_sum_of_squares():
    rng = np.random.default_rng(1)
    points, weights = 100 + rng.normal(size=(50, 4)), rng.integers(1, 30, 50)
    total = (weights[:, None] * (points - np.average(points, axis=0, weights=weights)) ** 2).sum()
    assert (ward_linkage(points, weights).height ** 2).sum() / 2 == pytest.approx(total)


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_cuts_are_those_of_scipy(k):
    X = np.random.default_rng(2).normal(size=(40, 2))
    found = cut(ward_linkage(X, np.ones(40)), k)
    assert adjusted_rand_score(fcluster(linkage(X, "ward"), k, "maxclust"), found) == 1.0
    firsts = [int(np.flatnonzero(found == c)[0]) for c in range(k)]
    assert firsts == sorted(firsts)


def test_more_sets_than_points_are_refused():
    with pytest.raises(UserError, match="at most the number of points, 3, got 4"):
        cut(ward_linkage(np.eye(3), np.ones(3)), 4)


@pytest.mark.parametrize("k", [2, 5, 9])
def test_the_cut_that_lasts_longest_is_that_into_separated_clusters(k):
    corners = 30.0 * np.array([[i % 3, i // 3] for i in range(k)])
    X = np.repeat(corners, 30, axis=0) + np.random.default_rng(k).normal(size=(30 * k, 2))
    found = ward_linkage(X, np.ones(len(X)))
    assert longest_lived(found, 20) == k
    assert longest_lived(found, k - 1) <= k - 1
    assert longest_lived(found, 20, k) == k
    assert longest_lived(found, 20, k + 1) > k


def test_points_in_one_place_have_one_cluster_and_a_tree_of_height_0():
    found = ward_linkage(np.ones((4, 2)), np.ones(4))
    assert found.height.tolist() == [0, 0, 0]
    assert longest_lived(found, 4) == 1
    assert longest_lived(ward_linkage(np.ones((1, 2)), np.ones(1)), 1) == 1


@pytest.mark.parametrize("most", [1, 8, 64])
def test_representatives_are_sets_of_at_least_two_points_of_one_cluster(most):
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(90, 2)), rng.integers(1, 9, 90)
    cluster = np.repeat([-1, 0, 1, 2], [10, 40, 39, 1])
    sets = representatives(points, weights, cluster, most)
    assert np.array_equal(np.unique(sets), np.arange(sets.max() + 1))
    for s in range(sets.max() + 1):
        (of,) = set(cluster[sets == s])
        assert (sets == s).sum() >= 2 or of == 2  # a cluster of one point
    number = [len(set(sets[cluster == c])) for c in range(-1, 3)]
    assert max(number) <= most
    assert number[1] >= min(most - 1, 13)
    assert number[3] == 1


def test_representatives_are_the_sets_of_wards_tree_where_none_is_a_single_point():
    pairs = np.array([[0.0, 0], [0, 1], [9, 0], [9, 1], [20, 0], [20, 1]])
    sets = representatives(pairs, np.ones(6), np.zeros(6, np.int64), 64)
    np.testing.assert_array_equal(sets, cut(ward_linkage(pairs, np.ones(6)), 3))
    alone = np.append(pairs, [[24.0, 0]], axis=0)
    assert representatives(alone, np.ones(7), np.zeros(7, np.int64), 64)[-1] == sets[-1]


def test_a_single_point_in_no_cluster_is_in_no_set():
    sets = representatives(np.arange(5.0)[:, None], np.ones(5), np.array([0, 0, -1, 1, 1]), 64)
    assert sets.tolist() == [0, 0, -1, 1, 1]
