"""What the centroids that sites sent say of a result: whether k-means of them is better, and whether they can be enough."""

import numpy as np
import pytest

import flareclust
from flareclust.core.lloyd import assign
from flareclust.evaluation.received import pooling_helps, too_few_local

PLACES = np.array([[0.0], [10.0], [20.0]])


def assessed(inertia, rows=60):
    """Replies of two sites with this mean squared distance together."""
    half = {"counts": np.array([rows // 2, 0, 0]), "sse": np.float64(inertia * rows / 2)}
    return {"a": half, "b": half}


def test_a_result_that_misses_a_place_is_named():
    # Two sites at three places. Of the result, 20 is missed by 9 twice in six: 27 of an inertia of 36 is what pooling saves.
    sent, result = np.repeat(PLACES, 2, axis=0), np.array([[0.0], [10.0], [11.0]])
    (said,) = pooling_helps(sent, np.ones(6), result, assessed(36.0), seed=0)
    assert said.startswith(
        "k-means of the 6 centroids that the sites sent is clearly better than this result: take pooled"
    )
    assert pooling_helps(sent, np.ones(6), PLACES, assessed(36.0), seed=0) == []
    # Where rows lie 5 % off in all, it is not worth a word; a centroid of few rows says little.
    assert pooling_helps(sent, np.ones(6), result, assessed(27.0 * 22), seed=0) == []
    assert pooling_helps(sent, np.array([50, 50, 50, 50, 1, 1]), result, assessed(36.0), seed=0) == []


def test_without_an_assessment_nothing_is_said():
    for replies in ({}, {"a": {"counts": np.zeros(3, int), "sse": np.float64(0.0)}}):
        assert pooling_helps(PLACES, np.ones(3), PLACES[:1], replies, seed=0) == []
        assert too_few_local(PLACES, np.array([0, 0, 1]), PLACES, replies, seed=0) == []


def few(places, site, k=3, inertia=1.0):
    return too_few_local(np.array(places)[:, None], np.array(site), PLACES[:k], assessed(inertia), seed=0)


def test_sites_with_few_clusters_each_are_not_named():
    # Three sites with two of the three places each: six centers, at the places.
    assert few([0, 10, 10, 20, 0, 20.0], [0, 0, 1, 1, 2, 2]) == []
    # With as many centers as clusters there is nothing to miss.
    assert few([5, 15, 16.0] * 2, [0, 0, 0, 1, 1, 1]) == []


@pytest.mark.parametrize(
    ("places", "site", "why"),
    [
        ([0, 10, 10, 20.0], [0, 0, 1, 1], "four centers for three clusters cannot tell"),
        ([5, 20, 5, 20, 5, 20.0], [0, 0, 1, 1, 2, 2], "all sites have the same two places"),
        ([3, 14, 6, 17, 0, 20.0], [0, 0, 1, 1, 2, 2], "centers lie between the clusters"),
    ],
)
def test_sites_that_may_have_more_clusters_are_named(places, site, why):
    (said,) = few(places, site)
    assert said.startswith("most sites described their rows by 2 centers for k=3"), why
    assert "set k_local to the most clusters that a site may have, 3 if unknown" in said


def blobs(held, seed=0, n=40):
    """Rows of nine clusters far apart; each site has those that are named."""
    rng = np.random.default_rng(seed)
    centers = 30.0 * np.array([[i, j] for i in range(3) for j in range(3)])
    return {f"s{i}": np.concatenate([centers[c] + rng.normal(size=(n, 2)) for c in own]) for i, own in enumerate(held)}


def inertia(sites, centroids):
    return float(assign(np.concatenate(list(sites.values())), centroids)[1].sum())


def test_kfed_is_right_where_sites_have_few_clusters_and_says_so_where_they_have_all():
    few_each = blobs([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 4, 8), (2, 4, 6), (1, 5, 6)])
    result = flareclust.run("kfed", few_each, k=9)
    assert result.warnings == []
    assert inertia(few_each, result.centroids) < 3 * sum(map(len, few_each.values()))
    every = blobs([range(9)] * 6)
    (said,) = (text for text in flareclust.run("kfed", every, k=9).warnings if "centers for k=9" in text)
    assert "by 3 centers" in said
    assert not any("centers for k=9" in text for text in flareclust.run("kfed", every, k=9, k_local=9).warnings)


def test_devices_with_few_rows_of_one_cluster_each_are_not_named():
    for seed in range(6):
        devices = blobs([(c,) for c in (0, 4, 8) * 4], seed, n=3)
        assert not any(
            "centers for k=3" in text for text in flareclust.run("kfed", devices, k=3, k_local=1, seed=seed).warnings
        )


def test_one_site_with_more_centers_does_not_stand_for_the_others():
    said = flareclust.run("kfed", blobs([range(9)] * 6), k=9, k_local={"s0": 9}).warnings
    assert any("by 3 centers for k=9" in text for text in said)


def test_nothing_is_advised_that_was_asked_for():
    sites = blobs([range(9)] * 6)
    sites["s0"] = sites["s0"][:-37]  # three rows of the last cluster, below min_count
    result = flareclust.run("kfed", sites, k=9, k_local=9, min_count=10)
    assert not any("set k_local" in text for text in result.warnings)


@pytest.mark.parametrize("algorithm", ["feca", "mavg", "dkmpp"])
def test_other_one_shot_algorithms_say_where_pooling_is_better(algorithm):
    named, silent = {}, 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        centers = rng.normal(size=(8, 2)) * 6
        y = rng.integers(8, size=1_200)
        X = centers[y] + rng.standard_t(3, size=(1_200, 2)) / 1.5
        sites = {f"s{i}": X[i::4] for i in range(4)}
        result, pooled = (flareclust.run(name, sites, k=8, seed=seed) for name in (algorithm, "pooled"))
        worse = inertia(sites, result.centroids) / inertia(sites, pooled.centroids)
        named[seed] = (worse, any("clearly better than this result" in text for text in result.warnings))
        silent += worse > 1.1 and not result.warnings
    assert silent <= 1  # without the numbers of rows, which feca and mavg do not send, it is an estimate
    assert sum(said for _, said in named.values()) >= 2
    assert sum(said for worse, said in named.values() if worse < 1.01) <= 2


def test_lying_sites_and_directions_are_left_alone():
    sites = blobs([range(9)] * 5)
    sites["s4"] = 1e3 + sites["s4"]
    assert not any(
        "clearly better than this result" in text
        for text in flareclust.run("mavg", sites, k=9, robust="trimmed").warnings
    )
    rng = np.random.default_rng(0)
    lines = {f"s{i}": np.outer(rng.uniform(1, 9, 60), [1.0, i % 2]) + rng.normal(size=(60, 2)) for i in range(4)}
    assert not any(
        "clearly better than this result" in text
        for text in flareclust.run("feca", lines, k=2, metric="cosine").warnings
    )
