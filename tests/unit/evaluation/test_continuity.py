"""Which clusters of a new result are those of an earlier one: cases by hand, and what must not matter."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust.evaluation.continuity import Clusters, Continuity, compare, reach

#: Three clusters on a line, 10 apart, with rows at 1 from their centroids on average.
OLD = Clusters(np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]]), np.array([100, 200, 300]), np.ones(3))


def against(centroids, rows=None, old=OLD):
    new = Clusters(np.array(centroids, dtype=float), None if rows is None else np.array(rows))
    return compare(old, new)


def test_clusters_in_another_order_get_their_numbers_back():
    found = against([[20.1, 0], [0, 0.2], [10, 0]], [300, 100, 200])
    assert found.order == [1, 2, 0]
    assert found.was == [0, 1, 2]
    assert found.moved == pytest.approx([0.2, 0.0, 0.1])
    assert found.changes("x") == found.drift("x") == []
    assert found.summary("last night") == (
        "clusters are numbered as in last night: 3 of 3 go on, their centroids moved at most 20 % of the way to another "
        "cluster, their shares differ by 0 % of the rows"
    )


def test_the_reach_is_the_spread_or_half_the_way_to_the_next_centroid():
    np.testing.assert_array_equal(reach(OLD), [1, 1, 1])
    wide = Clusters(np.array([[0.0], [1.0], [9.0]]), None, np.array([3.0, 3, 3]))
    np.testing.assert_array_equal(reach(wide), [0.5, 0.5, 3])
    assert reach(Clusters(np.zeros((1, 2)))).tolist() == [np.inf]


def test_one_that_moved_out_of_reach_is_gone_and_another_is_new_under_the_free_number():
    found = against([[20, 0], [0, 1.5], [10, 0]], [300, 100, 200])
    assert (found.new, found.gone, found.was) == ([0], [0], [None, 1, 2])
    assert found.changes("x") == ["cluster 0 of x is gone", "cluster 0 is new since x"]


def test_pairs_far_apart_do_not_part_those_that_are_near():
    # The least sum of squared distances of all pairs would be 10 -> 20 and 0 -> 10.
    old = Clusters(np.array([[0.0], [10.0]]), None, np.ones(2))
    found = against([[10.0], [20.0]], old=old)
    assert found.was == [None, 1]
    assert (found.new, found.gone) == ([0], [0])


def test_a_cluster_in_two_halves_was_split():
    found = against([[0, 0], [10, 2], [10, -2], [20, 0]], [100, 90, 110, 300])
    assert found.parts == {1: [1, 3]}
    assert (found.new, found.gone, found.joined) == ([], [], {})
    assert found.changes("x") == ["cluster 1 of x was split into the clusters 1 and 3"]


def test_a_part_that_still_is_the_cluster_keeps_its_number():
    found = against([[10, -3], [0, 0], [10, 0.75], [20, 0]], [40, 100, 160, 300])
    assert found.parts == {1: [1, 3]}
    assert found.order[1] == 2
    assert found.was[1] == 1


def test_a_new_cluster_beside_one_that_kept_its_share_is_no_part_of_it():
    found = against([[0, 0], [10, 0], [20, 0], [11.5, 0]], [100, 200, 300, 100])
    assert found.parts == {}
    assert found.new == [3]


def test_two_clusters_in_one_were_merged_under_the_number_of_the_larger():
    found = against([[20, 0], [20 / 3, 0]], [300, 300])
    assert found.joined == {1: [0, 1]}
    assert found.gone == []
    assert found.order == [0, 1]
    assert found.was == [2, None]  # there are two clusters, so none can be number 2
    assert found.changes("x") == [
        "cluster 1 is clusters 0 and 1 of x together",
        "cluster 0 was cluster 2 in x: with fewer clusters, its number is no longer used",
    ]


def test_a_merge_that_stays_near_one_of_its_clusters_is_one_event_and_no_drift():
    old = Clusters(np.array([[0.0, 0.0], [20.0, 0.0], [3.0, 0.0]]), np.array([100, 100, 200]), np.full(3, 2.0))
    found = against([[2.1, 0], [20, 0]], [300, 100], old)
    assert found.joined == {0: [0, 2]}
    assert (found.was, found.moved) == ([None, 1], [None, 0.0])
    assert found.shares_moved == 0
    assert found.changes("x") == ["cluster 0 is clusters 0 and 2 of x together"]
    assert found.drift("x") == []
    assert found.summary("x").startswith(
        "clusters are numbered as in x: 1 of 2 goes on, 1 is several earlier ones together,"
    )


def test_the_parts_of_a_split_cluster_are_one_where_shares_are_compared():
    assert against([[0, 0], [10, 2], [10, -2], [20, 0]], [100, 90, 110, 300]).shares_moved == 0


def test_without_shares_nothing_is_called_split_or_merged():
    assert against([[0, 0], [10, 2], [10, -2], [20, 0]]).new == [1, 3]
    assert against([[20, 0], [20 / 3, 0]]).gone == [0, 1]


def test_more_clusters_take_numbers_that_nobody_had():
    found = against([[50, 0], [20, 0], [10, 0]], [1, 1, 1], Clusters(OLD.centroids[1:], np.array([1, 1]), np.ones(2)))
    assert found.was == [0, 1, None]
    assert found.new == [2]


def test_drift_of_a_centroid_and_of_the_shares():
    far = against([[0, 0.9], [10, 0], [20, 0]], [100, 200, 300])
    assert far.moved_by_chance == pytest.approx(np.sqrt(1 / 100 + 1 / 100))
    assert far.drift("x") == [
        "drift: the centroid of cluster 0 has moved far since x: 90 % of the distance at which it would be a new cluster"
    ]
    shares = against(OLD.centroids, [300, 200, 100])
    assert shares.shares_moved == pytest.approx(1 / 3)
    assert shares.drift("x") == ["drift: the shares of the clusters differ from those of x by 33 % of the rows"]


def test_the_chance_of_the_shares_is_their_mean_difference_between_two_samples():
    rng = np.random.default_rng(0)
    p, q = (rng.multinomial(600, OLD.shares, size=4000) / 600 for _ in range(2))
    expected = np.abs(p - q).sum(axis=1).mean() / 2
    found = against(OLD.centroids, [100, 200, 300])
    assert found.shares_by_chance == pytest.approx(expected, rel=0.03)


def test_a_few_rows_more_or_less_are_no_drift():
    old = Clusters(OLD.centroids, np.array([5, 5, 5]), np.ones(3))
    assert against([[0, 0.6], [10, 0], [20, 0]], [7, 4, 4], old).drift("x") == []


def test_clusters_of_equal_rows_and_equal_centroids_go_on():
    old = Clusters(OLD.centroids, OLD.rows, np.zeros(3))
    assert against(OLD.centroids, OLD.rows, old).was == [0, 1, 2]
    assert against(OLD.centroids + 1.0, OLD.rows, old).was == [None] * 3


def test_one_cluster_of_unknown_spread_goes_on_wherever_it_is():
    assert against([[1e6]], old=Clusters(np.zeros((1, 1)))).was == [0]


@given(st.data())
def test_the_order_and_the_place_of_the_new_clusters_do_not_matter(data):
    seed, k, more = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    rng = np.random.default_rng(seed)
    old = Clusters(rng.normal(size=(k, 2)) * 3, rng.integers(1, 99, k), rng.random(k) * 2 + 0.1)
    centroids, rows = rng.normal(size=(more, 2)) * 3, rng.integers(1, 99, more)
    new = Clusters(centroids, rows)
    found = compare(old, new)
    assert sorted(found.order) == list(range(more))
    for r, a in enumerate(found.was):
        assert a is None or a == r or a >= more
    merged = {a for own in found.joined.values() for a in own}
    there = {*found.gone, *found.parts, *(a for a in found.was if a is not None), *merged}
    assert there == set(range(k))
    order = rng.permutation(more)
    again = compare(old, Clusters(centroids[order], rows[order]))
    assert [order[b] for b in again.order if again.was[again.order.index(b)] is not None] == [
        b for b, a in zip(found.order, found.was, strict=True) if a is not None
    ]
    assert (again.gone, again.parts.keys(), sorted(again.joined.values())) == (
        found.gone,
        found.parts.keys(),
        sorted(found.joined.values()),
    )
    moved = compare(Clusters(old.centroids + 8, old.rows, old.spread), Clusters(centroids + 8, rows))
    assert (moved.order, moved.was) == (found.order, found.was)


def test_it_survives_json():
    found = against([[0, 0], [10, 2], [10, -2], [20, 0]], [100, 90, 110, 300])
    assert Continuity.from_json(json.loads(json.dumps(found.to_json()))) == found
