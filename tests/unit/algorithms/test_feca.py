"""FeCA by hand: which centroids go, their radii, and how the server groups them."""

import math

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.feca import group_by_radius
from flareclust.core.lloyd import kmeans
from flareclust.executors.feca import (
    FeCAExecutor,
    _theoretical_radii,
    empirical_radii,
    remove_one_fit_many,
)
from tests.unit.algorithms.feca_cases import MODES, TASK, aggregate, local_clusters


def by_hand(*clusters):
    """LocalClusters of clusters given as lists of numbers on a line."""
    labels = np.repeat(np.arange(len(clusters)), [len(cluster) for cluster in clusters])
    X = np.concatenate([np.array(cluster, dtype=float) for cluster in clusters]).reshape(-1, 1)
    return local_clusters(X, labels, np.array([[np.mean(cluster)] for cluster in clusters]))


def received(**sites):
    """Replies from (centroid, radius) pairs on a line."""
    return {
        site: {"centroids": np.array([[float(c)] for c, _ in pairs]), "radii": np.array([float(r) for _, r in pairs])}
        for site, pairs in sites.items()
    }


# ---- worked by hand ----


def test_exactly_the_one_fit_many_centroid_is_removed():
    # Clusters {0, 2}, {10, 12} and {20, 21, 22, 23}. The local solution has one centroid for the first two, at 6, and
    # two for the third, at 20.5 and 22.5.
    # rms^2: (36 + 16 + 16 + 36) / 4 = 26 against 0.5 / 2, so i = 0 and G_i = 104.
    # Distances 14.5, 16.5, 2: the pair is (1, 2), c_j = 21.5, G_j = 2.25 + 0.25 + 0.25 + 2.25 = 5 <= 104: c_i goes.
    # Then i = 1 (0.25 = 0.25, the first), G_i = 0.5 < G_j = 5: the end.
    solution = by_hand([0, 2, 10, 12], [20, 21], [22, 23])

    kept, made_of = remove_one_fit_many(solution)

    assert made_of == [(1,), (2,)]
    np.testing.assert_array_equal(kept.centroids, [[20.5], [22.5]])
    np.testing.assert_array_equal(kept.sse, [0.5, 0.5])

    kept, made_of = remove_one_fit_many(solution, "merge")

    assert made_of == [(1, 2)]
    np.testing.assert_array_equal(kept.centroids, [[21.5]])
    np.testing.assert_array_equal(kept.counts, [4])
    np.testing.assert_array_equal(kept.sse, [5.0])


def test_nothing_is_removed_from_a_good_solution():
    # Centroids 1, 11, 22; rms^2 1, 1, 4: i = 2, G_i = 8. The pair (0, 1) merged: 6, G_j = 104 > 8.
    kept, made_of = remove_one_fit_many(by_hand([0, 2], [10, 12], [20, 24]))
    assert made_of == [(0,), (1,), (2,)]
    np.testing.assert_array_equal(kept.centroids, [[1], [11], [22]])


@pytest.mark.parametrize(("last", "left"), [(36, [(1,), (2,)]), (37, [(0,), (1,), (2,)])])
def test_a_tie_removes(last, left):
    # i = 0 with centroid 3 and G_i = 9 + 9 = 18. The pair 30 and `last`: 36 gives G_j = 3^2 + 3^2 = 18, a tie;
    # 37 gives 2 * 3.5^2 = 24.5.
    assert remove_one_fit_many(by_hand([0, 6], [30], [last]))[1] == left


def test_of_two_centroids_one_stays_even_when_a_tie_removes():
    # Both centroids are 2, G_i = 4 + 4 and G_j = 4 + 4 + 0.
    for mode in MODES:
        assert remove_one_fit_many(by_hand([0, 4], [2]), mode)[1] == [(1,)]
    # Apart, the merged cluster costs more than either: 8 against 8 + 2 + (2 * 2 / 4) 8^2.
    assert remove_one_fit_many(by_hand([0, 4], [9, 11]))[1] == [(0,), (1,)]
    assert remove_one_fit_many(by_hand([0, 4]))[1] == [(0,)]


