"""Clusters that are a site, and clusters of a few rows."""

import numpy as np
import pytest

from flareclust.evaluation.batch_effects import batch_effects, tiny_clusters


def test_clusters_that_are_together_one_site_are_named():
    counts = {"a": np.array([90, 0, 110, 2]), "b": np.array([80, 0, 95, 0]), "c": np.array([1, 60, 1, 88])}
    assert batch_effects(counts) == [
        "clusters 1 and 3 may be a batch effect: 99 % of their rows are those of c, and they are 99 % of that site's"
    ]


def test_half_of_a_site_in_a_cluster_with_a_few_others_is_named():
    counts = {"a": np.array([90, 60, 3]), "b": np.array([80, 70, 3]), "c": np.array([40, 0, 60])}
    [text] = batch_effects(counts)
    assert text == "cluster 2 may be a batch effect: 91 % of its rows are those of c, and they are 60 % of that site's"
    counts["a"][2] += 1
    assert batch_effects(counts) == []  # below 90 % of the cluster


def test_sites_with_clusters_of_their_own_are_one_sentence():
    found = batch_effects({f"s{i}": rows for i, rows in enumerate(100 * np.eye(8, dtype=np.int64))})
    shown = ", ".join(f"s{i} (cluster {i})" for i in range(5))
    [text] = found
    assert text.startswith("clusters of 8 sites may be a batch effect")
    assert f"or are their patients others? {shown} and 3 more sites: of" in text


@pytest.mark.parametrize(
    "counts",
    [
        {"a": [960, 970, 980], "b": [40, 30, 20]},  # a large site, of whose rows most of every cluster are
        {"a": [90, 60, 0], "b": [80, 70, 0], "c": [60, 0, 40]},  # a part of a site
        {"a": [90, 60, 0], "b": [80, 70, 0], "c": [0, 0, 9]},
    ],
)
def test_others_are_not(counts):
    assert batch_effects({site: np.array(rows) for site, rows in counts.items()}) == []


def test_clusters_of_a_few_rows_are_named():
    counts = {"a": np.array([2, 1500, 0]), "b": np.array([0, 1122, 1])}
    [text] = tiny_clusters(counts)
    assert text.startswith("few of 2,625 rows are in cluster 0 (2 rows), cluster 2 (1 row): ")
    assert tiny_clusters({"all": np.array([5, 60, 0])}) == tiny_clusters({}) == []
