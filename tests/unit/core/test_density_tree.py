"""HDBSCAN's tree over groups of rows: against scikit-learn's on single rows, and what groups add."""

import numpy as np
import pytest
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from flareclust.core.density_tree import condensed, density_linkage, select_clusters


def moons(n=400):
    return make_moons(n, noise=0.07, random_state=0)[0]


def selected(tree, k, *, exactly):
    """The selected cluster of each group."""
    return select_clusters(tree, k, k if exactly else 0)[tree.cluster]


def clusters(X, counts=None, sse=None, min_samples=10, size=20, k=1000, *, exactly=False):
    counts = np.ones(len(X), np.int64) if counts is None else counts
    tree, core = density_linkage(X, counts, np.zeros(len(X)) if sse is None else sse, min_samples)
    return selected(condensed(tree, core, counts, size), k, exactly=exactly)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("min_samples", "size"), [(1, 5), (5, 5), (10, 25)])
def test_of_single_rows_it_has_the_clusters_and_the_noise_of_scikit_learn(seed, min_samples, size):
    rng = np.random.default_rng(seed)
    X = np.concatenate(
        [rng.normal(c, s, (60, 2)) for c, s in ((0, 1), (8, 0.5), (-7, 2))] + [rng.uniform(-20, 20, (40, 2))]
    )
    expected = HDBSCAN(min_cluster_size=size, min_samples=min_samples, copy=True).fit(X)
    ones = np.ones(len(X), np.int64)
    heights = density_linkage(X, ones, np.zeros(len(X)), min_samples)[0].height
    np.testing.assert_allclose(heights, np.sort(expected._single_linkage_tree_["value"]), rtol=1e-9)
    if (
        min_samples == 1
    ):  # else a core distance is that of several pairs of rows, and the order of equal ones is nobody's
        found = clusters(X, min_samples=min_samples, size=size)
        np.testing.assert_array_equal(found < 0, expected.labels_ < 0)
        assert adjusted_rand_score(expected.labels_, found) == 1.0


def test_equal_rows_in_groups_are_the_rows():
    X = moons(200)
    repeated = np.repeat(X, 3, axis=0)
    as_rows = clusters(repeated, min_samples=12, size=30)[::3]
    as_groups = clusters(X, np.full(200, 3), min_samples=12, size=30)
    np.testing.assert_array_equal(as_groups, as_rows)


@pytest.mark.parametrize(
    "X", [moons(), make_circles(400, noise=0.04, factor=0.4, random_state=0)[0]], ids=["moons", "rings"]
)
def test_k_clusters_are_found_where_k_are_asked_for(X):
    for k in (1, 2, 3):
        found = clusters(X, k=k, size=10, exactly=True)
        assert found.max() + 1 == k
    assert adjusted_rand_score(clusters(X), clusters(X, k=2, size=10, exactly=True)) > 0.98


def below(children, i):
    return {i}.union(*(below(children, one) for one in children[i]))


def test_the_clusters_selected_have_the_largest_stability_of_all_choices():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(c, 0.4, (40, 2)) for c in ((0, 0), (2, 0), (9, 0), (11, 1), (10, 9))])
    ones = np.ones(len(X), np.int64)
    tree = condensed(*density_linkage(X, ones, np.zeros(len(X)), 5), ones, 10)
    children = {i: np.flatnonzero(tree.parent == i).tolist() for i in range(len(tree.parent))}

    def choices(i):
        """Every set of clusters of the branch of i of which none is part of another."""
        below = [a | b for a in choices(children[i][0]) for b in choices(children[i][1])] if children[i] else []
        return [frozenset(), frozenset({i}), *below]

    assert set(selected(tree, 1, exactly=True)) == {0}
    for k in range(2, 6):
        found = selected(tree, k, exactly=True)
        best = max(sum(tree.stability[i] for i in one) for one in choices(0) if len(one) == k)
        own = [set(tree.cluster[found == label].tolist()) for label in range(k)]
        chosen = [max(i for i in children if leaves <= below(children, i)) for leaves in own]
        assert sum(tree.stability[i] for i in chosen) == pytest.approx(best)


def test_a_group_is_as_dense_as_its_own_spread_says_and_reaches_as_far():
    means, counts = np.array([[0.0, 0.0], [50.0, 0.0], [100.0, 0.0]]), np.array([20, 20, 20])
    tree, core = density_linkage(means, counts, np.array([20.0, 20.0, 2e5]), 5)
    # Along a line the first two have standard deviations of sqrt(20 / 20 / 2), so that their edges are closer than the means.
    # The third has a radius of sqrt(2e5 / 20 / 2 * 4), which is more than its distance from the second.
    np.testing.assert_allclose(tree.height, [50.0 - np.sqrt(0.5), np.sqrt(2e4)])
    assert core[2] == pytest.approx(np.sqrt(2e4))
    alone = condensed(tree, core, counts, 20)
    # The first two are clusters of their own; the third is no denser than the edge to it.
    assert selected(alone, 3, exactly=True).tolist() == [0, 1, -1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [5, 10])
def test_of_groups_the_clusters_are_nearly_those_of_scikit_learn_on_the_rows(seed, size):
    """Three arms of a spiral, close to each other, in groups of consecutive rows along them."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), 900)
    t = np.sort(rng.uniform(0.15, 1, (3, 900)) ** 0.6, axis=1).reshape(-1)
    angle = 7 * t + y * 2 * np.pi / 3
    X = 6 * t[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(scale=0.15, size=(2700, 2))
    group = np.arange(2700) // size
    means = np.stack([np.bincount(group, column) / size for column in X.T], axis=1)
    sse = np.bincount(group, ((X - means[group]) ** 2).sum(axis=1))
    found = clusters(means, np.full(len(means), size), sse, 3 * size, 3 * size, 3, exactly=True)[group]
    pooled = HDBSCAN(min_cluster_size=3 * size, min_samples=3 * size, copy=True).fit(X).labels_
    both = (pooled >= 0) & (found >= 0)
    assert both.mean() > 0.9
    assert adjusted_rand_score(pooled[both], found[both]) > 0.95


def test_rows_in_one_place_are_one_cluster_and_finite():
    ones = np.ones(5, np.int64)
    tree = condensed(*density_linkage(np.ones((5, 2)), ones, np.zeros(5), 3), ones, 2)
    assert np.isfinite(tree.stability).all()
    single = condensed(*density_linkage(np.ones((1, 2)), ones[:1], np.zeros(1), 3), ones[:1], 2)
    assert selected(single, 4, exactly=True).tolist() == [0]
    assert set(selected(tree, 1, exactly=True)) == {0}