def test_standard_deviation_is_not_the_sum_of_squares():
    # rms^2: 25 of {0, 10}, 4 of four rows {30, 34, 30, 34} (sum 16) and 0. The pair is (1, 2): 32 and 36,
    # c_j = (4 * 32 + 36) / 5 = 32.8, G_j = 16 + (4 * 1 / 5) 4^2 = 28.8 <= G_0 = 50: cluster 0 goes.
    # Then i = 1 with G_i = 16 < 28.8.
    assert remove_one_fit_many(by_hand([0, 10], [30, 34, 30, 34], [36]))[1] == [(1,), (2,)]
    # With forty rows {30, 34} the sum is 160, but 25 > 4 still makes i = 0; G_j = 160 + (40 / 41) 16 > 50: the end.
    assert remove_one_fit_many(by_hand([0, 10], [30, 34] * 20, [36]))[1] == [(0,), (1,), (2,)]


def test_empirical_radius_by_hand():
    # Half the ways to the neighbours: 2, 2, 3. Reaches 1, 5, 3.5: the smaller of both.
    radii = empirical_radii(np.array([[0.0], [4.0], [10.0]]), np.array([1.0, 5.0, 3.5]))
    np.testing.assert_array_equal(radii, [1, 2, 3])


@pytest.mark.parametrize("assign", [empirical_radii, _theoretical_radii])
def test_a_single_centroid_has_its_reach_as_radius(assign):
    np.testing.assert_array_equal(assign(np.array([[5.0, 5.0]]), np.array([3.0])), [3])


@pytest.mark.parametrize(
    ("centroids", "reach", "radius"),
    [
        # 0 and 1 overlap (0.6 + 0.6 > 1) and leave; 10 and 16 do not (2 + 2 < 6): half of 6, for all four.
        ([0, 1, 10, 16], [0.6, 0.6, 2, 2], 3.0),
        # 0 and 1 leave. 2.5 would overlap 1 (1 + 0.6 > 1.5), but 1 is no longer there: half of 10 - 2.5.
        ([0, 1, 2.5, 10], [0.6, 0.6, 1, 1], 3.75),
        # Touching is not overlapping (1 + 1 = 2).
        ([0, 2], [1, 1], 1.0),
        # Both leave, so the smallest distance of all counts.
        ([0, 1], [1, 1], 0.5),
        # 0 and 1 leave, 9 is alone: the smallest distance of all again.
        ([0, 1, 9], [1, 1, 1], 0.5),
    ],
)
def test_theoretical_radius_by_hand(centroids, reach, radius):
    radii = _theoretical_radii(np.array(centroids, dtype=float).reshape(-1, 1), np.array(reach, dtype=float))
    np.testing.assert_array_equal(radii, [radius] * len(centroids))


TWO_SITES = received(a=[(0, 3), (10, 2), (20, 1)], b=[(1, 0.5), (10.5, 0.5), (20.2, 0.1)])


def test_of_groups_of_equal_size_the_first_formed_win():
    # Largest radius first: 0 takes 1, 10 takes 10.5, 20 takes 20.2. Three groups of two, k = 2.
    centroids, record = aggregate(2, TWO_SITES)
    np.testing.assert_array_equal(centroids, [[0.5], [10.25]])
    np.testing.assert_array_equal(record["radii"], [3, 2])
    np.testing.assert_array_equal(record["votes"], [2, 2])


def test_fewer_groups_than_k_give_fewer_centroids():
    centroids, record = aggregate(5, TWO_SITES)
    np.testing.assert_allclose(centroids, [[0.5], [10.25], [20.1]], rtol=1e-15)
    assert len(record["votes"]) == 3


def test_a_larger_group_beats_one_formed_before():
    centroids, record = aggregate(1, received(a=[(0, 9), (50, 1)], b=[(50.5, 1)]))
    np.testing.assert_array_equal(centroids, [[50.25]])
    np.testing.assert_array_equal(record["votes"], [2])


def test_a_centroid_joins_one_group_only():
    # 0 (radius 3) takes 2; 4 (radius 2.5) would reach it too, but comes later.
    groups, picked = group_by_radius(np.array([[0.0], [2.0], [4.0]]), np.array([3.0, 0.1, 2.5]))
    np.testing.assert_array_equal(groups, [0, 0, 1])
    np.testing.assert_array_equal(picked, [0, 2])


