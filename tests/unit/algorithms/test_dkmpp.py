"""Distributed k-means++ against a literal twin, by hand, and on S1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust.core import clusterers
from flareclust.data.datasets import load
from flareclust.data.partition import partition
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import metrics
from flareclust.protocol.registry import get
from flareclust.testing import iid_sites
from tests.examples import examples
from tests.unit.algorithms.dkmpp_cases import LETTER, line, merge, sent


def run(sites, k, seed=0, **params):
    return run_inprocess(get("dkmpp"), params, sites, JobOptions(k=k, seed=seed))


def on_a_line(**sites):
    return {name: {"centroids": line(*seeds), "counts": np.arange(2, 2 + len(seeds))} for name, seeds in sites.items()}


def algorithm_1(D, K, rng):
    """Return the indices of the seeds; a sample is chosen by where a uniform number falls among the probabilities."""

    def choose(probabilities):
        u, total = rng.random(), 0.0
        for i, p in enumerate(probabilities):
            total += p
            if u < total:
                return i
        raise AssertionError("a rounding error that the test's seeds do not have")

    C = [choose([1 / len(D)] * len(D))]  # lines 1-2
    for _ in range(2, K + 1):  # line 3
        d2 = [min(sum((a - b) ** 2 for a, b in zip(x, D[c], strict=True)) for c in C) for x in D]
        C.append(choose([value / sum(d2) for value in d2]))  # lines 4-5
    return C


def cells(D, C):
    """Return the mean of the rows nearest to each seed."""
    nearest = [min(range(len(C)), key=lambda j: sum((a - b) ** 2 for a, b in zip(x, D[C[j]], strict=True))) for x in D]
    return [np.mean([x for x, j in zip(D, nearest, strict=True) if j == r], axis=0) for r in range(len(C))], nearest


def algorithm_2(sites, K, Xi, seed):
    """Return the final centers from the sites' rows, in the order in which Xi numbers its clusters."""
    centers = []
    for name in sorted(sites):  # lines 1-4
        centers += [sites[name][c] for c in algorithm_1(sites[name].tolist(), K, stream(seed, 0, name))]
    C = Xi(centers)  # line 5 (i)
    return [np.sum([y for y, own in zip(centers, C, strict=True) if own == k], axis=0) / C.count(k) for k in set(C)]


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 4), k=st.integers(1, 6))
def test_seeds_are_those_of_algorithm_1(seed, d, k):
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(30, d)) + 6 * rng.normal(size=(3, d))[rng.integers(3, size=30)]
    C = algorithm_1(D.tolist(), k, np.random.default_rng(seed))

    rows = sent(D, k, np.random.default_rng(seed), min_count=1, **LETTER)
    np.testing.assert_array_equal(rows["centroids"], D[C])

    expected, nearest = cells(D.tolist(), C)
    sizes = np.bincount(nearest, minlength=k)
    np.testing.assert_array_equal(rows["counts"], sizes)
    means = sent(D, k, np.random.default_rng(seed), min_count=2, greedy=False)
    allowed = [mean for mean, size in zip(expected, sizes, strict=True) if size >= 2]
    np.testing.assert_allclose(means["centroids"], np.array(allowed), atol=1e-12)


@pytest.mark.parametrize("clusterer", clusterers.CLUSTERERS)
@pytest.mark.parametrize("seed", range(4))
def test_the_whole_is_algorithm_2(clusterer, seed):
    """On separated populations every clusterer finds what one that knows them does."""
    sites, means = iid_sites(m=5, k=4, d=3, seed=seed)

    def knows(centers):
        return [int(np.linalg.norm(means - c, axis=1).argmin()) for c in centers]

    expected = algorithm_2(sites, 4, knows, seed)
    found = run(sites, 4, seed, clusterer=clusterer, **LETTER).centroids
    order = [int(np.linalg.norm(found - center, axis=1).argmin()) for center in expected]
    np.testing.assert_allclose(found[order], np.array(expected), atol=1e-12)


# ---- the server, by hand ----


