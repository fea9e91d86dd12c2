import numpy as np
import pytest

from flareclust._foundation.typing import never_abort
from flareclust.core import assessment, compiled, kernels, lloyd, pyramid, screen, seeds
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box

#: Every kernel that Python calls.
KERNELS = (
    kernels.nearest_centroids,
    kernels.two_nearest,
    kernels.own_distances,
    screen.screened_labels,
    kernels.lloyd_steps,
    kernels.column_means,
    kernels.column_variances,
    screen._fill_tiles,
    pyramid._count_cells,
    pyramid._fill_cells,
    pyramid.pyramid_steps,
    seeds._seed_tiles,
    seeds.seeds_with,
    seeds.rows_drawn,
    seeds.more_seeds,
    seeds._farthest_rows,
    seeds._farthest_of_tiles,
    dp_sums.add_rows,
)


def literal_squared_distances(X, centroids):
    return ((X[:, None, :] - centroids[None, :, :]) ** 2).sum(axis=2)


# Tiles hold 256 rows up to d = 32, then fewer, and 16 from d = 512 on: both sides of every edge.
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [(1, 1, 1), (255, 2, 3), (256, 2, 15), (257, 3, 4), (130, 64, 7), (16, 512, 3), (17, 9000, 2), (600, 1, 1)],
)
def test_nearest_centroids_agree_with_all_pairs_of_distances(n, d, k):
    rng = np.random.default_rng(n + d)
    X, centroids = rng.normal(size=(n, d)), rng.normal(size=(k, d))
    labels, squared = np.full(n, -1), np.empty(n)
    expected = literal_squared_distances(X, centroids)

    changed = kernels.nearest_centroids(X, centroids, labels, squared)

    assert changed == n
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_allclose(squared, expected.min(axis=1), rtol=1e-12)
    labels[0] = k
    assert kernels.nearest_centroids(X, centroids, labels, squared) == 1


@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 2), (257, 2, 15), (130, 64, 7), (17, 9000, 3)])
def test_two_nearest_finds_the_smallest_and_the_next_distance(n, d, k):
    rng = np.random.default_rng(n + d)
    X, centroids = rng.normal(size=(n, d)), rng.normal(size=(k, d))
    labels, squared, second = np.empty(n, int), np.empty(n), np.empty(n)
    ordered = np.sort(literal_squared_distances(X, centroids), axis=1)

    kernels.two_nearest(X, centroids, labels, squared, second)

    np.testing.assert_array_equal(labels, literal_squared_distances(X, centroids).argmin(axis=1))
    np.testing.assert_allclose(squared, ordered[:, 0], rtol=1e-12)
    np.testing.assert_allclose(second, ordered[:, 1], rtol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 64])
def test_distances_are_sums_in_the_order_of_the_features_bit_for_bit(d):
    rng = np.random.default_rng(d)
    X, centroids = rng.normal(size=(300, d)), rng.normal(size=(5, d))
    expected = np.zeros((300, 5))
    for j in range(d):
        expected += (X[:, j, None] - centroids[:, j]) ** 2
    labels, squared, second = np.empty(300, int), np.empty(300), np.empty(300)

    kernels.two_nearest(X, centroids, labels, squared, second)

    np.testing.assert_array_equal(np.column_stack([squared, second]), np.sort(expected, axis=1)[:, :2])
    kernels.nearest_centroids(X, centroids, labels, second)
    np.testing.assert_array_equal(second, squared)
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))


def test_ties_go_to_the_lowest_index_and_a_tied_centroid_is_the_second_nearest():
    X = np.array([[0.0], [2.0]])
    centroids = np.array([[5.0], [1.0], [-1.0], [1.0]])
    labels, squared, second = np.empty(2, int), np.empty(2), np.empty(2)

    kernels.nearest_centroids(X, centroids, labels, squared)
    np.testing.assert_array_equal(labels, [1, 1])

    kernels.two_nearest(X, centroids, labels, squared, second)
    np.testing.assert_array_equal(labels, [1, 1])
    np.testing.assert_array_equal(second, [1.0, 1.0])


