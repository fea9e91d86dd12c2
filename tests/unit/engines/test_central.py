"""The baseline: scikit-learn's k-means with enough starts."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.core.runtime import one_thread
from flareclust.engines.pooled import _starts, central_kmeans


@pytest.mark.parametrize(("k", "n_init"), [(1, 10), (10, 10), (20, 10), (21, 10), (24, 12), (60, 30)])
def test_more_clusters_have_more_starts(k, n_init):
    assert _starts(k) == n_init


def test_the_starts_are_those_of_scikit_learn(rng):
    X = rng.normal(size=(300, 2))
    for k, given, used in ((3, None, 10), (40, None, 20), (40, 4, 4)):
        with one_thread():  # sums in several threads differ by rounding
            oracle = KMeans(k, n_init=used, random_state=5).fit(X).cluster_centers_
        np.testing.assert_array_equal(central_kmeans(X, k, 5, given), oracle)


def test_sixty_clusters_are_found_that_ten_starts_miss():
    """Sixty clusters on a grid; the optimum is known."""
    rng = np.random.default_rng(0)
    centers = 6.0 * np.array([(i, j) for i in range(10) for j in range(6)])
    X = np.repeat(centers, 20, axis=0) + rng.normal(size=(1200, 2))

    def inertia(found):
        return ((X[:, None] - found[None]) ** 2).sum(axis=2).min(axis=1).sum()

    assert inertia(central_kmeans(X, 60)) <= inertia(central_kmeans(X, 60, n_init=10))
    assert flareclust.run("central", X, 60).metrics["inertia"] == pytest.approx(inertia(central_kmeans(X, 60)))


def test_no_starts_are_refused():
    with pytest.raises(UserError, match="n_init"):
        central_kmeans(np.zeros((3, 1)), 2, n_init=0)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("algorithm", ["central", "kpod"])
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 1e9])
def test_fewer_different_rows_than_clusters_are_each_a_centroid_once(algorithm, scale):
    rows = np.array([[0.0, 1.0], [5.0, 5.0], [9.0, 1 / 7]]) * scale
    table = np.repeat(rows, [20, 7, 13], axis=0)
    result = flareclust.run(algorithm, table, 5, n_sites=2)
    np.testing.assert_array_equal(result.centroids, rows)
    assert result.centroids_found == 3
    np.testing.assert_array_equal(result.labels, np.repeat([0, 1, 2], [20, 7, 13]))
    np.testing.assert_array_equal(result.predict(table), np.repeat([0, 1, 2], [20, 7, 13]))
    text = "3 centroids were found where k=5 were asked for, since no more rows are different; take k=3 at most"
    assert text in result.warnings


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_rows_with_gaps_that_are_alike_are_one_centroid():
    sites = {"a": pd.DataFrame({"u": [0.0] * 20}), "b": pd.DataFrame({"u": [5.0] * 30, "v": [5.0] * 30})}
    result = flareclust.run("kpod", sites, 3)
    np.testing.assert_array_equal(result.centroids, [[0.0, np.nan], [5.0, 5.0]])
    assert {site: set(labels.tolist()) for site, labels in result.site_labels.items()} == {"a": {0}, "b": {1}}


def test_as_many_different_rows_as_clusters_give_them_all():
    result = flareclust.run("central", np.repeat(np.eye(3), 400, axis=0), 3)
    assert (result.centroids_found, len(np.unique(result.centroids, axis=0))) == (3, 3)
    assert not any("were found" in text for text in result.warnings)
