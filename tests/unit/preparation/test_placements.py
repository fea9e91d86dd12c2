"""Where rows are among the clusters: distances, silhouettes, and rows far from all, compared with NumPy on pooled rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.mixture import GaussianMixture

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.schema.reading import rows_of
from flareclust.preparation.placement import placements, thresholds_of

RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(center, 1, (60, 2)) * [1, 1000] for center in (-10, 0, 10)])


def test_a_row_worked_by_hand():
    arrays = {"centroids": np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 20.0]])}
    X = np.array([[3.0, 4.0], [10.0, 0.0], [5.0, 0.0], [100.0, 0.0]])
    found = placements(arrays, X, np.array([5.0, 1.0, 50.0]))
    assert found.cluster.tolist() == [0, 1, 0, 1]
    assert found.second.tolist() == [1, 0, 1, 0]
    assert found.distance.tolist() == [5.0, 0.0, 5.0, 90.0]
    np.testing.assert_allclose(found.second_distance, [np.sqrt(65), 10, 5, 100])
    np.testing.assert_allclose(found.silhouette, [1 - 5 / np.sqrt(65), 1, 0, 0.1])
    assert found.threshold.tolist() == [5.0, 1.0, 5.0, 1.0]
    assert found.far.tolist() == [False, False, False, True]


def test_a_row_within_the_threshold_of_another_than_its_cluster_is_not_far():
    arrays = {"centroids": np.array([[0.0], [10.0]])}
    assert placements(arrays, np.array([[4.0]]), np.array([1.0, 7.0])).far.tolist() == [False]


def test_one_cluster_has_no_second():
    table = placements({"centroids": np.array([[1.0]])}, np.array([[3.0]]), None).table()
    assert (table["second"], table["silhouette"], table["far"], table["threshold"]) == ([-1], [0.0], [None], [None])
    assert np.isnan(table["second_distance"]).all()


@pytest.mark.parametrize("profile", [True, False])
def test_thresholds_are_of_the_pooled_rows_in_scaled_units(profile):
    result = flareclust.run("lloyd", ROWS, k=3, n_sites=3, scale="standard", profile=profile)
    scaled, centroids = (
        (values - result.arrays["mean"]) / result.arrays["deviation"] for values in (ROWS, result.centroids)
    )
    squared = np.square(scaled[:, None] - centroids).sum(axis=2)
    found = result.placements(ROWS)
    np.testing.assert_array_equal(found["cluster"], result.labels)
    np.testing.assert_allclose(found["distance"], np.sqrt(squared.min(axis=1)))
    np.testing.assert_allclose(found["second_distance"], np.sqrt(np.sort(squared, axis=1)[:, 1]))
    assert found["silhouette"].mean() == pytest.approx(result.metrics["simplified_silhouette"])
    nearest = squared.min(axis=1)
    of_each = [nearest[result.labels == r].mean() for r in range(3)] if profile else [nearest.mean()] * 3
    np.testing.assert_allclose(result.thresholds(), 3 * np.sqrt(of_each), rtol=1e-9)
    np.testing.assert_allclose(result.thresholds(2.0), 2 * np.sqrt(of_each), rtol=1e-9)
    outlier = result.placements([[5.0, 50_000.0], ROWS[0]])
    assert outlier["far"].tolist() == [True, False]


def test_directions_have_distances_of_rows_of_length_one():
    result = flareclust.run("lloyd", ROWS / [1, 1000] + 20, k=2, n_sites=3, metric="cosine")
    found = result.placements([[3.0, 3.0], [0.0, 0.0]])
    unit = result.centroids / np.linalg.norm(result.centroids, axis=1, keepdims=True)
    assert found["distance"][0] == pytest.approx(np.linalg.norm(np.sqrt([0.5, 0.5]) - unit, axis=1).min())
    assert (found["cluster"][1], found["second"][1], found["far"][1]) == (-1, -1, True)
    assert found[["distance", "second_distance", "silhouette", "threshold"]].loc[1].isna().all()


def test_without_sums_there_are_no_thresholds():
    assert thresholds_of({"centroids": np.eye(2)}, None, None) is None
    result = flareclust.run("lloyd", ROWS, k=3, n_sites=3)
    for wrong in (0, -1, np.nan):
        with pytest.raises(UserError, match="far: expected a number above 0"):
            result.placements(ROWS, far=wrong)


def test_clusters_of_equal_rows_are_not_far_by_rounding():
    thresholds = thresholds_of({"centroids": np.array([[100.0], [3.0]])}, 0.0, 10)
    assert not placements({"centroids": np.array([[100.0], [3.0]])}, np.array([[100.0 + 1e-12]]), thresholds).far.any()


def test_a_frame_may_have_a_category_as_it_was_read():
    columns = ["age", "sex=f", "sex=m", "stage=I", "stage=missing"]
    frame = pd.DataFrame({"stage": ["I", None], "sex": ["m", None], "age": [3.0, 4.0], "other": ["x", "y"]})
    expected = [[3.0, 0.0, 1.0, 1.0, 0.0], [4.0, np.nan, np.nan, 0.0, 1.0]]
    np.testing.assert_array_equal(rows_of(frame, columns), expected)
    ready = pd.DataFrame(expected[:1], columns=columns)
    np.testing.assert_array_equal(rows_of(ready[columns[::-1]], columns), expected[:1])
    with pytest.raises(UserError, match="column 'sex' holds values other than f, m"):
        rows_of(frame.assign(sex="secret"), columns)
    with pytest.raises(UserError, match="X has no column 'age'"):
        rows_of(frame[["sex", "stage"]], columns)


def test_the_categories_of_a_result_are_found_in_raw_rows():
    raw = pd.DataFrame({"age": [20.0, 21.0, 60.0, 61.0] * 10, "sex": ["f", "m", "m", "f"] * 10})
    ready = pd.DataFrame({"age": raw["age"], "sex=f": (raw["sex"] == "f") * 1.0, "sex=m": (raw["sex"] == "m") * 1.0})
    result = flareclust.run("lloyd", {"a": ready[:20], "b": ready[20:]}, k=2)
    np.testing.assert_array_equal(result.predict(raw), result.labels)
    assert result.placements(raw).equals(result.placements(ready))


@pytest.mark.parametrize("missing", ["mean", "partial"])
def test_thresholds_of_rows_with_gaps_are_of_the_rows_as_they_are_compared(missing):
    rows = np.where(np.random.default_rng(2).random(ROWS.shape) < 0.15, np.nan, ROWS)
    rows[np.isnan(rows).all(axis=1), 0] = 0.0
    result = flareclust.run("lloyd", rows, k=3, n_sites=2, scale="standard", missing=missing, profile=True)
    compared = rows if missing == "partial" else np.where(np.isnan(rows), result.arrays["fill"], rows)
    squared = np.nansum(((compared - result.centroids[result.labels]) / result.arrays["deviation"]) ** 2, axis=1)
    of_each = [squared[result.labels == r].mean() for r in range(3)]
    np.testing.assert_allclose(result.thresholds(), 3 * np.sqrt(of_each), rtol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
def test_rows_of_a_mixture_belong_to_its_most_probable_component(covariance):
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(0, [30, 1], (200, 2)), rng.normal([0, 8], [1, 1], (200, 2))]) * [1, 1000]
    result = flareclust.run("gmm", rows, k=2, n_sites=2, scale="standard", covariance=covariance)
    theirs = GaussianMixture(2, covariance_type="full").fit(rows)
    theirs.weights_, theirs.means_ = result.arrays["weights"], result.centroids
    covariances = result.arrays["covariances"]
    theirs.covariances_ = covariances if covariances.ndim == 3 else covariances[:, :, None] * np.eye(2)
    theirs.precisions_cholesky_ = np.stack([np.linalg.inv(np.linalg.cholesky(one)).T for one in theirs.covariances_])
    asked = np.concatenate([rows, [[40.0, 4_000.0], [1e6, 1e6]]])
    found, probable = result.placements(asked), theirs.predict_proba(asked)
    np.testing.assert_array_equal(result.predict(rows), result.labels)
    np.testing.assert_array_equal(result.predict(asked), theirs.predict(asked))
    np.testing.assert_array_equal(found["cluster"], theirs.predict(asked))
    np.testing.assert_allclose(found["probability"], probable.max(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(found["second"], probable.argmin(axis=1))
    volume = np.log(result.arrays["deviation"]).sum()  # densities are of scaled columns
    np.testing.assert_allclose(found["log_density"], theirs.score_samples(asked) + volume, rtol=1e-6)
    apart = asked - result.centroids[found["cluster"]]
    own = np.linalg.inv(theirs.covariances_)[found["cluster"]]
    np.testing.assert_allclose(found["distance"], np.sqrt(np.einsum("nd,nde,ne->n", apart, own, apart)), rtol=1e-6)
    assert "silhouette" not in found
    assert (found["threshold"] == 3 * np.sqrt(2)).all()
    assert found["far"].tolist()[-1] is True
    assert found["far"].mean() < 0.02


def test_of_one_component_there_is_no_second():
    result = flareclust.run("gmm", ROWS, k=1, n_sites=2)
    found = result.placements(ROWS[:3])
    assert found["probability"].tolist() == [1.0, 1.0, 1.0]
    assert found["second"].tolist() == [-1, -1, -1]


PLANTED = np.array([[40.0, 40.0], [-30.0, -20.0], [0.0, 40.0], [75.0, 0.0]]) * [1, 1000]


def two_lines(n, seed):
    """Return rows of two stretched clusters (2 n, 2)."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(0, [9, 1], (n, 2)), rng.normal([0, 12], [9, 1], (n, 2))]) * [1, 1000]


