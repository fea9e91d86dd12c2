"""Separability, covered populations and bounds of distributed k-means++."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.dkmpp_bounds import covered, mse_bound, uncovered_bound
from flareclust._foundation.errors import UserError
from flareclust.aggregators.dkmpp import separability
from tests.examples import examples
from tests.unit.algorithms.dkmpp_cases import LETTER, line, merge, sent


def test_separability_by_hand():
    points = np.array([[0.0, 0], [2, 0], [10, 3], [10, -3], [10, 0]])
    assert separability(points, np.array([0, 0, 1, 1, 1])) == pytest.approx(9 / 3)
    assert separability(points, np.array([0, 1, 2, 3, 4])) == float("inf")
    assert separability(points, np.zeros(5, dtype=int)) == float("inf")


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 5), d=st.integers(1, 4))
def test_separability_is_definition_1(seed, k, d):
    rng = np.random.default_rng(seed)
    points, labels = rng.normal(size=(20, d)), np.concatenate([np.arange(k), rng.integers(k, size=20 - k)])
    mu = [points[labels == r].mean(axis=0) for r in range(k)]
    apart = min(np.linalg.norm(mu[a] - mu[b]) for a in range(k) for b in range(k) if a != b)
    alpha = separability(points, labels)
    widest = max(np.linalg.norm(mu[r] - x) for x, r in zip(points, labels, strict=True))
    assert alpha * 0.999999 * widest < apart
    assert not alpha * 1.000001 * widest < apart


def test_covered_populations_by_hand():
    means = line(0, 10, 20)
    assert covered(line(1, -1, 19), means).tolist() == [True, False, True]


def test_the_bounds_by_hand():
    """K = 2, r = D = 4, R = 1: 1 - (16 - 6) / (8 * 36) = 1 - 10/288."""
    assert uncovered_bound(2, 4, 1, 4) == pytest.approx((278 / 288) ** 2)
    assert mse_bound(2, 3, 4, 1, 4, 0.5) == pytest.approx(0.5 + 4 * 17 * (278 / 288) ** 6)
    assert uncovered_bound(2, 1, 0, 1) == pytest.approx((7 / 8) ** 2)  # populations of one point each


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: uncovered_bound(2, 2.4, 1, 5), "Assumption 2"),
        (lambda: uncovered_bound(2, 5, 1, 4), "Assumption 2"),
        (lambda: uncovered_bound(2, 5, 1, float("nan")), "Assumption 2"),
        (lambda: uncovered_bound(0, 5, 1, 5), "k must be"),
        (lambda: mse_bound(2, 0, 5, 1, 5, 0.5), "m must be"),
        (lambda: mse_bound(2, 3, 5, 1, 5, 0.5, alpha=2), "alpha"),
        (lambda: mse_bound(2, 3, 5, 1, 5, 1.5), "variance"),
        (lambda: separability(np.empty((0, 2)), np.empty(0, dtype=int)), "at least one row"),
        (lambda: separability(line(0, 1), np.array([1, 1])), "from 0"),
    ],
)
def test_bad_input_to_the_definitions_and_bounds(call, words):
    with pytest.raises(UserError, match=words):
        call()


def square_of_discs(r, rng, n=20):
    """Four populations, uniform on discs of radius 1 at the corners of a square of side r: means, n rows of each."""
    means = np.array([[0, 0], [r, 0], [0, r], [r, r]], dtype=float)
    angle, radius = rng.uniform(0, 2 * np.pi, (4, n)), np.sqrt(rng.uniform(size=(4, n)))
    rows = means[:, None] + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    return means, rows.reshape(-1, 2)


def users_of(r, number, seed):
    """Return the means and what `number` users send by the paper's letter."""
    rng = np.random.default_rng(seed)
    replies = []
    for _ in range(number):
        means, rows = square_of_discs(r, rng)
        replies.append(sent(rows, 4, rng, min_count=1, **LETTER))
    return means, replies


def test_the_probability_of_an_uncovered_population_falls_as_a_power_of_the_number_of_users():
    r, D = 2.5, 2.5 * 2**0.5
    means, replies = users_of(r, 4000, seed=0)
    hit = np.array([covered(reply["centroids"], means) for reply in replies])
    one = 1 - hit.mean()
    assert 0.05 < one < uncovered_bound(4, r, 1, D)
    for m in (2, 3):
        groups = hit[: len(hit) // m * m].reshape(-1, m, 4)
        together = 1 - groups.any(axis=1).mean()
        error = np.sqrt(one**m / (4 * len(groups)))
        assert together == pytest.approx(one**m, abs=4 * error)
        assert together < uncovered_bound(4, r, 1, D) ** m


def test_the_mean_squared_error_falls_below_the_variance_and_about_as_1_over_m():
    r, D, variance = 4.5, 4.5 * 2**0.5, 0.5
    means, replies = users_of(r, 1600, seed=1)
    mse = {}
    for m in (1, 2, 4, 8):
        errors = []
        for start in range(0, min(200 * m, len(replies)), m):
            seeds = {str(i): replies[start + i] for i in range(m)}
            centroids = merge(4, seeds).task["centroids"]
            errors.append(((means[:, None] - centroids[None]) ** 2).sum(axis=2).min(axis=1))
        mse[m] = np.mean(errors, axis=0)
        assert (mse[m] <= mse_bound(4, m, r, 1, D, variance, alpha=1.25)).all()
    assert mse[1].max() > variance
    assert mse[2].mean() < variance
    assert (mse[4] < variance).all()
    assert mse[4].mean() == pytest.approx(variance / 4, rel=0.25)
    assert mse[8].mean() == pytest.approx(variance / 8, rel=0.25)
