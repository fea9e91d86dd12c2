"""Methods A and B of grouping centroids with unknown entries, by hand."""

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.core.missing.distances import PHIS
from flareclust.core.missing.grouping import method_a, method_b, objective
from tests.unit.core.masked_cases import NAN

# ---- by hand: method A ----


def test_method_a_follows_a_chain_of_overlaps():
    # Site 2 sees the last column only: comparable with no seed, but with the groups once site 1 has joined them.
    centroids = [[0.0, 0.0, NAN], [9.0, 9.0, NAN], [NAN, 1.0, 1.0], [NAN, 8.0, 8.0], [NAN, NAN, 7.0], [NAN, NAN, 2.0]]
    found = method_a(centroids, [1, 1, 1, 3, 1, 1], [0, 0, 1, 1, 2, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 1, 1, 0]
    np.testing.assert_array_equal(found.centroids, [[0.0, 0.5, 1.5], [9.0, 8.25, 7.75]])
    np.testing.assert_array_equal(found.counts, [[1, 2, 2], [1, 4, 4]])


def test_method_a_leaves_what_it_never_can_compare_without_a_group():
    found = method_a([[0.0, NAN], [9.0, NAN], [1.0, NAN], [NAN, 5.0], [NAN, NAN]], [1] * 5, [0, 0, 1, 2, 3], 2)
    assert found.group.tolist() == [0, 1, 0, -1, -1]
    np.testing.assert_array_equal(found.centroids, [[0.5, NAN], [9.0, NAN]])


def test_method_a_moves_a_sites_second_centroid_to_the_next_group():
    # Both of site 1 are nearest to 0; 0.5 is nearer and takes the place.
    assert method_a([[0.0], [10.0], [1.0], [0.5]], [1] * 4, [0, 0, 1, 1], 2).group.tolist() == [0, 1, 1, 0]


def test_method_a_leaves_out_a_centroid_where_every_group_has_its_site():
    # Site 1 has three clusters and there are two groups. At the end 6 is farthest from both.
    found = method_a([[0.0], [10.0], [1.0], [6.0], [10.0]], [1] * 5, [0, 0, 1, 1, 1], 2)
    assert found.group.tolist() == [0, 1, 0, -1, 1]
    np.testing.assert_array_equal(found.centroids, [[0.5], [10.0]])


def test_method_a_merges_all_members_with_the_rows_behind_each_entry():
    # Entry 1: 10 rows at 0 and 1 at 11 make 1; a mean with one count for the whole centroid would weigh site 0 too.
    found = method_a([[4.0, NAN], [4.0, 0.0], [15.0, 11.0]], [1000, 10, 1], [0, 1, 2], 1)
    np.testing.assert_allclose(found.centroids, [[4055 / 1011, 1.0]], rtol=1e-15)
    np.testing.assert_array_equal(found.counts, [[1011, 11]])


def test_method_a_starts_from_the_first_site_with_k_clusters():
    found = method_a([[9.0], [0.2], [9.1], [0.0], [0.1], [9.2]], [1] * 6, [0, 1, 1, 2, 3, 3], 2)
    assert found.group.tolist() == [1, 0, 1, 0, 0, 1]


def test_where_nobody_has_k_clusters_method_a_adds_the_farthest_to_the_largest_sites():
    # Seeds 0 and 10 (site 1); 4 is farther from both than 12, and becomes the third group.
    found = method_a([[12.0], [0.0], [10.0], [4.0], [3.0]], [1] * 5, [0, 1, 1, 2, 3], 3)
    assert found.group.tolist() == [1, 0, 1, 2, 2]


def test_added_seeds_are_comparable_with_all_seeds_where_any_centroid_is():
    # Centroid 2 shares a column with seed 0 only, at the largest distance; centroid 3 shares one with both seeds.
    centroids = [[0.0, 0.0, NAN], [NAN, 1.0, 1.0], [9.0, NAN, NAN], [NAN, 5.0, NAN]]
    found = method_a(centroids, [1] * 4, [0, 0, 1, 2], 3)
    assert found.group.tolist() == [0, 1, 0, 2]


def test_where_all_sites_have_more_than_k_clusters_k_of_the_smallest_site_are_taken():
    # Site 1 has the fewest, and its farthest two are 10 and 0; 3 finds both groups taken by its own site.
    found = method_a([[1.0], [9.0], [5.5], [5.2], [10.0], [0.0], [3.0]], [1] * 7, [0, 0, 0, 0, 1, 1, 1], 2)
    assert found.group.tolist() == [1, 0, -1, -1, 0, 1, -1]


# ---- by hand: method B ----


def test_method_b_groups_biased_clusters_that_overlap():
    # Farthest: 0 and 20. Both of site 1 are nearer to 0, and may share a group here.
    found = method_b([[0.0], [20.0], [7.0], [8.0], [15.0]], [1] * 5, [0, 0, 1, 1, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(found.centroids, [[5.0], [17.5]])
    np.testing.assert_array_equal(found.counts, [[3], [2]])


def test_method_b_weighs_rows_and_reassigns():
    # Seeds 0 and 10. 5.5 joins 10; the heavy 10 keeps its mean near 10 (9.95...), so that 4 stays with 0 and 5.5 goes.
    found = method_b([[0.0], [10.0], [4.0], [5.5]], [1, 99, 1, 1], [0, 0, 1, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(found.centroids, [[9.5 / 3], [10.0]], rtol=1e-15)


def test_method_b_joins_what_its_seeds_cannot_be_compared_with_through_the_groups():
    found = method_b([[0.0, NAN], [9.0, NAN], [1.0, 1.0], [8.0, 8.0], [NAN, 2.0]], [1] * 5, [0, 0, 1, 1, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 1, 0]


def test_a_group_of_method_b_that_loses_its_members_keeps_its_centroid():
    # Seeds 3, 9 and the other 3, which is equal to the first; the first takes both.
    found = method_b([[3.0, NAN], [3.0, NAN], [9.0, NAN]], [2, 3, 4], [0, 1, 2], 3)
    assert found.group.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(found.centroids, [[3.0, NAN], [9.0, NAN], [3.0, NAN]])
    np.testing.assert_array_equal(found.counts, [[5, 0], [4, 0], [0, 0]])


# ---- both, and what cannot be ----


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("method", [method_a, method_b])
def test_one_group_takes_all_that_can_be_compared(method, phi):
    found = method([[1.0, 2.0], [-3.0, NAN], [NAN, -4.0]], [1, 1, 2], [0, 1, 2], 1, phi)
    assert found.group.tolist() == [0, 0, 0]
    np.testing.assert_allclose(found.centroids, [[-1.0, -2.0]], rtol=1e-15)


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("method", [method_a, method_b])
def test_equal_centroids_and_a_constant_column_raise_no_nan(method, phi):
    equal = method(np.full((4, 2), 0.1), [1] * 4, [0, 0, 1, 1], 2, phi)
    assert set(equal.group.tolist()) == {-1, 0, 1}  # nothing shows which of the two the others belong to
    np.testing.assert_allclose(equal.centroids, np.full((2, 2), 0.1), rtol=1e-15)
    constant = method([[7.0, 0.0], [7.0, 9.0], [7.0, 1.0], [7.0, 8.0]], [1] * 4, [0, 0, 1, 1], 2, phi)
    np.testing.assert_array_equal(constant.centroids[:, 0], [7.0, 7.0])
    assert (constant.group >= 0).all()


@pytest.mark.parametrize("method", [method_a, method_b])
def test_agreeing_in_a_constant_column_brings_no_centroids_together(method):
    # Sites 0 and 2 share the constant only; site 1 links them by the second and the third column.
    centroids = [[7.0, 0, NAN], [7.0, 9, NAN], [NAN, 1, 1], [NAN, 8, 8], [7.0, NAN, 7], [7.0, NAN, 2]]
    assert method(centroids, [1] * 6, [0, 0, 1, 1, 2, 2], 2).group.tolist() == [0, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("method", [method_a, method_b])
def test_as_many_groups_as_centroids_leave_each_alone(method):
    centroids = np.array([[0.0], [5.0], [9.0]])
    found = method(centroids, [1, 2, 3], [0, 1, 1], 3)
    np.testing.assert_array_equal(found.centroids[found.group], centroids)


@pytest.mark.parametrize("method", [method_a, method_b])
def test_more_groups_than_centroids_end_the_job_with_advice(method):
    with pytest.raises(JobFailed, match=r"found 2 clusters in all.*k=3.*ask for fewer clusters"):
        method([[0.0], [1.0]], [1, 1], [0, 1], 3)


def test_a_perfect_grouping_has_objective_0_and_centroids_without_a_group_do_not_count():
    centroids = [[0.0, NAN], [0.0, 4.0], [9.0, 1.0], [5.0, 5.0]]
    assert objective(centroids, [1] * 4, [0, 0, 1, -1], 2) == 0
    # Group of 0 and 9 (merged 4.5, of a range of 9): 2 * 0.5^2 in the first column.
    assert objective([[0.0], [9.0]], [1, 1], [0, 0], 1) == pytest.approx(0.5, rel=1e-15)
    assert objective(centroids, [1] * 4, [-1] * 4, 2) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"centroids": [[0.0], [np.inf]]}, "infinite"),
        ({"centroids": [0.0, 1.0]}, "two axes"),
        ({"centroids": [["a"], ["b"]]}, "table of numbers"),
        ({"counts": [1]}, "counts must be 2 integers"),
        ({"counts": [1, 0]}, "counts must be integers of at least 1"),
        ({"counts": [1.0, NAN]}, "counts must be integers"),
        ({"site": [0, -1]}, "site must be integers of at least 0"),
        ({"k": 0}, "k must be at least 1"),
        ({"phi": "cosin"}, "did you mean 'cosine'"),
    ],
)
@pytest.mark.parametrize("method", [method_a, method_b])
def test_input_that_does_not_fit_is_refused_with_words(method, change, message):
    fitting = {"centroids": [[0.0], [1.0]], "counts": [1, 1], "site": [0, 1], "k": 2, "phi": "euclidean"}
    assert method(**fitting).group.tolist() in ([0, 1], [1, 0])
    with pytest.raises(UserError, match=message):
        method(**{**fitting, **change})
