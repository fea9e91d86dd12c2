"""What a device and the server of k-FED compute, by hand and against slow literal twins."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.kfed import KFedAggregator
from flareclust.core.seeds import kmeans_plusplus
from flareclust.core.spectral import local_kmeans, project, trusted_rows
from flareclust.executors.kfed import KFedExecutor, site_number
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task
from tests import twins
from tests.examples import examples
from tests.unit.algorithms.kfed_cases import line, pairwise

TASK = Task(StepName.CLUSTER, 0, {}, "site-1")


def centers(**devices):
    """Replies from devices' centers on a line, each of two rows."""
    return {
        name: {"centroids": line(*values), "counts": np.full(len(values), 2, dtype=np.int64)}
        for name, values in devices.items()
    }


def merge(k, replies, **settings_):
    merged = KFedAggregator(k, **settings_).merge(Round(), replies, np.random.default_rng(0))
    return merged.state.anchors, merged.task["centroids"], {**merged.state.arrays(), **merged.task}


def mixture(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 8 * rng.normal(size=(4, d))[rng.integers(4, size=n)]


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(8, 40), d=st.sampled_from([1, 2, 3, 4, 5, 60]), k=st.integers(1, 8))
def test_projection_keeps_the_distances_that_the_singular_vectors_give(seed, n, d, k):
    X = mixture(seed, n, d)
    singular = np.linalg.svd(X, compute_uv=False)
    assume(k >= len(singular) or singular[k - 1] > 1.001 * singular[k])  # else the subspace is not determined

    projected = project(X, k)

    assert projected.shape == ((n, d) if k >= min(n, d) else (n, k))
    np.testing.assert_allclose(pairwise(projected), pairwise(twins.project(X, k)), atol=1e-9 * singular[0])


LATTICE = st.integers(-4, 4).map(float)


@st.composite
def rows_and_seeds(draw):
    """Rows on a lattice, and different points of it, not only rows, as seeds."""
    d = draw(st.integers(1, 5))
    rows = draw(arrays(np.float64, (draw(st.integers(1, 20)), d), elements=LATTICE))
    seeds = draw(st.lists(st.tuples(*[LATTICE] * d), min_size=1, max_size=8, unique=True))
    return rows, np.array(seeds)


@settings(max_examples=examples(300), deadline=None)
@given(rows_and_seeds())
def test_trusted_rows_are_those_of_step_3(problem):
    rows, seeds = problem
    expected = twins.trusted_sets(twins.points(rows), twins.points(seeds))
    assert [np.flatnonzero(members).tolist() for members in trusted_rows(rows, seeds)] == expected


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(8, 40), d=st.integers(1, 5), k=st.integers(1, 8))
def test_a_device_clusters_by_algorithm_1(seed, n, d, k):
    X = mixture(seed, n, d)
    # The same rows as centers nu: of a pair of rows, k-means++ is indifferent which to take, and rounding decides.
    _, nu = kmeans_plusplus(project(X, k), k, np.random.default_rng(seed))
    expected = twins.local_kmeans(X, k, lambda A_hat: A_hat[nu])
    assume(expected is not None)
    labels, theta = expected

    found = local_kmeans(X, k, np.random.default_rng(seed), never_abort)

    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.centroids, np.array(theta), rtol=1e-9, atol=1e-9)


@st.composite
def devices_centers(draw):
    """Up to four devices' centers on a lattice, k, and the device that M starts with."""
    d = draw(st.integers(1, 5))
    point = st.tuples(*[LATTICE] * d)
    Theta = draw(st.lists(st.lists(point, min_size=1, max_size=8, unique=True), min_size=1, max_size=4))
    z = draw(st.integers(0, len(Theta) - 1))
    different = len({theta for device in Theta for theta in device})
    return Theta, draw(st.integers(len(Theta[z]), min(8, different))), z


@settings(max_examples=examples(300), deadline=None)
@given(devices_centers())
def test_the_server_runs_algorithm_2(problem):
    Theta, k, z = problem
    M, tau = twins.kfed_server(k, Theta, z)
    everything = [theta for device in Theta for theta in device]
    sets = [t for device in tau for t in device]
    means = [twins.mu([theta for theta, t in zip(everything, sets, strict=True) if t == r]) for r in range(k)]
    replies = {
        name: {"centroids": np.array(device), "counts": np.full(len(device), 3, dtype=np.int64)}
        for name, device in zip("abcd", Theta, strict=False)
    }

    anchors, centroids, record = merge(k, replies, start="abcd"[z])

    np.testing.assert_array_equal(anchors, np.array(M))
    np.testing.assert_array_equal(record["tau"], sets)
    np.testing.assert_array_equal(record["counts"], 3 * np.bincount(sets, minlength=k))
    np.testing.assert_array_equal(centroids, np.array(means))
    for name, expected in zip(replies, tau, strict=True):  # and each device finds its own numbers
        np.testing.assert_array_equal(record["tau"][record["tau_site"] == site_number(name)], expected)


# ---- the device, worked by hand ----


def test_step_3_by_hand():
    # Seeds 0 and 4. 1 is a third as far from 0 as from 4, which is enough; 1.5 is not (1.5 > 2.5 / 3), 3.5 is 4's.
    first, second = trusted_rows(line(0, 1, 1.5, 3.5, 4), line(0, 4))
    np.testing.assert_array_equal(first, [True, True, False, False, False])
    np.testing.assert_array_equal(second, [False, False, False, True, True])