@pytest.mark.parametrize("clusterer", clusterers.CLUSTERERS)
def test_groups_are_averaged_without_weights(clusterer):
    merged = merge(2, on_a_line(a=(0, 10, 2), b=(12, 1)), clusterer)
    order = merged.task["centroids"][:, 0].argsort()
    np.testing.assert_allclose(merged.task["centroids"][order], line(1, 11))
    np.testing.assert_array_equal(merged.state.counts[order], [2 + 4 + 3, 3 + 2])
    np.testing.assert_array_equal(merged.state.received_centroids, line(0, 10, 2, 12, 1))
    np.testing.assert_array_equal(merged.state.received_counts, [2, 3, 4, 2, 3])
    np.testing.assert_array_equal(merged.state.received_site, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(order.argsort()[merged.state.received_group], [0, 1, 0, 1, 0])
    assert merged.done
    assert merged.diagnostics["received"] == 5
    assert merged.diagnostics["alpha"] == pytest.approx(10)  # means 10 apart, the farthest seed 1 from its own
    assert merged.diagnostics["separable"] == 1
    assert ("joined" in merged.diagnostics) == (clusterer == "convex")


def test_a_clustering_without_an_alpha_above_1_is_called_so():
    """Two points of 20 seeds each, 3 apart, cost more together than two single seeds that are 12 apart."""
    crowds = on_a_line(a=[0] * 20 + [3] * 20 + [100, 112])
    diagnostics = merge(3, crowds).diagnostics
    assert diagnostics["alpha"] == pytest.approx(3 / 6)
    assert diagnostics["separable"] == 0
    diagnostics = merge(4, crowds).diagnostics
    assert diagnostics["separable"] == 1


def test_an_infinite_alpha_is_left_out():
    diagnostics = merge(2, on_a_line(a=(0, 10), b=(0, 10))).diagnostics
    assert "alpha" not in diagnostics
    assert diagnostics["separable"] == 1
    assert "alpha" not in merge(1, on_a_line(a=(0, 10))).diagnostics


def test_fewer_different_seeds_than_k_give_fewer_centroids():
    assert len(merge(4, on_a_line(a=(0, 10), b=(0, 10))).task["centroids"]) == 2
    assert len(merge(4, on_a_line(a=(0, 10))).task["centroids"]) == 2


# ---- what leaves a site ----


@pytest.mark.parametrize("seeds", ["means", "rows"])
def test_cells_of_few_rows_stay(seeds):
    rng = np.random.default_rng(4)
    rows = np.concatenate([rng.normal(size=(60, 2)), 1e4 + rng.normal(size=(4, 2))])
    reply = sent(rows, 3, min_count=5, seeds=seeds)
    assert reply["counts"].min() >= 5
    assert np.abs(reply["centroids"]).max() < 5e3


def test_a_site_with_few_rows_draws_fewer_seeds_and_one_with_none_to_send_refuses():
    rng = np.random.default_rng(5)
    assert len(sent(rng.normal(size=(9, 2)), 8, min_count=3)["counts"]) <= 3
    with pytest.raises(Refusal, match="fewer rows than min_count=3"):
        sent(rng.normal(size=(2, 2)), 8, min_count=3)
    with pytest.raises(Refusal, match="nothing it may send"):
        sent(np.ones((20, 2)), 3)


def test_greedy_seeds_have_a_smaller_inertia():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(300, 2)) + 12 * rng.normal(size=(8, 2))[rng.integers(8, size=300)]

    def inertia(greedy):
        drawn = [sent(rows, 8, np.random.default_rng(s), seeds="rows", greedy=greedy)["centroids"] for s in range(30)]
        return np.mean([((rows[:, None] - c[None]) ** 2).sum(axis=2).min(axis=1).sum() for c in drawn])

    assert inertia(True) < 0.8 * inertia(False)


# ---- figures ----


def test_figures_on_s1(shared_data):
    """Readings: the letter is twice as far from the truth as the means of greedy seeds' cells."""
    dataset = load("s1")
    l2 = {}
    for name, params in {"default": {}, "letter": LETTER}.items():
        found = []
        for seed in range(5):
            parts = partition("iid", dataset.X, dataset.y, 10, np.random.default_rng(seed))
            sites = {site: dataset.X[part] for site, part in parts.items()}
            found.append(metrics.l2_distance(run(sites, 15, seed, **params).centroids, dataset.centroids) / 1e4)
        l2[name] = np.mean(found)
    assert 1.5 < l2["default"] < 3.5
    assert 4 < l2["letter"] < 7