def test_of_equal_radii_the_first_received_is_picked():
    # 0 picked first takes 2, so {0, 2} and {4}; 4 first would make {2, 4} and {0}.
    centroids, _ = aggregate(2, received(a=[(0, 2), (2, 1)], b=[(4, 2)]))
    np.testing.assert_array_equal(centroids, [[1], [4]])


def test_a_centroid_at_exactly_the_radius_joins():
    corner = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])  # sqrt(3) apart
    np.testing.assert_array_equal(group_by_radius(corner, np.array([math.sqrt(3), 0.5]))[0], [0, 0])


# ---- what a site does not send ----


def test_small_and_constant_clusters_stay_and_the_rest_goes():
    X = np.concatenate([np.linspace(0, 1, 40), [500.0], np.full(30, 1000.0)]).reshape(-1, 1)
    reply = FeCAExecutor(3).answer(TASK, X, never_abort).arrays
    np.testing.assert_allclose(reply["centroids"], [[0.5]])


def test_a_site_with_fewer_rows_than_k_refuses():
    with pytest.raises(Refusal, match="fewer rows than k=4"):
        FeCAExecutor(4).answer(TASK, np.eye(3), never_abort)


@pytest.mark.parametrize(
    "wrong", [{"radius": "emprical"}, {"after_removal": "mrege"}, {"init": "kmeans++"}, {"n_init": 0}, {"k": 0}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(UserError):
        FeCAExecutor(**({"k": 3} | wrong))


def test_a_centroid_is_never_a_row_though_its_cluster_grew_in_the_last_step():
    # The outlier's cluster is {60} until the last step and {30.81, 60} after it; its centroid stays 60.
    X = np.concatenate([np.linspace(-3, 3, 1001), [30.81, 60.0]]).reshape(-1, 1)
    reply = FeCAExecutor(3, seed=0).answer(TASK, X, never_abort).arrays
    assert 60.0 not in reply["centroids"]


# ---- figures on the S-sets: 10 sites, 30 seeds ----


def test_with_one_column_centroid_and_radius_are_not_a_row():
    X = np.array([[0.0], [1.3], [10.0], [12.7], [30.0], [31.1]])
    reply = FeCAExecutor(3).answer(TASK, X, never_abort).arrays
    edges = np.concatenate([reply["centroids"][:, 0] - reply["radii"], reply["centroids"][:, 0] + reply["radii"]])
    assert np.abs(edges[:, None] - X[:, 0]).min() > 1e-3
    # The largest distances are .65, 1.35 and .55.
    np.testing.assert_allclose(np.sort(reply["radii"]), [0.56, 0.66, 1.4])


@pytest.mark.parametrize("mode", MODES)
def test_what_is_sent_are_means_of_rows_where_k_means_stopped_before_it_settled(mode):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    found = kmeans(X, 4, stream(0, 0, "site-1"))
    means = np.array([X[found.labels == c].mean(axis=0) for c in range(4)])
    assert np.abs(found.centroids - means).max() > 1e-3  # else the case shows nothing

    sent = FeCAExecutor(4, after_removal=mode).answer(TASK, X, never_abort).arrays["centroids"]

    assert len(sent) == 4
    np.testing.assert_allclose(sent, means, rtol=1e-12)


def test_neighbours_that_are_not_sent_set_no_radius():
    # Half the way to the lone row 9 would be a radius of 4: twice that from the centroid 1 leads to the row.
    X = np.array([[0.9, 0.0], [1.1, 0.1], [0.0, 20.0], [0.3, 21.0], [0.1, 22.4], [9.0, 0.0]])
    reply = FeCAExecutor(3, n_init=20).answer(TASK, X, never_abort).arrays
    assert len(reply["radii"]) == 2
    ends = reply["centroids"][:, None, 0] + 2 * reply["radii"]
    assert np.abs(ends - 9.0).min() > 0.1


def test_rows_that_differ_in_one_column_are_as_rows_of_one_column():
    X = np.c_[[0, 1.3, 10, 12.7, 30, 31.1], [7.0] * 6]
    reply = FeCAExecutor(3).answer(TASK, X, never_abort).arrays
    np.testing.assert_allclose(np.sort(reply["radii"]), [0.56, 0.66, 1.4])
