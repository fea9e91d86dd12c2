"""Second moments and cells along main axes: what a row changes, and what they make of rows without noise."""

import math

import numpy as np
import pytest

from flareclust._foundation.typing import never_abort
from flareclust.core.dp import axes
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box


def ball(d: int, radius: float = 1.0) -> Box:
    return Box(np.full(d, -radius), np.full(d, radius), radius)


def spread(rows: np.ndarray, box: Box) -> axes._Spread:
    d, sums = rows.shape[1], axes.second_moment_sums(rows, box, box, never_abort)
    values, products = sums[1 : 1 + d] / axes.VALUE_UNIT, sums[1 + d :] / axes.SQUARE_UNIT
    return axes.spread_of(sums[0] / axes.ROW_UNIT, values, products, 0.0)


def test_second_moments_give_the_mean_and_the_covariance(rng):
    rows = rng.normal(size=(3000, 5)) @ rng.normal(size=(5, 5)) * 0.05 + 0.1
    found = spread(rows, ball(5, 2.0))
    assert found.rows == 3000
    np.testing.assert_allclose(2 * found.mean, rows.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(4 * found.covariance, np.cov(rows.T, bias=True), atol=1e-3)


def test_a_row_changes_second_moments_by_their_sensitivity_at_most(rng):
    """Of 4,000 neighbours, with rows of all directions and lengths, in few columns and in many."""
    largest = 0.0
    for d in (1, 2, 3, 8, 40):
        box = ball(d, 3.0)
        before = rng.normal(size=(7, d))
        here = axes.second_moment_sums(before, box, box, never_abort)
        for i in range(800):
            row = rng.normal(size=d) * 10 ** rng.uniform(-2, 3)
            row = np.where(rng.uniform(size=d) < (i % 4) / 4, 0.0, row)
            there = axes.second_moment_sums(np.vstack([before, row]), box, box, never_abort)
            largest = max(largest, float(np.sqrt(((there - here).astype(float) ** 2).sum())))
    assert 0.98 * axes.second_moment_sensitivity() < largest <= axes.second_moment_sensitivity()


def test_a_row_changes_one_cell_by_one(rng):
    box = ball(6, 2.0)
    directions = np.linalg.qr(rng.normal(size=(6, 6)))[0][:3]
    asked = axes.Grid(rng.normal(size=6) * 0.1, directions, rng.uniform(0.5, 2, size=3), (3, 2, 4))
    rows = rng.normal(size=(4000, 6)) * 10 ** rng.uniform(-2, 2, size=(4000, 1))
    counts = axes.axis_cell_counts(rows, box, asked, never_abort)
    assert counts.sum() == 4000
    alone = sum(axes.axis_cell_counts(row[None], box, asked, never_abort) for row in rows[:300])
    np.testing.assert_array_equal(alone, axes.axis_cell_counts(rows[:300], box, asked, never_abort))


def test_cells_are_where_the_rows_are(rng):
    rows = rng.normal(size=(500, 4)) * 0.3
    axis = np.array([[0.6, 0.8, 0.0, 0.0]])
    grid = axes.Grid(np.zeros(4), axis, np.array([1.0]), (4,))
    counts = axes.axis_cell_counts(rows, ball(4, 9.0), grid, never_abort)
    expected = np.histogram(np.clip(rows @ axis[0], -1, 0.999), bins=4, range=(-1, 1))[0]
    np.testing.assert_array_equal(counts, expected)


def test_clusters_in_many_columns_are_found_without_noise(rng):
    centers = rng.normal(size=(6, 30)) * 0.1
    rows, box = np.repeat(centers, 200, axis=0) + rng.normal(size=(1200, 30)) * 0.004, ball(30)
    found = spread(rows, box)
    grid = axes.grid_along(found, box, 500, 6)
    counts = axes.axis_cell_counts(rows, box, grid, never_abort)
    centroids, _ = axes.cluster_cells(counts.astype(float), 0.0, grid, 6, rng)
    nearest = ((centers[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    assert len(set(nearest)) == 6


def test_axes_are_used_where_rows_outweigh_noise_only():
    clear = axes._Spread(1e5, np.zeros(3), np.eye(3) * 0.1, 0.01)
    assert axes.is_clear(clear, 1000, 10.0, 10)
    assert not axes.is_clear(clear._replace(noise=0.2), 1000, 10.0, 10)
    assert not axes.is_clear(clear, 1000, 3000.0, 10)
    # The largest of 1000 normal numbers is about 3.7: with noise of 1700 less than two thirds of a cluster's 10,000 rows.
    assert axes.is_clear(clear, 1000, 1700.0, 10)
    assert not axes.is_clear(clear, 1000, 1900.0, 10)


def test_cells_are_finer_where_rows_are_many_and_noise_is_small():
    found = axes._Spread(3e4, np.zeros(3), np.eye(3), 0.0)
    assert axes.cells_for(found, 10.0, 4) == 1000
    assert axes.cells_for(found, 1000.0, 4) == 512
    assert axes.cells_for(found, 1e-9, 4) == 2**15


def test_noise_of_second_moments_has_the_eigenvalues_that_are_expected(rng):
    """Wigner: the largest eigenvalue of symmetric noise is twice the deviation of an entry times the root of d."""
    d, noise = 60, 1e9
    drawn = rng.normal(0, noise, size=d * (d + 1) // 2) / axes.SQUARE_UNIT
    largest = np.linalg.eigvalsh(axes._matrix_of(drawn, d)).max()
    assert largest == pytest.approx(2 * math.sqrt(d) * axes._product_noise(noise), rel=0.15)


def test_radii_settle_on_the_distance_of_rows_from_their_centroids():
    d, rows, within = 50, 1000.0, 0.04
    sums = dp_sums.ClusterSums(np.zeros((2, d)), np.full(2, rows), np.full(2, rows * within))
    settled = axes.settled_radii(np.ones(2), sums, 0.0, ball(d))
    np.testing.assert_allclose(settled, 1.3 * math.sqrt(within))
    shifted = sums._replace(shifts=np.full((2, d), rows * math.sqrt(0.01 / d)))
    np.testing.assert_allclose(axes.settled_radii(np.ones(2), shifted, 0.0, ball(d)), 1.3 * math.sqrt(0.03))
    assert (axes.settled_radii(np.ones(2), sums._replace(rows=np.zeros(2)), 1.0, ball(d)) == 1).all()


def test_cells_are_counted_from_the_middle_that_was_asked_for():
    rows = np.array([[0.5], [1.5], [2.5], [3.5], [9.0]])
    box, middle = Box(np.array([0.0]), np.array([10.0])), np.array([2.0])
    grid = axes.Grid(middle, np.array([[1.0]]), np.array([2.0]), (4,))
    counts = axes.axis_cell_counts(rows, box, grid, never_abort)
    assert counts.tolist() == [1, 1, 1, 2]  # rows beyond the grid are in its last cell


def test_noise_alone_makes_no_radius_small():
    """A radius near 0 would hold centroids where they are, with an inertia of nothing."""
    d = 20
    nothing = axes._Spread(1e3, np.zeros(d), np.eye(d) * -0.01, 0.2)
    assert axes.first_radius(nothing, ball(d), 4) > 0.3
    sums = dp_sums.ClusterSums(np.zeros((2, d)), np.full(2, 1000.0), np.full(2, -30.0))
    assert axes.settled_radii(np.ones(2), sums, 10.0, ball(d)).min() > 0.3


def test_parts_are_joined_by_their_rows(rng):
    parts = np.array([[0.0], [1.0], [10.0], [14.0]])
    centroids, rows = axes.joined(parts, np.array([900.0, 100.0, 50.0, 0.0]), 2, rng)
    np.testing.assert_allclose(np.sort(centroids[:, 0]), [0.1, (500 + 14) / 51])
    np.testing.assert_allclose(np.sort(rows), [51, 1000])
