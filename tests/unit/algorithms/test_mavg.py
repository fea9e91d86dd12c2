"""Match averaging does what its one sentence says, and reaches the figures that faithful implementations reach."""

from collections.abc import Mapping
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flareclust
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, never_abort
from flareclust.aggregators.mavg import _match_average
from flareclust.core.lloyd import kmeans
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.mavg import MAvgExecutor
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from flareclust.testing import iid_sites
from tests.computed import computed


def run(sites: Mapping[str, FloatArray], k: int, seed: int = 0, **params: object) -> Outcome:
    return run_inprocess(get("mavg"), params, sites, JobOptions(k=k, seed=seed))


def ask(rows: FloatArray, k: int, **params: object) -> FloatArray:
    executor = MAvgExecutor(k, **params)  # type: ignore[arg-type]
    return computed(executor, Task(StepName.CLUSTER, 0, {}, "site-1"), rows, np.random.default_rng(0), never_abort)[
        "centroids"
    ]


def _costs(centroids: FloatArray, matched: FloatArray) -> tuple[float, float]:
    distances = np.linalg.norm(centroids - matched, axis=1)
    return round(float(distances.sum()), 9), float((distances**2).sum())


def literal(sent: list[FloatArray]) -> FloatArray:
    """Match by trying every assignment, and average; of sums that are equal, the smallest squares count."""
    reference = next(one for one in sent if len(one) == max(map(len, sent)))
    groups: list[list[FloatArray]] = [[] for _ in reference]
    for centroids in sent:
        best = min(
            permutations(range(len(reference)), len(centroids)),
            key=lambda to: _costs(centroids, reference[list(to)]),
        )
        for c, r in zip(centroids, best, strict=True):
            groups[r].append(c)
    return np.array([np.mean(group, axis=0) for group in groups])


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_centroids_are_those_of_a_literal_twin(seed: int, k: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    sent = [rng.normal(size=(rng.integers(1, k + 1), d)) for _ in range(m)]
    centroids, matched = _match_average(sent)
    np.testing.assert_allclose(centroids, literal(sent), rtol=0, atol=1e-12)
    received = np.concatenate(sent)
    for r in range(len(centroids)):
        np.testing.assert_allclose(centroids[r], received[matched == r].mean(axis=0), rtol=0, atol=1e-12)


def test_an_average_worked_by_hand() -> None:
    first, second = np.array([[0.0, 0.0], [10.0, 0.0]]), np.array([[12.0, 2.0], [2.0, -2.0]])
    centroids, matched = _match_average([first, second])
    assert centroids.tolist() == [[1.0, -1.0], [11.0, 1.0]]
    assert matched.tolist() == [0, 1, 1, 0]


def test_distances_are_not_squared() -> None:
    # Straight 3 + sqrt(8) = 5.8, crossed 0 + sqrt(29) = 5.4; their squares add up to 17 and 29.
    centroids, matched = _match_average([np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 0.0], [5.0, 2.0]])])
    assert matched.tolist() == [0, 1, 1, 0]
    assert centroids.tolist() == [[2.5, 1.0], [3.0, 0.0]]


def test_the_first_of_those_that_sent_most_is_matched_to_and_keeps_what_nobody_else_has() -> None:
    few, maximum, other = np.array([[0.0], [9.0]]), np.array([[1.0], [5.0], [10.0]]), np.array([[20.0], [3.0], [7.0]])
    centroids, matched = _match_average([few, maximum, other])
    # 0, 1 and 3 meet; 5 and 7; 9, 10 and 20.
    np.testing.assert_allclose(centroids, [[4 / 3], [6.0], [13.0]])
    assert matched.tolist() == [0, 2, 0, 1, 2, 2, 0, 1]


