"""The choice of clients for a round: by hand, by properties, and refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.core.client_selection import clusters_by_client, draw, pow_d

#: Losses with many ties, the clusters of each candidate, and how many of them are to train.
CASES = st.integers(1, 12).flatmap(
    lambda d: st.tuples(
        st.lists(st.integers(0, 4).map(float), min_size=d, max_size=d),
        st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=d, max_size=d),
        st.integers(1, d),
    )
)


# ---- drawing ----


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.data())
def test_drawn_clients_are_different_ones(rows, data):
    size = data.draw(st.integers(1, len(rows)))
    found = draw(rows, size, np.random.default_rng(0))
    assert len(found) == size == len(set(found.tolist()))
    assert set(found.tolist()) <= set(range(len(rows)))
    np.testing.assert_array_equal(found, draw(rows, size, np.random.default_rng(0)))


def test_clients_are_drawn_in_proportion_to_their_rows(rng):
    # Of rows 1, 2, 5 the first draw has chances 1/8, 2/8, 5/8; 2 is second after 0 with chance 5/7, after 1 with 5/6.
    drawn = np.array([draw([1, 2, 5], 2, rng) for _ in range(20_000)])
    shares = [(drawn[:, 0] == client).mean() for client in range(3)]
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 5 / 8], atol=0.015)
    second = [(drawn[drawn[:, 0] == first, 1] == 2).mean() for first in (0, 1)]
    np.testing.assert_allclose(second, [5 / 7, 5 / 6], atol=0.03)


def test_a_client_with_hardly_any_rows_is_drawn_where_all_are_needed(rng):
    assert sorted(draw([1e-300, 1, 1e300], 3, rng).tolist()) == [0, 1, 2]


# ---- pow-d ----


def test_pow_d_takes_the_largest_losses():
    assert pow_d([0.5, 2.0, 1.0, 3.0], 2).tolist() == [3, 1]


def test_of_equal_losses_the_first_drawn_counts():
    assert pow_d([1.0, 2.0, 2.0, 1.0], 3).tolist() == [1, 2, 0]


@given(CASES)
def test_no_loss_that_pow_d_passes_over_is_larger_than_one_it_takes(case):
    losses, _, m = case
    found = pow_d(losses, m).tolist()
    assert len(set(found)) == m
    rest = [loss for place, loss in enumerate(losses) if place not in found]
    assert min(losses[place] for place in found) >= max(rest, default=-np.inf)


# ---- pow-d with the clusters of k-FED ----


def test_candidates_of_the_same_cluster_are_passed_over():
    losses, clusters = [5.0, 4.0, 3.0, 2.0, 1.0], [[0], [0], [1], [0], [2]]
    assert pow_d(losses, 3, clusters).tolist() == [0, 2, 4]


def test_where_all_clusters_are_covered_the_largest_losses_of_the_others_follow():
    # First one of each cluster: 0 and 2. Then one of each among 1, 3, 4: only cluster 0, so 1; then 3; then 4.
    losses, clusters = [5.0, 4.0, 3.0, 2.0, 1.0], [[0], [0], [1], [0], [0]]
    assert pow_d(losses, 5, clusters).tolist() == [0, 2, 1, 3, 4]
    assert pow_d(losses, 4, clusters).tolist() == [0, 2, 1, 3]


def test_a_candidate_with_several_clusters_is_kept_for_a_new_one():
    # 1 has cluster 2 besides; all clusters of 2 and 3 are known by then; 4 has a new one.
    losses, clusters = [5.0, 4.0, 3.0, 2.0, 1.0], [[0, 1], [1, 2], [0, 2], [1], [3]]
    assert pow_d(losses, 3, clusters).tolist() == [0, 1, 4]


def test_candidates_without_known_clusters_are_kept():
    assert pow_d([3.0, 2.0, 1.0], 2, [[0], [0], []]).tolist() == [0, 2]
    assert pow_d([3.0, 2.0, 1.0], 2, [[], [], []]).tolist() == [0, 1]


@given(CASES)
def test_the_choice_by_clusters_is_of_m_different_candidates_and_begins_with_the_largest_loss(case):
    losses, clusters, m = case
    found = pow_d(losses, m, clusters).tolist()
    assert len(set(found)) == m
    assert found[0] == pow_d(losses, 1)[0]


@given(CASES)
def test_with_one_cluster_each_as_many_clusters_as_possible_are_covered(case):
    losses, clusters, m = case
    single = [[min(own, default=0)] for own in clusters]
    found = {single[place][0] for place in pow_d(losses, m, single)}
    assert len(found) == min(m, len({own[0] for own in single}))


@given(CASES)
def test_clusters_that_tell_nothing_leave_the_choice_of_pow_d(case):
    losses, _, m = case
    for clusters in ([[0]] * len(losses), [[place] for place in range(len(losses))]):
        np.testing.assert_array_equal(pow_d(losses, m, clusters), pow_d(losses, m))


# ---- clusters of k-FED's result ----


def test_clusters_by_client_are_those_of_its_centers():
    found = clusters_by_client([2, 0, 2, 2], [0, 0, 2, 2], ["a", "b", "c"])
    assert found == {"a": [0, 2], "b": [], "c": [2]}


# ---- refusals ----


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: draw([1, 0, 2], 1, rng), "rows must be positive; leave out clients without rows"),
        (lambda rng: draw([1, np.nan], 1, rng), "rows must be finite"),
        (lambda rng: draw([[1, 2]], 1, rng), r"rows must be a list of numbers, got shape \(1, 2\)"),
        (lambda rng: draw([1, 2], 3, rng), "size is 3, more than the 2 clients"),
        (lambda rng: draw([], 1, rng), "rows must be a list of numbers|size is 1, more than the 0 clients"),
        (lambda rng: pow_d([1.0, 2.0], 0), "m must be an integer of at least 1, got 0"),
        (lambda rng: pow_d([1.0, 2.0], 3), "m is 3, more than the 2 candidates"),
        (lambda rng: pow_d([1.0, np.inf], 1), "losses must be finite"),
        (lambda rng: pow_d(["a"], 1), "losses must be a list of numbers"),
        (lambda rng: pow_d([1.0, 2.0], 1, [[0]]), "an entry for each of the 2 candidates, got 1"),
        (lambda rng: clusters_by_client([0], [0, 1], ["a", "b"]), "as many integers"),
        (lambda rng: clusters_by_client([0.0], [0], ["a"]), "as many integers"),
        (lambda rng: clusters_by_client([0], [1], ["a"]), r"places among the 1 clients, got 1\.\.1"),
    ],
)
def test_input_that_does_not_fit_is_refused(call, message, rng):
    with pytest.raises(UserError, match=message):
        call(rng)
