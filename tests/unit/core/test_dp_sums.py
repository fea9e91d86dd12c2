"""Sums of which one row changes so much: clusters, cells, moments, grids."""

import math

import numpy as np
import pytest

from flareclust._foundation.typing import never_abort
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import lloyd as dp_lloyd
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box


def brute_force(rows, box, centroids, radii):
    sums = np.zeros((len(centroids), len(box.low) + 2))
    for row in np.clip(rows, box.low, box.high):
        c = int(((row - centroids) ** 2).sum(axis=1).argmin())
        away = (row - centroids[c]) / radii[c]
        length = float(np.sqrt(away @ away))
        sums[c] += [*(away / max(length, 1)), 1, min(length, 1) ** 2]
    return sums


def test_sums_by_cluster_are_those_of_a_plain_loop(rng):
    rows, box = 3 * rng.normal(size=(200, 3)), Box(np.full(3, -4.0), np.full(3, 4.0))
    centroids, radii = rng.normal(size=(4, 3)), rng.uniform(0.5, 3, 4)
    found = dp_sums.in_units(dp_sums.cluster_sums(rows, box, centroids, radii, never_abort))
    expected = brute_force(rows, box, centroids, radii)
    np.testing.assert_allclose(np.column_stack(found), expected, atol=200 * 2 / dp_sums._SQUARE)
    np.testing.assert_array_equal(found.rows, expected[:, 3])


@pytest.mark.parametrize("d", [1, 2, 9])
def test_sums_by_cluster_are_the_integers_that_the_rows_add_one_by_one(rng, d):
    rows, box = np.asfortranarray(rng.normal(size=(300, d))), Box(np.full(d, -1.0), np.full(d, 1.5), 1.2)
    centroids, radii = rng.normal(size=(5, d)), rng.uniform(0.1, 2, 5)
    alone = [dp_sums.cluster_sums(rows[i : i + 1], box, centroids, radii, never_abort) for i in range(len(rows))]
    together = dp_sums.cluster_sums(rows, box, centroids, radii, never_abort)
    np.testing.assert_array_equal(together, np.sum(alone, axis=0))
    assert together[:, d].sum() == len(rows) * dp_sums.COUNT
    assert len(dp_sums.add_rows.signatures) == 1


def test_cells_count_every_row_once_and_those_outside_at_the_edge():
    box = Box(np.zeros(2), np.ones(2))
    rows = np.array([[0.1, 0.1], [0.1, 0.9], [1.0, 1.0], [-7.0, 0.4], [9.0, 9.0]])
    assert dp_sums.cell_counts(rows, box, box, (2, 2), never_abort).tolist() == [2, 1, 0, 2]
    wide = Box(np.zeros(2), np.full(2, 4.0))  # the site's own bounds hold where the grid is larger
    assert dp_sums.cell_counts(rows, box, wide, (4, 4), never_abort)[5] == 2


def test_moments_give_mean_and_deviation(rng):
    rows, box = rng.normal([1.0, -2.0], [0.5, 2.0], size=(5000, 2)), Box(np.full(2, -10.0), np.full(2, 10.0))
    found = dp_lloyd.moments(dp_sums.moment_sums(rows, box, box, never_abort) / dp_sums.UNIT, box)
    assert found.rows == 5000
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(found.deviation, rows.std(axis=0), rtol=1e-2)


@pytest.mark.parametrize("low", [-1e15, 1e12, -1e-9])
def test_a_row_never_counts_more_than_its_length_where_rounding_is_coarse(low):
    """Bounds that differ in their last digits only: the middle of the box is rounded then."""
    box = Box(np.full(3, low), np.full(3, np.nextafter(low, np.inf) + abs(low) * 1e-15))
    for row in (box.low, box.high, np.array([box.low[0], box.high[1], box.low[2]])):
        sums = dp_sums.moment_sums(row[None], box, box, never_abort)
        assert np.sqrt((sums.astype(float) ** 2).sum()) <= dp_sums.moment_sensitivity()
        spread = dp_sums.cluster_sums(row[None], box, box.low[None], np.array([1e-99]), never_abort)
        assert np.sqrt((spread.astype(float) ** 2).sum()) <= dp_sums.cluster_sensitivity()


