"""Trimmed rows: the farthest ones are left out, wherever they are, and no others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.errors import Aborted, UserError
from flareclust._foundation.typing import never_abort
from flareclust.core.trimming import nearest_rows, trimmed_rows
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from tests.examples import examples


def test_the_farthest_rows_are_left_out_and_the_others_keep_their_order() -> None:
    data = np.array([[9.0], [0.1], [5.2], [7.0], [0.0], [4.9], [-3.0], [5.0], [0.3], [0.2]])
    np.testing.assert_array_equal(
        nearest_rows(data, np.array([[0.0], [5.0]]), 0.35)[:, 0], [0.1, 5.2, 0.0, 4.9, 5.0, 0.3, 0.2]
    )
    assert nearest_rows(data, np.array([[0.0]]), 0.05) is data  # less than a row


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 5), st.floats(0, 0.49))
def test_so_many_rows_are_left_out(seed: int, n: int, k: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    data, centroids = rng.normal(size=(n, 2)), rng.normal(size=(k, 2))
    for kept in (
        nearest_rows(data, centroids, share),
        trimmed_rows(data, k, share, rng, n_init=2, aborted=never_abort),
    ):
        assert len(kept) == n - int(share * n)
        assert {tuple(row) for row in kept} <= {tuple(row) for row in data}


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_those_of_a_literal_trimmed_k_means(seed: int) -> None:
    """Leave out the farthest rows, move each centroid to the mean of its own, until no cost is saved."""
    data = np.random.default_rng(seed).normal(size=(80, 2)) + np.repeat(
        [[0.0, 0.0], [5.0, 0.0], [0.0, 4.0], [5.0, 4.0]], 20, axis=0
    )
    found = trimmed_rows(data, 4, 0.1, np.random.default_rng(seed), n_init=1, aborted=never_abort)
    centroids = data[np.random.default_rng(seed).choice(80, size=4, replace=False)]
    for _ in range(100):
        distances = np.linalg.norm(data[:, None] - centroids, axis=2)
        kept = np.sort(np.argsort(distances.min(axis=1))[:72])
        nearest = distances[kept].argmin(axis=1)
        centroids = np.array([data[kept][nearest == c].mean(axis=0) for c in range(4)])
    np.testing.assert_array_equal(found, data[kept])


def test_it_stops_when_aborted() -> None:
    with pytest.raises(Aborted):
        trimmed_rows(np.eye(30), 2, 0.1, np.random.default_rng(0), n_init=1, aborted=lambda: True)


def test_a_start_from_the_totals_of_all_rows_would_tell_the_trimmed_ones() -> None:
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=(30, 2)) for i in range(3)}
    with pytest.raises(UserError, match="trim_rows with secure_sums needs a start"):
        run_inprocess(get("lloyd"), {"trim_rows": 0.1}, sites, JobOptions(k=2, seed=0, secure_sums=True))


@pytest.mark.parametrize(("name", "secure"), [("portfolio", False), ("portfolio", True), ("lloyd", False)])
def test_spoilt_rows_cost_clusters_unless_rows_are_trimmed(name: str, secure: bool) -> None:
    """One row in twenty is spoilt, far from all clusters; ten clusters, five sites."""
    rng = np.random.default_rng(1)
    centers = np.array([[8.0 * (i % 4), 8.0 * (i // 4)] for i in range(10)])
    y = np.tile(np.arange(10), 100)
    X = centers[y] + rng.normal(size=(1000, 2))
    spoilt = rng.choice(1000, 50, replace=False)
    X[spoilt] = rng.uniform(-400, 400, (50, 2))
    sites = {f"site-{i}": X[i::5] for i in range(5)}
    good = np.isin(np.arange(1000), spoilt, invert=True)
    ari = {}
    for share in (0.0, 0.1):
        settings = {"trim_rows": share} | ({"split_merge": 3} if name == "lloyd" else {})
        found = run_inprocess(get(name), settings, sites, JobOptions(k=10, seed=0, secure_sums=secure))
        labels = np.empty(1000, dtype=np.int64)
        for i in range(5):
            labels[i::5] = found.labels[f"site-{i}"]
        ari[share] = adjusted_rand_score(y[good], labels[good])
        near = np.linalg.norm(found.centroids[:, None] - centers[None], axis=2).min(axis=0)
    assert ari[0.0] < 0.9
    assert ari[0.1] > 0.97
    assert (near < 1).all()
