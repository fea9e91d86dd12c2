"""Clusters that are a site, of a few rows, of outliers, or of wrong cells."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.typing import FloatArray
from flareclust.evaluation.batch_effects import batch_effects, outlying_clusters, site_shares, tiny_clusters


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


def test_small_clusters_that_are_wide_or_far_are_named():
    centroids = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 40.0], [4.0, -999.0]])
    counts, scatter = np.array([500, 460, 30, 10]), np.array([500.0, 460.0, 240.0, 10.0])
    wide, far = outlying_clusters(centroids, counts, scatter, "trim")
    assert wide.startswith("cluster 2 with 3.0% of the rows is 8 times as wide as the others: outliers")
    assert far.startswith("cluster 3 with 1.0% of the rows lies more than 10 times as far away as the others are apart")
    assert "in column 2 of 2: a code for missing cells" in far
    assert all(text.endswith("; trim") for text in (wide, far))
    assert outlying_clusters(centroids[:3], counts[:3], np.array([500.0, 460.0, 80.0]), "trim") == []  # less wide
    assert outlying_clusters(centroids[:2], np.array([30, 10]), np.array([1.0, 9.0]), "trim") == []  # no small one
    assert outlying_clusters(centroids[:2], np.array([0, 0]), np.zeros(2), "trim") == []


def blobs(outlying: float = 0.0, code: float = 0.0) -> dict[str, np.ndarray]:
    """Return three sites' rows of three groups; a share of them ten times as far away, or with -999 at one site."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 2)) + np.array([[0, 0], [6, 0], [0, 6]])[y]
    far = rng.random(900) < outlying
    X[far] = rng.normal(size=(int(far.sum()), 2)) * 30
    X[:300][rng.random(300) < code, 1] = -999
    return {site: X[i::3] if not code else X[300 * i : 300 * (i + 1)] for i, site in enumerate("abc")}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    ("rows", "word"), [({}, None), ({"outlying": 0.05}, "outliers"), ({"code": 0.1}, "a code for missing cells")]
)
def test_a_run_names_outliers_and_codes_and_what_helps(rows, word, secure):
    result = flareclust.run("lloyd", blobs(**rows), k=3, secure_sums=secure)
    found = [warning for warning in result.warnings if "% of the rows" in warning and "cluster" in warning]
    assert len(found) == (word is not None)
    if word is not None:
        assert word in found[0]
        assert found[0].endswith("set trim_rows=0.05 or more")
        assert not any("decides the distances" in warning for warning in result.warnings)  # no advice to scale


def test_a_column_that_the_server_knows_by_its_place_has_its_name_in_the_result():
    named = {site: pd.DataFrame(X, columns=["height", "weight"]) for site, X in blobs(code=0.1).items()}
    for data, said in (
        (named, "most of all in column 'weight': a code"),
        (blobs(code=0.1), "in column 2 of 2: a code"),
    ):
        assert any(said in warning for warning in flareclust.run("lloyd", data, k=3).warnings)


def test_a_column_of_an_array_that_decides_the_distances_is_named():
    sites = {site: X * [1, 200] for site, X in blobs().items()}
    (warning,) = flareclust.run("lloyd", sites, k=3).warnings
    assert warning.startswith("column 'column 2' varies more than 30 times as much")
    assert not flareclust.run("lloyd", sites, k=3, scale="standard").warnings
    assert not flareclust.run("lloyd", blobs(), k=3).warnings


def test_shares_between_sites_by_hand():
    """One cluster of rows 0, 2 at one site and 4, 6 at another: within 4, between 4 * 2^2; a second one at the first only."""
    rows, means = np.array([[2, 3], [2, 0]]), np.array([[[1.0], [9.0]], [[5.0], [0.0]]])
    np.testing.assert_allclose(site_shares(rows, means, np.array([4.0])), [16 / 20])
    np.testing.assert_array_equal(site_shares(rows[:1], means[:1], np.array([4.0])), [0.0])


def sites(drift: float, skewed: bool, seed: int = 0) -> dict[str, FloatArray]:
    """Five sites of three clusters, each with a zero of its own."""
    rng = np.random.default_rng(seed)
    found = {}
    for i in range(5):
        shares = rng.dirichlet([0.4] * 3) if skewed else [1 / 3] * 3
        y = rng.choice(3, 150, p=shares)
        X = np.array([[0, 0], [8, 0], [0, 8]])[y] + rng.normal(size=(150, 2))
        found[f"site-{i}"] = X + drift * rng.normal(size=2)
    return found


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("policy", [None, {}])
def test_a_result_says_where_sites_measure_differently(skewed, named, policy):
    for drift in (0.0, 1.5):
        rows = sites(drift, skewed)
        data = {site: pd.DataFrame(X, columns=["height", "weight"]) for site, X in rows.items()} if named else rows
        warnings = flareclust.run("lloyd", data, k=3, policy=policy).warnings
        found = [text for text in warnings if "the same clusters at different places" in text]
        assert len(found) == (drift > 0 and policy is None)
        assert all(("'height'" in text or "'weight'" in text) is named for text in found)