def test_without_noise_an_update_is_lloyds(rng):
    rows, box = rng.normal(size=(300, 2)), Box(np.full(2, -9.0), np.full(2, 9.0))
    before = rng.normal(size=(4, 2))
    radii = np.full(4, 50.0)
    sums = dp_sums.in_units(dp_sums.cluster_sums(rows, box, before, radii, never_abort))
    moved, counted = dp_lloyd.next_centroids(before, radii, sums, 0.0, 0, box)
    nearest = ((rows[:, None] - before) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_allclose(moved, [rows[nearest == c].mean(axis=0) for c in range(4)], atol=1e-3)
    assert counted.sum() == 300


def test_a_cluster_that_noise_alone_could_be_keeps_its_centroid():
    sums = dp_sums.ClusterSums(np.full((2, 2), 5.0), np.array([3.0, 300.0]), np.zeros(2))
    before = np.zeros((2, 2))
    box = Box(np.full(2, -1.0), np.full(2, 1.0))
    moved, _ = dp_lloyd.next_centroids(before, np.ones(2), sums, 2.0, 0, box)
    assert moved[0].tolist() == [0, 0]
    assert (moved[1] > 0).all()


def test_a_mean_is_shrunk_where_most_of_it_is_noise(rng):
    noisy = np.array([rng.normal(0.5, 2.0, size=40) for _ in range(300)])
    shrunk = np.array([dp_lloyd.shrunk(one, 2.0) for one in noisy])
    assert ((shrunk - 0.5) ** 2).sum(axis=1).mean() < 0.2 * ((noisy - 0.5) ** 2).sum(axis=1).mean()
    clear = rng.normal(10.0, 2.0, size=40)
    np.testing.assert_array_equal(dp_lloyd.shrunk(clear, 2.0), clear)
    np.testing.assert_array_equal(dp_lloyd.shrunk(clear[:2], 50.0), clear[:2])


def test_noise_that_blurs_the_whole_grid_leaves_no_cell_empty(rng):
    """Cells above a threshold would be those about one hill of the noise, and all other clusters be missed."""
    rows = np.zeros((12, 12))
    rows[3:9, 3:9] = 40
    for _ in range(20):
        assert np.count_nonzero(dp_grid.denoised(rows + rng.normal(0, 400, size=rows.shape), 400.0, 5)) == 144


def test_a_grid_has_cells_near_to_cubes():
    assert dp_grid.grid_shape(Box(np.zeros(2), np.array([4.0, 1.0])), 100) == (20, 5)
    assert dp_grid.grid_shape(Box(np.zeros(3), np.array([1.0, 1.0, 1e-9])), 64) == (8, 8, 1)
    centers = dp_grid.cell_centers(Box(np.zeros(2), np.array([4.0, 1.0])), (4, 1))
    assert centers.tolist() == [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [3.5, 0.5]]


def test_noise_alone_leaves_the_whole_box_alike(rng):
    noisy = rng.normal(0, 10, size=(12, 12))
    held = dp_grid.denoised(noisy, 10.0, 3)
    assert np.count_nonzero(held) == 144
    found = dp_grid.denoised(noisy + 500 * (np.indices((12, 12)).sum(axis=0) == 4), 10.0, 3)
    assert set(zip(*np.nonzero(found), strict=True)) == {(i, 4 - i) for i in range(5)}


# Federations


def test_extreme_centroids_and_radii_are_answered_with_sums_of_cut_length():
    rows, box = np.array([[-1e139, 1e139], [0.0, 1e-200], [3.0, 4.0]]), Box(np.full(2, -1e140), np.full(2, 1e140))
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        reported = dp_sums.in_units(
            dp_sums.cluster_sums(rows, box, np.zeros((1, 2)), np.array([1.1e-100]), never_abort)
        )
        squares, _, beyond = dp_sums.quality_sums(rows, box, np.zeros((1, 2)), 1.1e-100, never_abort)
    np.testing.assert_allclose(reported.shifts, [[-math.sqrt(0.5) + 0.6, math.sqrt(0.5) + 0.8]], atol=1e-5)
    assert (reported.rows.tolist(), squares, beyond) == ([3.0], 2 * dp_sums.UNIT, 0)
    assert reported.squares == pytest.approx(2.0)


def test_a_vector_that_is_no_number_or_too_long_counts_nothing():
    vectors = np.array([[np.nan, 0.0], [np.inf, 0.0], [1e200, 0.0], [0.8, 0.7], [0.6, -0.8], [1.0, 0.0]])
    counted = dp_sums.whole(vectors)
    assert not counted[:4].any()
    np.testing.assert_allclose(counted[4:] / dp_sums.UNIT, vectors[4:], atol=1e-5)
    assert dp_sums._share(np.array([np.nan, np.inf, -1.0, 0.5])).tolist() == [0, 1, 0, 0.5]


def test_a_grid_over_many_columns_is_counted_too():
    box, shape = Box(np.zeros(100), np.ones(100)), (*([1] * 98), 2, 3)
    rows = np.full((2, 100), 0.1)
    rows[1, 98:] = 0.9, 0.5
    assert dp_sums.cell_counts(rows, box, box, shape, never_abort).tolist() == [1, 0, 0, 0, 1, 0]