def test_sites_count_equally_and_the_order_of_their_names_decides(sites: dict[str, FloatArray]) -> None:
    outcome = run(sites, 4)
    sent = outcome.arrays["received_centroids"]
    for r in range(4):
        members = outcome.arrays["matched"] == r
        assert members.sum() == 4
        np.testing.assert_allclose(outcome.centroids[r], sent[members].mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(outcome.arrays["received_site"], np.repeat(np.arange(4), 4))
    assert outcome.arrays["matched"][:4].tolist() == [0, 1, 2, 3]  # site-1 is the one matched to
    larger = {site: np.repeat(rows, 3, axis=0) if site == "site-2" else rows for site, rows in sites.items()}
    np.testing.assert_allclose(run(larger, 4).centroids[:, 0], outcome.centroids[:, 0], atol=1e-9)


def test_nothing_is_lost_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    sent = [rng.permutation(100 * np.arange(4.0))[:, None] + rng.normal(size=(4, 2)) for _ in range(5)]
    near, far = _match_average(sent)[0], _match_average([one + 2.0**40 for one in sent])[0]
    np.testing.assert_allclose(far - 2.0**40, near, rtol=0, atol=2.0 ** (40 - 51))


# The site


def test_a_site_sends_the_centroids_of_its_k_means() -> None:
    rows = iid_sites(m=1)[0]["site-1"]
    found = kmeans(rows, 4, np.random.default_rng(0))
    np.testing.assert_allclose(ask(rows, 4), found.centroids, atol=1e-3)  # which stops on its tolerance
    better = [kmeans(rows, 9, np.random.default_rng(0), n_init=n).inertia for n in (1, 20)]
    reached = [_inertia(rows, ask(rows, 9, n_init=n)) for n in (1, 20)]
    assert reached[1] < reached[0]
    np.testing.assert_allclose(reached, better, rtol=1e-2)


def _inertia(rows: FloatArray, centroids: FloatArray) -> float:
    return float(((rows[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum())


def test_a_site_with_fewer_rows_than_k_refuses() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(Refusal, match="has fewer rows than k=8"):
        ask(rng.normal(size=(7, 2)), 8)
    assert len(ask(rng.normal(size=(40, 2)), 8)) <= 8


def test_small_clusters_stay_and_the_others_are_matched() -> None:
    centers = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    rng = np.random.default_rng(0)
    full = {f"site-{i}": np.repeat(centers, 20, axis=0) + rng.normal(size=(60, 2)) for i in range(3)}
    lonely = np.vstack([full["site-1"][:40], [[0.0, 50.0]]])  # one row of the third cluster
    assert len(ask(lonely, 3)) == 2
    outcome = run(full | {"site-0": lonely}, 3)
    assert not outcome.refused
    assert outcome.arrays["received_site"].tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    found = outcome.centroids[np.lexsort(np.round(outcome.centroids, -1).T)]
    np.testing.assert_allclose(found, centers, atol=1.0)


# The real sets


#: l2 / 10,000 of thirty runs of a faithful implementation: mean, standard deviation.
BANDS = {
    ("s1", "iid"): (7.1, 4.9),
    ("s2", "iid"): (11.8, 5.7),
    ("s3", "iid"): (15.4, 6.2),
    ("s4", "iid"): (14.1, 4.9),
    ("s1", "dirichlet:0.3"): (44.0, 5.2),
    ("s2", "dirichlet:0.3"): (43.7, 3.8),
    ("s3", "dirichlet:0.3"): (35.8, 3.5),
    ("s4", "dirichlet:0.3"): (28.6, 3.2),
}


@pytest.mark.parametrize(("data", "partition"), BANDS, ids=str)
def test_the_error_on_the_s_sets_is_in_its_band(data: str, partition: str, shared_data: object) -> None:
    """Thirty seeds are in docs/algorithms/mavg.md; here eight, whose mean has a standard error of its own."""
    results = [flareclust.run("mavg", data=data, partition=partition, n_sites=10, seed=seed) for seed in range(8)]
    l2 = np.array([result.metrics["l2"] for result in results]) / 1e4
    mean, std = BANDS[data, partition]
    assert l2.mean() == pytest.approx(mean, abs=2.5 * std * np.sqrt(1 / 30 + 1 / 8))
    assert {result.centroids_found for result in results} == {15}
