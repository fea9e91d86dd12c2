"""The split by location: how local it is, and who draws which row."""

from itertools import product

import numpy as np
import pytest

from flareclust.data.partition import _draw_until_drawn, partition


def _grid() -> tuple[np.ndarray, np.ndarray]:
    """Return 16 Gaussians on a 4 x 4 grid of spacing 5, the data the beta split was published with."""
    y = np.repeat(np.arange(16), 50)
    centres = np.array(list(product((-7.5, -2.5, 2.5, 7.5), repeat=2)))
    return centres[y] + np.random.default_rng(0).normal(size=(800, 2)), y


def _concentration(spec: str) -> float:
    """Return the share of a cluster that its largest owner has, over 20 seeds and 5 sites."""
    X, y = _grid()
    tops = []
    for seed in range(20):
        sites = partition(spec, X, None, 5, np.random.default_rng(seed))
        counts = np.array([np.bincount(y[rows], minlength=16) for rows in sites.values()])
        tops.append(counts.max(axis=0).mean() / 50)
    return float(np.mean(tops))


def test_a_small_beta_is_more_local_than_a_large_one() -> None:
    small, large = _concentration("beta:0.1"), _concentration("beta:10")
    assert small > large + 0.05
    assert _concentration("beta:1e4") == pytest.approx(_concentration("iid"), abs=0.02)
    assert _concentration("beta:0.1,nearest") == small


@pytest.mark.parametrize(("b", "published"), [(0.1, 0.875), (1, 0.69), (10, 0.33)])
def test_nearest_is_as_local_as_the_data_sets_published_with_the_paper(b: float, published: float) -> None:
    # Measured on the authors' files of 50 points per cluster and noise 1; their five locations are one draw of ours.
    assert _concentration(f"beta:{b},nearest") == pytest.approx(published, abs=0.05)


def test_given_that_somebody_draws_the_sites_draw_as_if_repeated_until_somebody_did() -> None:
    rates = np.array([0.05, 0.3, 1.2])
    p = 1 - np.exp(-rates)
    exact = {
        drawn: np.prod([q if d else 1 - q for d, q in zip(drawn, p, strict=True)])
        for drawn in product((False, True), repeat=3)
        if any(drawn)
    }
    total = sum(exact.values())
    n = 200_000
    drawn = _draw_until_drawn(np.tile(rates, (n, 1)), np.random.default_rng(0))
    for pattern, probability in exact.items():
        share = (drawn == pattern).all(axis=1).mean()
        assert share == pytest.approx(probability / total, abs=4 * np.sqrt(0.25 / n))
    assert drawn.any(axis=1).all()


def test_vanishing_and_infinite_rates_are_drawn_by_exactly_whom_they_should() -> None:
    n = 100_000
    drawn = _draw_until_drawn(np.tile([1e-200, 3e-200, 0.0], (n, 1)), np.random.default_rng(0))
    np.testing.assert_allclose([0.25, 0.75, 0], drawn.mean(axis=0), atol=0.006)
    drawn = _draw_until_drawn(np.tile([1e-9, np.inf, np.inf], (n, 1)), np.random.default_rng(0))
    np.testing.assert_allclose([0, 1, 1], drawn.mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("column", [0, 1])
def test_locations_are_uniform_between_the_least_and_the_largest_value_of_a_column(column: int) -> None:
    # The columns vary between 3 and 7, the other is constant. Two sites meet halfway between their locations; half the
    # sum of two uniform numbers is below 1/4, 1/2, 3/4 with probability 1/8, 1/2, 7/8.
    X = np.full((101, 2), 50.0)
    X[:, column] = np.linspace(3, 7, 101)
    meets = []
    for seed in range(1000):
        sites = partition("beta:1e-200", X, None, 2, np.random.default_rng(seed))
        low = min(sites.values(), key=lambda rows: X[rows, column].min(initial=np.inf))
        meets.append(len(low) / 101)
    below = (np.array(meets)[:, None] < [0.25, 0.5, 0.75]).mean(axis=0)
    np.testing.assert_allclose(below, [1 / 8, 1 / 2, 7 / 8], atol=4 * np.sqrt(0.25 / 1000))


def test_the_columns_of_a_location_are_independent() -> None:
    # Opposite corners of a square have different owners as often on one diagonal as on the other.
    X = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    apart = np.zeros(2)
    for seed in range(1000):
        owner = np.empty(4)
        for number, rows in enumerate(partition("beta:1e-200", X, None, 2, np.random.default_rng(seed)).values()):
            owner[rows] = number
        apart += owner[[0, 2]] != owner[[1, 3]]
    assert apart[0] == pytest.approx(apart[1], abs=4 * np.sqrt(1000 / 2))


def test_rows_that_nobody_draws_go_to_the_nearest_location_where_asked() -> None:
    X = np.array([[0.0, 0.0], [1.0, 1.0]] * 50)
    sites = partition("beta:1e-9,nearest", X, None, 2, np.random.default_rng(3))
    owners = {tuple(np.unique(X[rows], axis=0).ravel()) for rows in sites.values()}
    # Equal rows have one nearest location, so no two sites share a place.
    assert all(len(rows) in (0, 50, 100) for rows in sites.values())
    assert len(owners) == 2


def test_far_below_the_distances_the_split_is_by_inverse_distance() -> None:
    # Rows in one place, two sites: the odds are the inverse distances. The locations are the seed's first two draws.
    X = np.concatenate([np.zeros((20_000, 1)), [[1.0]]])
    first, second = np.random.default_rng(5).uniform(0, 1, (2, 1)).ravel()
    for b in ("1e-6", "1e-200"):
        sites = partition(f"beta:{b},redraw", X, None, 2, np.random.default_rng(5))
        share = len(sites["site-1"]) / len(X)
        assert share == pytest.approx((1 / first) / (1 / first + 1 / second), abs=0.015)
