"""The choice of the number of a site's clusters by the silhouette."""

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, silhouette_score

from flareclust._foundation.errors import Refusal
from flareclust.core import site_clusters as module
from flareclust.core.site_clusters import (
    _CLUSTERERS_AT_SITES,
)
from tests.unit.core.site_clusters_cases import blobs, clusters


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("true_k", [2, 3, 5])
def test_the_silhouette_finds_the_number_of_separated_clusters(clusterer, true_k):
    data, y = blobs(true_k, 20, d=5)
    found = clusters(data, 8, clusterer=clusterer, k_local="silhouette")
    assert adjusted_rand_score(y, found.labels) == 1


def test_the_silhouette_is_that_of_scikit_learn_on_the_rows():
    data = np.random.default_rng(4).normal(size=(90, 2)) + 1e4
    scores = {}
    for k in range(2, 8):
        labels = AgglomerativeClustering(n_clusters=k).fit_predict(data)
        scores[k] = silhouette_score(data, labels)
    found = clusters(data, 7, clusterer="agglomerative", k_local="silhouette", min_count=1)
    best = AgglomerativeClustering(n_clusters=max(scores, key=scores.get)).fit_predict(data)
    sent = found.labels >= 0
    assert adjusted_rand_score(best[sent], found.labels[sent]) == 1


def test_the_silhouette_of_many_rows_looks_at_some_of_them(monkeypatch):
    data, y = blobs(3, 100)
    monkeypatch.setattr(module, "SILHOUETTE_ROWS", 50)
    seen = []
    monkeypatch.setattr(
        "sklearn.metrics.silhouette_score", lambda D, labels, metric: seen.append(D.shape) or -len(set(labels))
    )
    found = clusters(data, 4, k_local="silhouette")
    assert seen == [(50, 50)] * 3
    assert len(found.centroids) == 2  # by the stand-in, fewer clusters are better; all rows are in them
    assert found.counts.sum() == len(y)


@pytest.mark.parametrize("rows", [2, 3])
def test_too_few_rows_to_compare_numbers_of_clusters_are_one_cluster(rows):
    data = np.arange(rows, dtype=float)[:, None] ** 2
    found = clusters(data, 5, k_local="silhouette")
    assert found.counts.tolist() == [rows]


def test_rows_that_are_all_alike_in_two_places_are_two_clusters_that_stay():
    data = np.repeat([[0.0], [9.0]], 5, axis=0)
    with pytest.raises(Refusal, match="nothing it may send"):
        clusters(data, 4, k_local="silhouette")


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
def test_a_number_counts_as_far_as_the_rows_go(clusterer):
    data = np.random.default_rng(0).normal(size=(11, 2))
    assert len(clusters(data, 8, clusterer=clusterer, k_local=3, min_count=1).labels) == 11
    assert clusters(data, 8, clusterer=clusterer, k_local=1).counts.tolist() == [11]
    for k_local in (None, 8, "silhouette"):
        found = clusters(data, 8, clusterer=clusterer, k_local=k_local, min_count=5)
        assert len(found.counts) <= 2
        assert (found.counts >= 5).all()
