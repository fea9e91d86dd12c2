"""Moves out of a local optimum: the widest cluster is split, the cheapest pair joined, from totals only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust.core.lloyd import assign, kmeans, lloyd
from flareclust.core.split_merge import Totals, mean_square, proposals, search
from tests.examples import examples


def totals_of(X: np.ndarray, centroids: np.ndarray) -> Totals:
    labels = assign(X, centroids)[0]
    k = len(centroids)
    counts = np.bincount(labels, minlength=k)
    means = np.array([X[labels == r].mean(axis=0) if counts[r] else centroids[r] for r in range(k)])
    m2 = np.array([((X[labels == r] - means[r]) ** 2).sum(axis=0) for r in range(k)])
    return Totals(counts, means, m2)


def test_a_cluster_over_two_is_split_and_two_over_one_are_joined() -> None:
    """Worked by hand: along the second column, which varies most, by its standard deviation of 5."""
    totals = Totals(
        np.array([8, 4, 4]),
        np.array([[0.0, 0.0], [20.0, 0.0], [21.0, 0.0]]),
        np.array([[1.0, 200.0], [1.0, 1.0], [1.0, 1.0]]),
    )
    first = proposals(totals)[0]
    np.testing.assert_allclose(sorted(map(tuple, first)), [(0.0, -5.0), (0.0, 5.0), (20.5, 0.0)])


def test_a_cluster_without_rows_is_the_first_to_go() -> None:
    totals = Totals(
        np.array([4, 4, 0]),
        np.array([[0.0], [10.0], [99.0]]),
        np.array([[16.0], [4.0], [0.0]]),
    )
    np.testing.assert_allclose(np.sort(proposals(totals)[0][:, 0]), [-2.0, 2.0, 10.0])


@pytest.mark.parametrize(
    ("counts", "m2"),
    [([5, 5, 5], [[0.0]] * 3), ([5, 5], [[0.0], [0.0]]), ([5], [[1.0]])],
)
def test_nothing_is_proposed_where_nothing_can_be_split_or_joined(counts: list[int], m2: list[list[float]]) -> None:
    means = np.arange(float(len(counts)))[:, None]
    assert proposals(Totals(np.array(counts), means, np.array(m2))) == []


def test_two_clusters_are_started_anew_along_other_columns_and_from_either_of_them() -> None:
    """Worked by hand: of all rows the first column has variance 27, the second 4."""
    totals = Totals(np.array([6, 2]), np.array([[0.0, 0.0], [12.0, 4.0]]), np.array([[0.0, 6.0], [0.0, 2.0]]))
    of_all = [np.sqrt((6 * 3.0**2 + 2 * 9.0**2) / 8), np.sqrt((8 + 6 * 1.0**2 + 2 * 3.0**2) / 8)]
    expected = [
        [[3 - of_all[0], 1], [3 + of_all[0], 1]],
        [[3, 1 - of_all[1]], [3, 1 + of_all[1]]],
        [[0, -1], [0, 1]],
        [[12, 3], [12, 5]],
    ]
    np.testing.assert_allclose(proposals(totals), expected, atol=1e-12)


def test_two_clusters_that_are_parted_across_their_length_are_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) * [1.0, 6.0]
    X[200:, 0] += 11
    wrong = lloyd(X, np.array([[5.5, -5.0], [5.5, 5.0]]), tol=0.0)
    best = min(lloyd(X, start, tol=0.0).inertia for start in proposals(totals_of(X, wrong.centroids)))
    assert best < 0.9 * wrong.inertia


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 8), st.integers(1, 4))
def test_the_mean_square_is_that_of_the_rows_and_proposals_are_different_solutions(seed: int, k: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    X, centroids = rng.normal(size=(60, d)) * 10.0 ** rng.integers(-3, 4), rng.normal(size=(k, d))
    totals = totals_of(X, centroids)
    assert mean_square(centroids, totals) == pytest.approx(assign(X, centroids)[1].mean())
    found = proposals(totals)
    assert len(found) <= 3
    assert all(one.shape == (k, d) and np.isfinite(one).all() for one in found)
    assert len({one.tobytes() for one in found}) == len(found)


def test_a_move_leads_out_of_a_local_optimum() -> None:
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0], [0, 10], [40, 0], [40, 10]])
    X = np.concatenate([center + rng.normal(size=(50, 2)) for center in centers])
    stuck = lloyd(X, np.array([[0.0, 5], [38, 0], [42, 0], [40, 10]])).centroids
    best = min(assign(X, lloyd(X, one).centroids)[1].sum() for one in proposals(totals_of(X, stuck)))
    optimum = assign(X, lloyd(X, centers).centroids)[1].sum()
    assert assign(X, stuck)[1].sum() > 2 * optimum
    assert best == pytest.approx(optimum)


def test_a_pair_that_costs_more_than_the_split_can_gain_is_not_joined() -> None:
    means, within = np.array([[0.0], [10.0], [20.0]]), np.array([[99.0], [1.0], [1.0]])
    counts = np.array([2, 2, 2])  # joining the second and third adds 2 * 2 / 4 * 10^2 = 100
    assert proposals(Totals(counts, means, within)) == []
    assert len(proposals(Totals(counts, means, within * [[1.1], [1.0], [1.0]]))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_search_leaves_a_local_optimum(seed: int) -> None:
    """Two centroids in one of six clusters and one between two: updates do not part these, moves do."""
    rng = np.random.default_rng(seed)
    centers = 30.0 * np.arange(6)[:, None] * [1.0, 0.3]
    X = np.repeat(centers, 40, axis=0) + rng.normal(size=(240, 2))
    weights = rng.uniform(1, 3, 240)
    start = np.concatenate([centers[:1] - 1, centers[:1] + 1, centers[1:4], centers[4:].mean(axis=0, keepdims=True)])
    stuck = lloyd(X, start, weights=weights, tol=0.0)
    best = kmeans(X, 6, rng, weights=weights, n_init=20)
    assert stuck.inertia > 10 * best.inertia
    assert search(X, weights, start).inertia == pytest.approx(best.inertia, rel=1e-9)
