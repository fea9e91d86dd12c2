"""What a site computes and may send: local k-means, seeds, one Lloyd update, against scikit-learn and plain NumPy."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import KMeans
from sklearn.cluster import kmeans_plusplus as sklearn_plusplus

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.local import Sendable, lloyd_update, local_clusters, seed_cells, without_remainder
from tests.examples import examples


def blobs(*centers, n=20, seed=0, sd=0.1):
    rng = np.random.default_rng(seed)
    X = np.repeat(np.array(centers, dtype=float), n, axis=0)
    return X + rng.normal(0, sd, X.shape)


def nearest(X, centroids):
    return np.linalg.norm(X[:, None] - centroids[None], axis=2).argmin(axis=1)


def ensure_described(X, sent):
    """Centroids are the means of the rows labelled so, counts their numbers, and no row is among them."""
    assert sent.labels.shape == (len(X),)
    for r, (centroid, count) in enumerate(zip(sent.centroids, sent.counts, strict=True)):
        members = X[sent.labels == r]
        assert len(members) == count
        np.testing.assert_allclose(centroid, members.mean(axis=0), rtol=1e-9, atol=1e-9)
        assert not (centroid == X).all(axis=1).any()
    assert set(sent.labels) <= {-1, *range(len(sent.counts))}


def local(X, k, n_init=1, seed=0, min_count=2, aborted=never_abort):
    rng = np.random.default_rng(seed)
    return local_clusters(X, k, rng, n_init=n_init, min_count=min_count, aborted=aborted)


# ---- local k-means ----


def test_local_clusters_are_those_of_scikit_learn():
    X = np.random.default_rng(1).normal(size=(120, 2)) + 6 * np.random.default_rng(2).integers(0, 2, (120, 2))
    found = local(X, 4, n_init=20)
    oracle = KMeans(4, n_init=20, random_state=0).fit(X)
    order = nearest(oracle.cluster_centers_, found.centroids)
    np.testing.assert_allclose(found.centroids[order], oracle.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(found.counts[order], np.bincount(oracle.labels_))
    ensure_described(X, found)
    np.testing.assert_array_equal(found.source, np.arange(4))


def test_a_cluster_below_min_count_stays_with_its_rows_and_with_a_smaller_one_leaves():
    X = np.concatenate([blobs([0, 0], [50, 0]), [[1e4, 0], [1e4, 1], [1e4, 3]]])
    found = local(X, 3, n_init=5, min_count=4)
    assert sorted(found.counts) == [20, 20]
    assert (found.labels[-3:] == -1).all()
    assert (found.labels[:-3] >= 0).all()
    assert len(found.source) == 2
    assert found.centroids[:, 0].max() < 100
    found = local(X, 3, n_init=5, min_count=3)
    assert sorted(found.counts) == [3, 20, 20]
    np.testing.assert_allclose(found.centroids[found.centroids[:, 0].argmax()], [1e4, 4 / 3], rtol=1e-12)


def test_few_repeated_rows_and_means_that_are_rows_stay():
    X = np.concatenate([blobs([0, 0]), np.full((2, 2), 50.0), [[90.0, 0.0], [91.0, 0.0], [92.0, 0.0]]])
    found = local(X, 3, n_init=5)
    assert found.counts.tolist() == [20]
    assert (found.labels[20:] == -1).all()


# ---- clusters of one row repeated ----


@pytest.mark.parametrize(("repeats", "min_count", "borrowed"), [(10, 2, 3), (10, 5, 5), (299, 2, 3), (301, 2, 4)])
def test_a_row_repeated_is_described_with_the_nearest_rows_of_the_nearest_cluster(repeats, min_count, borrowed):
    crowd, far = blobs([0, 0]), blobs([-90, 0], seed=1)
    X = np.concatenate([np.full((repeats, 2), 50.0), crowd, far])
    found = local(X, 3, n_init=5, min_count=min_count)
    ensure_described(X, found)
    assert sorted(found.counts) == sorted([repeats + borrowed, 20 - borrowed, 20])
    own = found.labels[0]
    assert (found.labels[:repeats] == own).all()
    near = np.argsort(((crowd - 50.0) ** 2).sum(axis=1))[:borrowed]
    np.testing.assert_array_equal(np.flatnonzero(found.labels[repeats:] == own), np.sort(near))
    # Whoever knows the repeated row learns the mean of rows that could be a cluster of their own.
    rest = (found.centroids[own] * found.counts[own] - repeats * 50.0) / borrowed
    np.testing.assert_allclose(rest, crowd[near].mean(axis=0), atol=1e-9)


def test_a_row_repeated_borrows_rows_that_differ():
    """The two rows that are nearest to 50 are there often; a mean of them alone would be a row to whoever knows 50."""
    crowd = np.concatenate([np.full((30, 2), 2.0), np.full((30, 2), 1.0), blobs([0, 0], n=40)])
    X = np.concatenate([np.full((60, 2), 50.0), crowd])
    found = local(X, 2, n_init=5)
    assert np.bincount(found.labels[:60]).max() == 60
    assert len(np.unique(X[(found.labels == found.labels[0])], axis=0)) == 4
    ensure_described(X, found)


def test_a_small_cluster_joins_a_larger_one_of_one_row_repeated():
    X = np.concatenate([np.zeros((60, 2)), blobs([9, 9], n=4)])
    found = local(X, 2, n_init=5)
    assert found.counts.tolist() == [64]
    ensure_described(X, found)


def test_a_row_repeated_takes_part_in_an_update_at_its_own_centroid():
    X = np.concatenate([np.zeros((60, 2)), blobs([9, 9], [20, 0])])
    found = lloyd_update(X, np.array([[20.0, 1.0], [1.0, 0.0], [9.0, 9.0], [500.0, 0.0]]), 2)
    assert found.source.tolist() == [0, 1, 2]
    assert found.counts.tolist() == [20, 63, 17]
    assert np.abs(found.centroids[1]).max() < 1
    ensure_described(X, found)


@given(
    X=arrays(np.float64, st.tuples(st.integers(6, 40), st.integers(1, 3)), elements=st.sampled_from([0.0, 1.0, 2.5])),
    k=st.integers(1, 5),
    min_count=st.integers(1, 5),
)
def test_no_cluster_of_few_rows_is_described_however_often_rows_repeat(X, k, min_count):
    found = lloyd_update(X, X[:k], min_count)
    assert (found.counts >= min_count).all()
    for r in range(len(found.counts)):
        assert len(np.unique(X[found.labels == r], axis=0)) > 1
    ensure_described(X, found)


@pytest.mark.parametrize("offset", [0.0, 0.1, 12.3, 1e5])
def test_a_mean_that_is_a_row_but_for_rounding_stays(offset):
    three = 90 + np.array([[0.0, 0.0], [1.1, 0.0], [2.2, 0.0]]) + [0.0, offset]
    X = np.concatenate([blobs([0, offset]), three])
    found = local(X, 2, n_init=5)
    assert found.counts.tolist() == [20]


def test_a_narrow_cluster_far_from_zero_may_leave():
    X = np.concatenate([blobs([1e6, 1e6], sd=1e-4), blobs([1e6 + 1, 1e6], sd=1e-4, seed=1)])
    assert local(X, 2).counts.tolist() == [20, 20]


@pytest.mark.parametrize(("n", "min_count", "at_most"), [(9, 4, 2), (8, 4, 2), (7, 4, 1), (5, 2, 2), (4, 4, 1)])
def test_small_sites_look_for_fewer_clusters(n, min_count, at_most):
    """With n rows there are never more than n // min_count clusters asked for."""
    X = np.random.default_rng(n).normal(size=(n, 3))
    found = local(X, 10, n_init=3, min_count=min_count)
    assert 1 <= len(found.counts) <= at_most
    ensure_described(X, found)


