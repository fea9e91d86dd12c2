"""How large w may be: by the number of columns that sites share, and by what the mean of equation 10 does."""

import numpy as np
import pytest

from flareclust.core.exponent import LEAST_W, PAPER_W, automatic, least_overlap
from flareclust.core.forces import pair_forces

NAN = np.nan


def clouds(masks, rng, n=60, per_site=2):
    """Two clusters with spread at each site, NaN outside of its columns; and the cluster of each point."""
    found = []
    for mask in masks:
        for _ in range(per_site):
            points = 5 * rng.normal(size=len(mask)) + rng.normal(size=(n, len(mask)))
            found.append(np.where(np.array(mask, bool), points, NAN))
    return np.concatenate(found), np.repeat(np.arange(len(found)), n)


@pytest.mark.parametrize(
    ("masks", "rank"),
    [
        ([(1, 1, 1, 0, 0), (0, 0, 1, 1, 1)], 1),
        ([(1, 1, 1, 1, 0), (0, 0, 1, 1, 1)], 2),
        ([(1, 1, 1, 1, 1), (1, 1, 1, 1, 1)], 5),
        ([(1, 1, 1, 1, 0), (1, 1, 1, 0, 0), (0, 0, 1, 0, 1)], 1),
        ([(1, 1, 1, 0, 0), (0, 0, 0, 1, 1)], 2),  # nothing in common: each site's own clusters
    ],
)
def test_the_least_overlap_is_that_of_two_sites_whose_clusters_are_compared(rng, masks, rank):
    assert least_overlap(*clouds(masks, rng)) == (rank, rank)
    assert least_overlap(*clouds(masks, rng), "cosine") == (rank, (rank - 1) / 2)


def test_columns_that_follow_from_others_and_those_without_spread_do_not_count(rng):
    points, cluster = clouds([(1, 1, 1), (1, 1, 1)], rng)
    extended = np.column_stack(
        [points, 1e6 + 3 * points[:, 0] - points[:, 1], np.full(len(points), 7.0), cluster + 0.1]
    )
    assert least_overlap(extended, cluster).rank == 3
    shares = rng.dirichlet(np.ones(3), 120)
    assert least_overlap(shares, np.repeat([0, 1], 60)).rank == 2


def test_clusters_without_spread_bound_nothing(rng):
    means = np.repeat(rng.normal(size=(4, 2)), 30, axis=0)
    assert least_overlap(means, np.repeat(np.arange(4), 30)).bound == np.inf
    assert least_overlap(rng.normal(size=(30, 1)), np.zeros(30, int)).bound == np.inf  # one cluster: nothing to compare


def test_w_is_the_papers_where_the_mean_is_finite_with_it():
    assert [automatic(bound) for bound in (np.inf, 3, 2.5)] == [PAPER_W] * 3
    assert [automatic(bound) for bound in (2, 1.5, 1, 0)] == [LEAST_W] * 4


@pytest.mark.parametrize(("d", "w", "grows"), [(1, 2.0, True), (2, 3.0, True), (3, 2.0, False), (2, LEAST_W, False)])
def test_the_mean_attraction_grows_with_the_number_of_points_where_w_is_beyond_the_bound(d, w, grows):
    """With n^2 pairs the nearest one is about n^(-2/d) away and alone adds n^(2w/d - 2) to the mean."""
    rng, means = np.random.default_rng(0), []
    for n in (50, 800):
        runs = []
        for _ in range(15):
            points = rng.uniform(size=(2 * n, d))
            force, pairs = pair_forces(points, np.repeat([0, 1], n), w)
            runs.append(force[0, 1] / pairs[0, 1])
        means.append(np.median(runs))
    assert (means[1] > 2 * means[0]) == grows
