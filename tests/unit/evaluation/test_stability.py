"""Jaccard indices of clusters between two labellings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust.evaluation import stability as cluster_stability


def test_the_index_is_that_worked_by_hand():
    reference = np.array([0, 0, 0, 1, 1, 1, 1, 2])
    other = np.array([0, 0, 1, 1, 1, 1, 2, 2])
    # {0,1,2} with {0,1}: 2/3; {3,4,5,6} with {2,3,4,5}: 3/5; {7} with {6,7}: 1/2
    np.testing.assert_allclose(cluster_stability.jaccard(reference, other, 3), [2 / 3, 3 / 5, 1 / 2])


def test_merged_clusters_have_their_share_of_the_union():
    np.testing.assert_allclose(
        cluster_stability.jaccard(np.array([0, 0, 0, 1]), np.zeros(4, dtype=int), 2), [3 / 4, 1 / 4]
    )


def test_rows_that_the_other_run_cannot_place_count_as_lost():
    np.testing.assert_allclose(
        cluster_stability.jaccard(np.array([0, 0, 1, 1]), np.array([0, -1, 1, 1]), 2), [1 / 2, 1]
    )
    assert cluster_stability.jaccard(np.array([0, 0]), np.array([-1, -1]), 1).tolist() == [0]


def test_rows_without_a_cluster_in_the_reference_count_in_the_union_only():
    np.testing.assert_allclose(cluster_stability.jaccard(np.array([0, 0, -1]), np.array([0, 0, 0]), 1), [2 / 3])


def test_a_cluster_without_rows_has_no_index():
    found = cluster_stability.jaccard(np.array([0, 0, 2]), np.array([0, 0, 1]), 3)
    assert np.isnan(found[1])
    assert found[[0, 2]].tolist() == [1, 1]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40), st.permutations(range(4)))
def test_it_is_that_of_sets_and_the_numbers_of_the_other_clusters_do_not_matter(pairs, order):
    reference, other = map(np.array, zip(*pairs, strict=True))
    found = cluster_stability.jaccard(reference, other, 5)
    np.testing.assert_array_equal(found, cluster_stability.jaccard(reference, np.array(order)[other], 5))
    for c in range(5):
        own = set(np.flatnonzero(reference == c))
        theirs = [set(np.flatnonzero(other == e)) for e in range(4)]
        if own:
            assert found[c] == pytest.approx(max(len(own & them) / len(own | them) for them in theirs))
        else:
            assert np.isnan(found[c])


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (1, "stable"),
        (0.85, "stable"),
        (0.849, "uncertain"),
        (0.6, "uncertain"),
        (0.59, "unstable"),
        (np.nan, "unknown"),
    ],
)
def test_the_words_change_at_the_published_limits(index, expected):
    assert cluster_stability.word(index) == expected