def test_distances_far_from_the_origin_keep_their_precision():
    X = np.array([[1e8, 1e8], [1e8 + 1, 1e8]])
    labels, squared = np.empty(2, int), np.empty(2)

    kernels.nearest_centroids(X, X[:1].copy(), labels, squared)

    np.testing.assert_array_equal(squared, [0.0, 1.0])


# Up to 16 columns in tiles, made before or on the way; beyond, two points at a time.
@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "points"), [(1, 1, 1), (257, 2, 4), (512, 3, 6), (300, 16, 2), (300, 17, 5), (70, 64, 6)]
)
def test_a_pass_takes_a_seed_and_adds_up_what_each_candidate_would_leave(n, d, points, tiled):
    rng = np.random.default_rng(n)
    X, weights, closest = rng.normal(size=(n, d)), rng.random(n), rng.random(n) * d
    P, tiles = rng.normal(size=(points, d)), -(-n // seeds.TILE)
    own = np.zeros((tiles if tiled else 0, min(d, seeds.TILED), seeds.TILE))
    if tiled and d <= seeds.TILED:
        seeds._seed_tiles(X, 0, own)
    squared = literal_squared_distances(X, P).T
    after = np.minimum(closest, squared[0])
    sums = np.empty((points, tiles))

    seeds.seeds_with(X, weights, own, P, closest, sums)

    np.testing.assert_allclose(closest, after, rtol=1e-12)
    expected = np.add.reduceat(weights * np.minimum(after, squared), np.arange(0, n, seeds.TILE), axis=1)
    np.testing.assert_allclose(sums, expected, rtol=1e-12)


def test_rows_are_drawn_where_the_running_sum_exceeds_a_number_and_rows_that_add_nothing_are_skipped():
    n = 1000
    X = np.zeros((n, 1))
    X[[3, 300, 301, 999], 0] = [1, 2, 1, 1]  # squared distances 1, 4, 1, 1 to the seed at 0
    weights = np.ones(n)
    ends, rows = np.array([1.0, 6.0, 6.0, 7.0]), np.empty(8, np.int64)
    at = np.array([0.0, 0.99, 1.0, 4.99, 5.0, 6.0, 6.99, 7.0])
    tiles = np.array([0, 0, 1, 1, 1, 3, 3, 3])
    seeds.rows_drawn(X, weights, np.zeros(1), np.full(n, np.inf), ends, at, tiles, rows)
    assert rows.tolist() == [3, 3, 300, 300, 301, 999, 999, 999]


def inputs_of_every_form():
    X = np.random.default_rng(0).normal(size=(40, 3))
    read_only = X.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + X.tobytes(), offset=1).reshape(X.shape)
    return {
        "float64": X,
        "read-only": read_only,
        "float32": X.astype(np.float32),
        "integers": (X * 10).astype(np.int32),
        "Fortran-ordered": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[::2, ::2],
        "other byte order": X.astype(X.dtype.newbyteorder()),
        "unaligned": unaligned,
        "single row": X[:1],
        "single feature": X[:, :1],
        "list": X.tolist(),
    }


@pytest.mark.parametrize("form", inputs_of_every_form())
def test_every_kernel_has_one_signature_whatever_is_passed(form):
    X = inputs_of_every_form()[form]
    n = len(X)
    k = min(n, 3)
    compiled.warm_up()
    # One, and another where rows in a mapped file were used before.
    before = {kernel.__name__: len(kernel.signatures) for kernel in KERNELS}

    seeds.farthest_first(X, k, [0])
    found = lloyd.kmeans(X, k, np.random.default_rng(0), tol=0, weights=np.ones(n, np.float32))
    lloyd.lloyd(X, np.asfortranarray(found.centroids), max_iter=np.int32(2), tol=np.float32(0.5))
    labels, _ = lloyd.assign(X, found.centroids)
    labels.flags.writeable = False
    lloyd.cluster_statistics(X, labels.astype(np.int32), found.centroids)
    lloyd.cluster_statistics(X, labels, found.centroids)
    assessment.assessment_sums(X, found.centroids)
    if isinstance(X, np.ndarray):
        box = Box(np.full(X.shape[1], -1.0), np.ones(X.shape[1]))
        dp_sums.cluster_sums(X, box, found.centroids, np.ones(len(found.centroids)), never_abort)

    assert {kernel.__name__: len(kernel.signatures) for kernel in KERNELS} == before