def seeded(X, k, min_count=2, aborted=never_abort):
    return seed_cells(X, k, np.random.default_rng(0), min_count=min_count, aborted=aborted)


def updated(X, k, min_count):
    return lloyd_update(X, np.zeros((1, 2)), min_count)


@pytest.mark.parametrize("X", [np.zeros((3, 2)), np.empty((0, 2))], ids=["three rows", "no rows"])
@pytest.mark.parametrize("step", [local, seeded, updated])
def test_fewer_rows_than_min_count_are_refused_everywhere(X, step):
    with pytest.raises(Refusal, match="fewer rows than min_count=4"):
        step(X, 2, min_count=4)


@pytest.mark.parametrize("step", [local, seeded])
def test_nothing_but_repeated_rows_is_refused_without_a_value(step):
    with pytest.raises(Refusal, match="nothing it may send") as refusal:
        step(np.repeat([[123.456, 2.0], [3.0, 4.0]], 10, axis=0), 2)
    assert "123" not in str(refusal.value)


@pytest.mark.parametrize("step", [local, seeded])
def test_a_site_stops_when_aborted(step):
    with pytest.raises(Aborted):
        step(blobs([0, 0], [9, 9]), 2, aborted=lambda: True)


# ---- seeds ----


def sklearn_cells(X, k, seed, n_candidates=None):
    """scikit-learn's seeds for RandomState(seed), and the seed nearest to each row."""
    seeds, _ = sklearn_plusplus(X, k, random_state=seed, n_local_trials=n_candidates)
    return seeds, nearest(X, seeds)


