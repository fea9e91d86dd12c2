"""The baseline: scikit-learn's k-means with enough starts."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score as ari
from sklearn.preprocessing import StandardScaler

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.core.runtime import one_thread
from flareclust.engines.pooled import central_kmeans


def test_the_starts_are_those_of_scikit_learn(rng):
    X = rng.normal(size=(300, 2))
    for k, given, used in ((3, None, 10), (20, None, 10), (21, None, 10), (24, None, 12), (40, None, 20), (40, 4, 4)):
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


@pytest.fixture(scope="module")
def units():
    """Return rows of two clusters in columns of very different units, and one that is constant."""
    rng = np.random.default_rng(0)
    apart = np.concatenate([rng.normal(0, 1, (150, 2)), rng.normal(8, 1, (150, 2))]) * [1.0, 0.01]
    return np.column_stack([apart, rng.normal(500, 300, 300), np.full(300, 7.0)])


def test_scaled_columns_are_those_of_scikit_learns_pipeline(units):
    result = flareclust.run("central", units, 2, seed=3, scale="standard")
    scaler = StandardScaler()
    with one_thread():
        model = KMeans(2, n_init=10, random_state=3).fit(scaler.fit_transform(units))
    np.testing.assert_allclose(result.centroids, scaler.inverse_transform(model.cluster_centers_), rtol=1e-12)
    assert result.metrics["inertia"] == pytest.approx(model.inertia_, rel=1e-12)
    np.testing.assert_array_equal(result.labels, model.labels_)
    np.testing.assert_array_equal(result.predict(units), model.labels_)
    assert not result.warnings


def test_without_scaling_the_column_of_the_largest_unit_decides_and_a_warning_says_so(units):
    result = flareclust.run("central", units, 2)
    assert ari(result.labels, np.repeat([0, 1], 150)) < 0.1
    assert any("set scale=standard" in text for text in result.warnings)


def test_a_schema_scales_the_baseline_as_it_scales_the_federation(units, tmp_path):
    frame = pd.DataFrame(units[:, :3], columns=["age", "crea", "ldh"])
    frame["ward"] = np.resize(["a", "b", "c"], 300)
    for site, rows in {"north": frame[::2], "south": frame[1::2]}.items():
        rows.to_csv(tmp_path / f"{site}.csv", index=False)
    (tmp_path / "schema.yaml").write_text(
        "columns:\n  age: {type: number, unit: a}\n  crea: {type: number, unit: mg/dl}\n  ldh: {type: number, unit: U/l}\n"
        "  ward: {type: category, values: [a, b, c]}\n"
    )
    about = {"partition": "none", "schema": str(tmp_path / "schema.yaml"), "k": 2}
    central, lloyd = (flareclust.run(name, str(tmp_path), **about) for name in ("central", "lloyd"))
    assert central.params["scale"] == lloyd.params["scale"] == "standard"
    assert central.params["categories"] == lloyd.params["categories"]
    assert ari(central.labels, lloyd.labels) == 1.0
    # Sites round the spread that they tell, so that scaled units differ by up to about one part in 64.
    assert central.metrics["inertia"] == pytest.approx(lloyd.metrics["inertia"], rel=0.05)
    np.testing.assert_allclose(central.arrays["deviation"], lloyd.arrays["deviation"], rtol=0.03)


def test_categories_of_columns_that_are_not_there_are_refused(units):
    with pytest.raises(UserError, match=r"categories: expected columns from 0 to 3, got \[\[2, 4\]\]"):
        flareclust.run("central", units, 2, categories=[[2, 4]])


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
