"""The start of Lloyd's algorithm by splitting: by hand, always k centroids, and it ends."""

import numpy as np
import pytest

from flareclust.core.splitting import split
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.refinement import SPREAD
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
    outcome = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=k, secure_sums=True))
    assert len(outcome.centroids) == k
    starts = [record for record in outcome.rounds if record["step"] == SPREAD]
    assert 1 <= len(starts) <= 20


def test_a_few_rows_that_may_hardly_be_disclosed_still_end() -> None:
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(n, 2)) for i, n in enumerate((5, 5, 5, 2))}
    outcome = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=6, secure_sums=True))
    assert not outcome.refused
    assert np.isfinite(outcome.centroids).all()
    assert len([record for record in outcome.rounds if record["step"] == SPREAD]) <= 6