@pytest.mark.parametrize("n_candidates", [None, 1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_seed_cells_are_the_means_around_scikit_learns_seeds(seed, n_candidates):
    X = np.random.default_rng(seed).normal(size=(90, 3))
    seeds, cell = sklearn_cells(X, 6, seed, n_candidates)
    kept = [r for r in range(6) if (cell == r).sum() >= 5]
    assert kept  # else the case shows nothing
    found = seed_cells(X, 6, np.random.RandomState(seed), min_count=5, aborted=never_abort, n_candidates=n_candidates)
    assert found.source.tolist() == kept
    np.testing.assert_allclose(found.centroids, [X[cell == r].mean(axis=0) for r in kept], atol=1e-12)
    np.testing.assert_array_equal(found.counts, [(cell == r).sum() for r in kept])
    ensure_described(X, found)
    rows = seed_cells(
        X, 6, np.random.RandomState(seed), seeds="rows", min_count=5, aborted=never_abort, n_candidates=n_candidates
    )
    np.testing.assert_array_equal(rows.centroids, seeds[kept])  # the letter of the papers: rows themselves
    np.testing.assert_array_equal(rows.counts, found.counts)
    np.testing.assert_array_equal(rows.labels, found.labels)
    np.testing.assert_array_equal(rows.source, found.source)


def test_seeds_of_small_cells_stay_in_both_forms():
    X = np.concatenate([blobs([0, 0], [20, 0]), [[1e4, 1e4], [1e4, 1e4 + 1]]])
    for seeds in ("means", "rows"):
        for seed in range(5):
            found = seed_cells(X, 3, np.random.default_rng(seed), seeds=seeds, min_count=3, aborted=never_abort)
            assert found.counts.min() >= 3
            assert np.abs(found.centroids).max() < 100
            assert (found.labels[-2:] == -1).all()


@pytest.mark.parametrize("seeds", ["means", "rows"])
def test_small_sites_draw_so_few_seeds_that_a_cell_may_be_sent(seeds):
    for n in range(4, 16):
        X = np.random.default_rng(n).normal(size=(n, 2))
        found = seed_cells(X, 9, np.random.default_rng(0), seeds=seeds, min_count=4, aborted=never_abort)
        assert 1 <= len(found.counts) <= n // 4
        assert found.counts.min() >= 4


def test_more_seeds_than_rows_or_than_different_rows_are_fewer_cells():
    X = np.array([[0.0], [0.1], [5.0], [5.3]])
    found = seed_cells(X, 9, np.random.default_rng(0), seeds="rows", min_count=1, aborted=never_abort)
    assert sorted(found.centroids.ravel()) == sorted(X.ravel())
    twice = np.repeat(X, 2, axis=0)
    assert (
        len(seed_cells(twice, 8, np.random.default_rng(0), seeds="rows", min_count=1, aborted=never_abort).counts) == 4
    )


# ---- one update ----


def test_an_update_by_hand():
    X = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 3.0], [10.0, 0.0], [12.0, 2.0], [40.0, 0.0]])
    centroids = np.array([[1.0, 1.0], [500.0, 0.0], [11.0, 0.0], [40.0, 1.0]])
    found = lloyd_update(X, centroids, 2)
    np.testing.assert_allclose(found.centroids, [[4 / 3, 1.0], [11.0, 1.0]])
    assert found.counts.tolist() == [3, 2]
    assert found.source.tolist() == [0, 2]  # nobody is near the second, and one row alone near the fourth
    assert found.labels.tolist() == [0, 0, 0, 1, 1, -1]


