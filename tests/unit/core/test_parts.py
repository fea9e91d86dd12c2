"""Rows in parts: whatever the parts, sums, seeds and clusters are those of all rows at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Aborted, Refusal
from flareclust.core import assessment, local, part_kmeans, part_sums
from flareclust.core.disclosure import describable
from flareclust.core.lloyd import assign, kmeans, recompute_centroids
from flareclust.core.parts import View
from flareclust.core.seeds import kmeans_plusplus, row_at
from tests.parts import LocalParts, cut

X = np.concatenate([np.random.default_rng(1).normal(size=(700, 3)) + 4 * place for place in range(5)])
X = np.random.default_rng(2).permutation(X)
PARTS = cut(X, 1, 300, 1000, 1001, 2500)
EQUAL = {"rtol": 1e-12, "atol": 1e-12}


def test_the_extent_and_the_variances_are_those_of_all_rows():
    extent = PARTS.extent
    assert (len(PARTS), PARTS.d) == X.shape
    np.testing.assert_array_equal([extent.least, extent.largest], [X.min(axis=0), X.max(axis=0)])
    np.testing.assert_allclose(extent.mean, X.mean(axis=0), **EQUAL)
    np.testing.assert_allclose(PARTS.variance(), X.var(axis=0), **EQUAL)


def test_a_view_scales_rows_as_the_expression_does():
    view = View(np.array([1.0, -2.0, 3.0]), np.array([0.3, 7.0, 1e-3]))
    scaled = (X - view.mean) / view.deviation
    seen = PARTS.seen(view)
    np.testing.assert_array_equal(np.concatenate(seen.each(np.copy)), scaled)
    np.testing.assert_array_equal(seen.extent.least, scaled.min(axis=0))
    np.testing.assert_array_equal(seen.extent.largest, scaled.max(axis=0))
    np.testing.assert_allclose(seen.variance(), scaled.var(axis=0), rtol=1e-12)
    assert PARTS.view is None


@pytest.mark.parametrize("number", [0, 1, 299, 300, 1000, 1001, len(X) - 1])
def test_a_row_is_found_in_its_part(number):
    np.testing.assert_array_equal(PARTS.row(number), X[number])


@pytest.mark.parametrize("n", [1, 2, 7, 1000, (1 << 20) + 3])
def test_the_first_seed_is_drawn_as_of_an_array(n):
    for seed in range(20):
        drawn = part_kmeans._first_row(n, np.random.default_rng(seed))
        assert drawn == row_at(np.ones(n), float(n), np.random.default_rng(seed).random())


@given(places=st.lists(st.integers(1, len(X) - 1), max_size=6), k=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_seeds_are_the_same_rows_however_rows_are_cut(places, k, seed):
    alone, _ = kmeans_plusplus(X, k, np.random.default_rng(seed))
    found = part_kmeans.kmeans_plusplus(cut(X, *sorted(set(places))), k, np.random.default_rng(seed))
    np.testing.assert_array_equal(found, alone)


def test_fewer_seeds_where_there_are_fewer_different_rows():
    rows = np.repeat([[1.0, 2.0], [3.0, 4.0]], 5, axis=0)
    assert len(part_kmeans.kmeans_plusplus(cut(rows, 3, 6), 4, np.random.default_rng(0))) == 2


@given(places=st.lists(st.integers(1, len(X) - 1), max_size=6), k=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_clusters_of_kmeans_are_the_same_however_rows_are_cut(places, k, seed):
    alone = recompute_centroids(X, kmeans(X, k, np.random.default_rng(seed)))
    parts = cut(X, *sorted(set(places)))
    found = part_kmeans._kmeans(parts, k, np.random.default_rng(seed))
    np.testing.assert_array_equal(found.counts, alone.counts)
    np.testing.assert_allclose(found.centroids, alone.centroids, **EQUAL)
    np.testing.assert_array_equal(np.concatenate(found.labels), alone.labels)


@pytest.mark.parametrize("d", [1, 2, 17])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_clusters_of_few_and_many_columns_also_far_from_zero(d, shift):
    rng = np.random.default_rng(d)
    rows = shift + rng.normal(size=(900, d)) + 5 * rng.integers(4, size=(900, 1))
    alone = recompute_centroids(rows, kmeans(rows, 4, np.random.default_rng(0)))
    found = part_kmeans._kmeans(cut(rows, 10, 300, 811), 4, np.random.default_rng(0))
    np.testing.assert_array_equal(found.counts, alone.counts)
    np.testing.assert_allclose(found.centroids, alone.centroids, rtol=1e-12, atol=1e-12)


def test_the_best_of_several_starts_is_as_good_as_alone():
    """Of starts that end with the same clusters, rounding says which one counts, and so their order."""
    alone = recompute_centroids(X, kmeans(X, 5, np.random.default_rng(1), n_init=3))
    found = part_kmeans._kmeans(PARTS, 5, np.random.default_rng(1), n_init=3)
    np.testing.assert_allclose(np.sort(found.centroids, axis=0), np.sort(alone.centroids, axis=0), **EQUAL)
    assert sorted(found.counts) == sorted(alone.counts)


def test_an_empty_cluster_takes_the_farthest_row_as_alone():
    """Of three seeds the last has no rows left after a step."""
    from flareclust.core.lloyd import lloyd

    rows = np.array([[0.0], [1.0], [10.0], [11.0], [30.0]])
    start = np.array([[0.0], [10.0], [100.0]])
    alone = lloyd(rows, start)
    for places in ([], [2], [1, 4], [4]):
        found = part_kmeans._lloyd(cut(rows, *places), start, 1e-4 * rows.var())
        np.testing.assert_array_equal(found.counts, alone.counts)
        np.testing.assert_allclose(found.centroids, alone.centroids, **EQUAL)


def test_rows_that_are_all_at_their_centroids_leave_clusters_empty():
    rows = np.repeat([[1.0, 2.0], [3.0, 4.0]], 5, axis=0)
    start = np.array([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    assert part_kmeans._lloyd(cut(rows, 5), start, 0.0).counts.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("reported", "min_count"),
    [
        (None, 0),
        (None, 2),
        (None, 900),
        ([True, False, True, True], 0),
        ([True, False, True, True], 900),
        ([False] * 4, 0),
    ],
)
def test_an_update_is_that_of_all_rows(reported, min_count):
    centroids = X[[5, 50, 500, 1500]]
    reported = None if reported is None else np.array(reported)
    alone = local.lloyd_update(X, centroids, min_count, reported)
    found, keep = part_sums.lloyd_update(PARTS, centroids, min_count, reported)
    found = found.of(keep)
    np.testing.assert_array_equal(found.source, alone.source)
    np.testing.assert_array_equal(found.counts, alone.counts)
    np.testing.assert_allclose(found.centroids, alone.centroids, **EQUAL)


def test_centroids_without_rows_are_no_groups():
    found, keep = part_sums.lloyd_update(PARTS, np.array([[0.0, 0, 0], [999.0, 0, 0], [16.0, 16, 16]]), 2)
    assert found.source.tolist() == [0, 2]
    assert keep.tolist() == [True, True]
    assert found.counts.sum() == len(X)


def test_what_may_not_be_described_alone_may_not_be_in_parts():
    """One row, one row repeated, a mean that is a row, and a cluster of plain rows; parts cut through each of them."""
    rows = np.array([[0.0], [10.0], [10.0], [20.0], [21.0], [22.0], [30.0], [30.5], [31.1], [31.2]])
    centroids = np.array([[0.0], [10.0], [21.0], [30.7]])
    labels = assign(rows, centroids)[0]
    means = np.array([rows[labels == r].mean(axis=0) for r in range(4)])
    alone = describable(rows, labels, means, 2)
    assert alone.tolist() == [False, False, False, True]
    for places in ([2], [4, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]):
        assert part_sums.lloyd_update(cut(rows, *places), centroids, 2)[1].tolist() == alone.tolist()


def test_squared_deviations_are_those_of_the_groups():
    found, _ = part_sums.lloyd_update(PARTS, X[:4], 2)
    labels = assign(X, X[:4])[0]
    alone = [((X[labels == r] - X[labels == r].mean(axis=0)) ** 2).sum(axis=0) for r in range(4)]
    np.testing.assert_allclose(part_sums.squared_deviations(PARTS, found), alone, rtol=1e-12)


def test_an_assessment_is_that_of_all_rows():
    alone = assessment.assessment_sums(X, X[:6])[1]
    found = part_sums.assessed(PARTS, X[:6])
    assert found.keys() == alone.keys()
    np.testing.assert_array_equal(found["counts"], alone["counts"])
    for name in alone:
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-12)


def test_a_site_with_too_few_rows_refuses():
    with pytest.raises(Refusal, match="fewer rows than min_count=3"):
        part_sums.lloyd_update(LocalParts([[1.0], [2.0]]), np.array([[1.0]]), 3)


def test_a_stopped_job_ends_between_passes():
    stopped = PARTS.until(lambda: True)
    with pytest.raises(Aborted):
        part_kmeans.kmeans_plusplus(stopped, 3, np.random.default_rng(0))
    with pytest.raises(Aborted):
        part_kmeans._lloyd(stopped, X[:3], 0.0)
