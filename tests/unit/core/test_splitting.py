"""The start of Lloyd's algorithm by splitting: by hand, always k centroids, and it ends."""

import numpy as np
import pytest

from flareclust.aggregators.lloyd import split
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.refinement import SPREAD
from flareclust.protocol.registry import get


def test_a_split_worked_by_hand() -> None:
    centroids, counts = np.array([[0.0, 0.0], [10.0, 10.0]]), np.array([4, 9])
    found = split(centroids, counts, np.array([[16.0, 1.0], [3.0, 9.0]]), 1)
    assert found.tolist() == [[-2.0, 0.0], [10.0, 10.0], [2.0, 0.0]]
    twice = split(centroids, counts, np.array([[16.0, 1.0], [3.0, 9.0]]), 2)
    assert twice.tolist() == [[-2.0, 0.0], [10.0, 9.0], [2.0, 0.0], [10.0, 11.0]]
    assert centroids.tolist() == [[0.0, 0.0], [10.0, 10.0]]


def test_equal_rows_are_not_split() -> None:
    assert split(np.zeros((1, 2)), np.array([5]), np.zeros((1, 2)), 3).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("k", [1, 2, 16, 40])
def test_the_start_ends_and_has_k_centroids(k: int) -> None:
    rng = np.random.default_rng(k)
    sites = {f"site-{i}": rng.normal(size=(80, 3)) for i in range(3)}
    outcome = run_inprocess(get("lloyd"), {"split_merge": 0}, sites, JobOptions(k=k, secure_sums=True))
    assert len(outcome.centroids) == k
    starts = [record for record in outcome.rounds if record["step"] == SPREAD]
    assert 1 <= len(starts) <= 20


def test_a_few_rows_that_may_hardly_be_disclosed_still_end() -> None:
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(n, 2)) for i, n in enumerate((5, 5, 5, 2))}
    outcome = run_inprocess(get("lloyd"), {"split_merge": 0}, sites, JobOptions(k=6, secure_sums=True))
    assert not outcome.refused
    assert np.isfinite(outcome.centroids).all()
    assert len([record for record in outcome.rounds if record["step"] == SPREAD]) <= 6


def test_the_start_is_followed_by_attempts_to_leave_its_local_optimum() -> None:
    """A large cluster is split before small ones are parted; updates alone do not undo that."""
    rng = np.random.default_rng(1)
    y = rng.choice(7, 1500, p=[0.5, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02])
    means = 4 * rng.normal(size=(7, 5))
    X = means[y] + rng.normal(size=(1500, 5))
    sites = {f"site-{i}": X[i::3] for i in range(3)}
    centers = np.stack([X[y == c].mean(axis=0) for c in range(7)])
    optimum = ((X - centers[y]) ** 2).sum()
    options = JobOptions(k=7, secure_sums=True)

    def inertia(**settings: object) -> float:
        return float(run_inprocess(get("lloyd"), settings, sites, options).metrics["inertia"] or 0)

    assert inertia() < 1.001 * optimum
    assert inertia(split_merge=0) > 1.1 * optimum
    by_default, without = (
        run_inprocess(get("lloyd"), {"start": centers.tolist(), **more}, sites, options)
        for more in ({}, {"split_merge": 0})
    )
    assert len(by_default.rounds) == len(without.rounds)  # with a start of its own it is Lloyd's algorithm