@pytest.mark.parametrize("seed", range(5))
def test_updates_of_sites_add_up_to_an_iteration_of_lloyd(seed):
    rng = np.random.default_rng(seed)
    sites = [rng.normal(size=(60, 2)) for _ in range(3)]
    X, centroids = np.concatenate(sites), np.array([[1.0, 0.0], [-1.0, 0.2], [0.0, 1.0], [0.1, -1.0]])
    sums, counts = np.zeros((4, 2)), np.zeros(4)
    for rows in sites:
        found = lloyd_update(rows, centroids, 1)
        assert found.counts.sum() == 60  # nothing is held back in this case
        sums[found.source] += found.counts[:, None] * found.centroids
        counts[found.source] += found.counts
    labels = nearest(X, centroids)
    np.testing.assert_allclose(sums / counts[:, None], [X[labels == r].mean(axis=0) for r in range(4)], atol=1e-12)


def test_an_update_with_nothing_to_send_is_empty():
    X = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]])
    found = lloyd_update(X, X + 0.1, 2)
    assert found.centroids.shape == (0, 2)
    assert (found.counts.tolist(), found.source.tolist(), found.labels.tolist()) == ([], [], [-1, -1, -1])
    assert (found.counts.dtype, found.source.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize("min_count", [0, 2])
@pytest.mark.parametrize(("k", "reported"), [(2, np.zeros(2, dtype=np.bool_)), (0, None)])
def test_an_update_of_which_no_group_is_reported_is_empty(min_count, k, reported):
    found = lloyd_update(np.eye(3), np.zeros((k, 3)), min_count, reported)
    assert found.centroids.shape == (0, 3)
    assert (found.counts.tolist(), found.source.tolist(), found.labels.tolist()) == ([], [], [-1, -1, -1])


COARSE = st.integers(-3, 3).map(float)  # so that ties, repeated rows and means that are rows are frequent


@settings(max_examples=examples(60), deadline=None)
@given(
    X=arrays(np.float64, st.tuples(st.integers(2, 14), st.integers(1, 2)), elements=COARSE),
    k=st.integers(1, 5),
    min_count=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_whatever_is_sent_describes_several_different_rows(X, k, min_count, seed):
    rng = np.random.default_rng(seed)
    calls = (
        lambda: local_clusters(X, k, rng, n_init=1, min_count=min_count, aborted=never_abort),
        lambda: seed_cells(X, k, rng, min_count=min_count, aborted=never_abort),
        lambda: lloyd_update(X, rng.normal(size=(k, X.shape[1])), min_count),
    )
    sent = 0
    for call in calls:
        try:
            found = call()
        except Refusal:
            continue
        if not len(found.counts):
            assert call is calls[2]  # only an update may be empty
            continue
        sent += 1
        ensure_described(X, found)
        assert found.counts.min() >= max(min_count, 2)
        for r in range(len(found.counts)):
            assert len(np.unique(X[found.labels == r], axis=0)) > 1
    assume(sent)


def test_of_equal_clusters_that_of_the_first_row_joins_the_rows_kept_back_whatever_their_order():
    """Else two rounds would leave out one each, and their difference would be the row kept back."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(20, 2)), 50 + rng.normal(size=(20, 2)), [[500.0, 400.0]]])
    labels = np.repeat([0, 1, -1], [20, 20, 1])
    for order in ([0, 1], [1, 0]):
        numbers = np.append(np.argsort(order), -1)[labels]
        centroids = np.stack([rows[numbers == r].mean(axis=0) for r in range(2)])
        kept = without_remainder(rows, Sendable(centroids, np.array([20, 20]), numbers, np.array([7, 9])), 2)
        np.testing.assert_array_equal(kept.centroids, [rows[20:40].mean(axis=0)])
        assert kept.labels.tolist() == [-1] * 20 + [0] * 20 + [-1]
        assert kept.source.tolist() == [[7, 9][order.index(1)]]
    whole = Sendable(centroids, np.array([20, 20]), numbers[:40], np.array([0, 1]))
    assert len(without_remainder(rows[:40], whole, 2).counts) == 2
