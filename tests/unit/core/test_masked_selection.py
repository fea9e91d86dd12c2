"""Which grouping is taken: by equation 5, with or without the columns that hardly separate clusters."""

import numpy as np
import pytest

from flareclust.core.missing.grouping import method_a, method_b, objective
from flareclust.core.missing.selection import _between_variance, best_grouping, cost
from tests.unit.core.masked_cases import NAN


def test_a_centroid_without_a_group_costs_as_much_as_the_largest_distance():
    centroids, counts = [[0.0], [10.0], [1.0]], [1, 1, 1]
    group = np.array([0, 1, -1])
    assert objective(centroids, counts, group, 2) == 0
    assert cost(centroids, counts, group, 2) == 1
    assert cost(centroids, counts, np.array([0, 1, 0]), 2) == pytest.approx(2 * 0.05**2)


def test_what_columns_tell_is_the_variance_between_clusters_of_a_site():
    # Column 0: 0 and 4, weights 1 and 3: variance 3. Column 1 differs between sites only. Column 2 at one site.
    centroids = np.array([[0.0, 1.0, NAN], [4.0, 1.0, NAN], [0.0, 5.0, 2.0], [4.0, 5.0, 6.0]])
    np.testing.assert_allclose(_between_variance(centroids, np.array([1, 3, 1, 3]), np.array([0, 0, 1, 1])), [3, 0, 3])


def test_the_grouping_with_the_smaller_objective_is_taken_whichever_is_preferred():
    # Site 1 has cut the cluster at 0 in two; method A must put the halves into different groups.
    centroids, counts, site = (
        np.array([[0.0], [10.0], [0.1], [0.2], [10.1]]),
        np.ones(5, np.int64),
        np.array([0, 0, 1, 1, 2]),
    )
    by_a, by_b = (method(centroids, counts, site, 2).group for method in (method_a, method_b))
    assert by_a.tolist() != by_b.tolist()
    for preferred in ("A", "B"):
        chosen = best_grouping(centroids, counts, site, 2, "euclidean", "AB", preferred)
        assert (chosen.method, chosen.grouping.group.tolist()) == ("B", by_b.tolist())
        assert chosen.objectives["B"] < chosen.objectives["A"]


def test_of_equal_groupings_that_of_the_preferred_method_is_taken():
    centroids, counts, site = np.array([[0.0], [10.0], [1.0], [9.0]]), np.ones(4, np.int64), np.array([0, 0, 1, 1])
    for preferred in ("A", "B"):
        assert best_grouping(centroids, counts, site, 2, "euclidean", "AB", preferred).method == preferred
        assert best_grouping(centroids, counts, site, 2, "euclidean", preferred, "B").method == preferred


def test_sites_that_share_only_noise_are_not_compared_by_it():
    # Sites 0 and 2 are linked by site 1; the last column is noise, in which centroids of unlike clusters agree.
    centroids = np.array(
        [
            [0.0, 0.0, NAN, NAN, 0.30],
            [9.0, 9.0, NAN, NAN, -0.30],
            [NAN, 0.3, 0.2, NAN, 0.10],
            [NAN, 8.8, 9.1, NAN, -0.20],
            [NAN, NAN, 9.0, 9.0, 0.30],
            [NAN, NAN, 0.1, 0.1, -0.30],
        ]
    )
    counts, site = np.full(6, 50), np.array([0, 0, 1, 1, 2, 2])
    assert method_a(centroids, counts, site, 2).group.tolist() != [0, 1, 0, 1, 1, 0]
    chosen = best_grouping(centroids, counts, site, 2, "euclidean", "AB", "B")
    assert chosen.grouping.group.tolist() == [0, 1, 0, 1, 1, 0]
    assert chosen.left_out.tolist() == [False] * 4 + [True]
    assert not np.isnan(chosen.grouping.centroids).any()


def test_a_column_that_links_sites_is_not_left_out_though_it_tells_little():
    centroids = np.array([[0.0, 0.0, NAN], [9.0, 0.2, NAN], [NAN, 0.0, 0.0], [NAN, 0.2, 9.0]])
    chosen = best_grouping(centroids, np.ones(4, np.int64), np.array([0, 0, 1, 1]), 2, "euclidean", "AB", "B")
    assert chosen.grouping.group.tolist() == [0, 1, 0, 1]
    assert not chosen.left_out.any()