def test_a_seed_without_trusted_rows_takes_the_nearest():
    # 1 is half as far from 0 as from 3, and 2 the other way round: neither ratio is a third.
    first, second = trusted_rows(line(1, 2), line(0, 3))
    np.testing.assert_array_equal(first, [True, False])
    np.testing.assert_array_equal(second, [False, True])


@pytest.mark.parametrize(
    ("rows", "k_local", "sent"),
    [
        (line(1, 5), 2, [3]),  # n = k': one center of both rows
        (line(1, 4, 10), 8, [5]),  # of 1, 5 and 9 the mean would be a row
        (line(0, 2, 20, 22), 4, [1, 21]),  # n // 2 centers
        (line(0, 2, 20, 22, 30), 3, [1, 24]),
    ],
)
def test_a_device_with_few_rows_sends_fewer_centers_and_no_row(rows, k_local, sent):
    reply = KFedExecutor(8, k_local=k_local).answer(TASK, rows, never_abort).arrays
    np.testing.assert_allclose(np.sort(reply["centroids"], axis=0), line(*sent), rtol=1e-15)
    assert reply["counts"].min() >= 2


def test_a_device_with_a_single_row_refuses():
    with pytest.raises(Refusal, match="min_count=2"):
        KFedExecutor(4).answer(TASK, line(7), never_abort)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e55])
def test_more_local_clusters_than_features(scale):
    rows = scale * line(0, 2, 100, 102, 1000, 1002, 5000, 5002)
    reply = KFedExecutor(4, k_local=4).answer(TASK, rows, never_abort).arrays
    np.testing.assert_allclose(np.sort(reply["centroids"], axis=0), scale * line(1, 101, 1001, 5001), rtol=1e-12)


def test_the_projection_survives_an_offset():
    rng = np.random.default_rng(0)
    X = 1e8 + rng.normal(size=(400, 20)) + 3 * rng.normal(size=(4, 20))[rng.integers(4, size=400)]
    literal = pairwise(twins.project(X, 4))
    np.testing.assert_allclose(pairwise(project(X, 4)), literal, atol=0.01 * literal.max())


def test_ten_threads_project_to_the_same_bits(rng):
    X = rng.normal(size=(3000, 300))
    alone = project(X, 5)
    with ThreadPoolExecutor(10) as pool:
        for together in pool.map(lambda _: project(X, 5), range(20)):
            np.testing.assert_array_equal(together, alone)


# ---- the server, worked by hand ----


def test_farthest_first_on_a_line():
    # M = {0}. Farthest: 10. Distances to {0, 10}: 1 has 1, 4 and 6 have 4, a tie that the first received wins.
    # Then 1 goes to 0, and 6 to 4 (2 against 4). Means 0.5, 10, 5.
    anchors, centroids, record = merge(3, centers(a=[0], b=[1, 10], c=[4, 6]))
    np.testing.assert_array_equal(anchors, line(0, 10, 4))
    np.testing.assert_array_equal(centroids, line(0.5, 10, 5))
    np.testing.assert_array_equal(record["tau"], [0, 0, 1, 2, 2])
    np.testing.assert_array_equal(record["counts"], [4, 2, 4])


def test_the_start_is_all_centers_of_the_named_device():
    anchors, _, _ = merge(3, centers(a=[0], b=[1, 10], c=[4, 6]), start="c")
    np.testing.assert_array_equal(anchors, line(4, 6, 0))  # 0 and 10 are both 4 away: a comes first
    with pytest.raises(JobFailed, match="'d' sent no centers"):
        merge(3, centers(a=[0], b=[1]), start="d")


def test_fewer_different_centers_than_k_give_fewer_clusters():
    anchors, centroids, _ = merge(5, centers(a=[0, 8], b=[8, 0]))
    np.testing.assert_array_equal(anchors, line(0, 8))
    np.testing.assert_array_equal(centroids, line(0, 8))


def test_centers_may_count_by_their_rows():
    replies = {
        "a": {"centroids": line(0, 9), "counts": np.array([3, 2])},
        "b": {"centroids": line(1, 8), "counts": np.array([1, 6])},
    }
    np.testing.assert_array_equal(merge(2, replies)[1], line(0.5, 8.5))
    # (3 * 0 + 1 * 1) / 4 and (2 * 9 + 6 * 8) / 8
    anchors, centroids, record = merge(2, replies, weighted=True)
    np.testing.assert_array_equal(centroids, line(0.25, 8.25))
    np.testing.assert_array_equal(anchors, line(0, 9))
    np.testing.assert_array_equal(record["counts"], [4, 8])


def test_further_lloyd_rounds_go_on_from_the_means():
    # M = {0, 10}: 4 and 4.8 go to 0, 5.2 to 10. Means 8.8 / 3 = 2.93 and 15.2 / 2 = 7.6, between which 5.2 changes
    # sides (2.27 against 2.4): means 14 / 4 and 10.
    replies = centers(a=[0], b=[4, 4.8, 10], c=[5.2])
    anchors, centroids, record = merge(2, replies)
    np.testing.assert_array_equal(anchors, line(0, 10))
    np.testing.assert_allclose(centroids, line(8.8 / 3, 7.6), rtol=1e-15)
    anchors, centroids, record = merge(2, replies, lloyd_rounds=2)
    np.testing.assert_allclose(anchors, line(8.8 / 3, 7.6), rtol=1e-15)
    np.testing.assert_allclose(centroids, line(3.5, 10), rtol=1e-15)
    np.testing.assert_array_equal(record["tau"], [0, 0, 0, 1, 0])