@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
@pytest.mark.parametrize("scale", ["none", "standard"])
def test_outliers_are_the_rows_where_a_mixture_is_thin(scale, covariance):
    result = flareclust.run("gmm", two_lines(2000, 1), k=2, n_sites=2, scale=scale, covariance=covariance)
    new = two_lines(20_000, 2)
    found, without = result.placements(new, outliers=0.02), result.placements(new)
    assert found["outlier"].mean() == pytest.approx(0.02, abs=0.006)
    assert result.placements(PLANTED, outliers=0.02)["outlier"].all()
    assert found.drop(columns="outlier").equals(without)
    assert found.loc[found["outlier"], "log_density"].max() < found.loc[~found["outlier"], "log_density"].min()
    alone = result.placements(new[found["outlier"].to_numpy()][:3], outliers=0.02)
    assert alone["outlier"].all(), "which rows are outliers does not depend on the rows beside them"


def test_scaled_columns_have_the_same_outliers():
    rows, new = two_lines(500, 3), two_lines(2000, 4)
    mixture = flareclust.run("gmm", rows, k=2, n_sites=2, scale="standard")
    plain = {name: mixture.arrays[name] for name in ("weights", "covariances")}
    plain |= {"centroids": mixture.centroids, "factors": np.linalg.cholesky(plain["covariances"])}
    expected = placements(plain, new, None, 0.05).outlier
    np.testing.assert_array_equal(mixture.placements(new, outliers=0.05)["outlier"], expected)


@pytest.mark.parametrize("share", [0, -0.1, 0.51, 1, np.nan])
def test_outliers_are_a_share_of_the_rows(share):
    result = flareclust.run("gmm", ROWS, k=2, n_sites=2, scale="standard")
    with pytest.raises(UserError, match=r"outliers: expected a share above 0 and up to 0\.5, .*got "):
        result.placements(ROWS, outliers=share)


@pytest.mark.parametrize("algorithm", ["lloyd", "tree"])
def test_outliers_are_of_mixtures(algorithm):
    result = flareclust.run(algorithm, ROWS, k=2, n_sites=2, scale="standard")
    with pytest.raises(
        UserError, match=r"outliers: expected the result of a Gaussian mixture \(gmm, dp-gmm\), got one without cov"
    ):
        result.placements(ROWS, outliers=0.01)
