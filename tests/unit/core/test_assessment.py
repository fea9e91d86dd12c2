import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import davies_bouldin_score

from flareclust._foundation.errors import BadMessage, UserError
from flareclust.core import assessment
from flareclust.core.lloyd import kmeans
from tests.examples import examples


def mixture(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 4 * rng.normal(size=(5, d))[rng.integers(5, size=n)]


def metrics(X, centroids):
    return assessment.label_free_metrics(centroids, assessment.assessment_sums(X, centroids)[1])


def test_measures_by_hand():
    X = np.array([[0.0], [1.0], [8.0], [9.0]])
    centroids = [[0.0], [9.0]]

    labels, sums = assessment.assessment_sums(X, centroids)

    # Silhouettes: (9-0)/9, (8-1)/8, (8-1)/8, (9-0)/9.
    np.testing.assert_array_equal(labels, [0, 0, 1, 1])
    np.testing.assert_array_equal(sums["counts"], [2, 2])
    np.testing.assert_allclose(sums["sse"], [1.0, 1.0], rtol=1e-15)
    np.testing.assert_allclose(sums["scatter"], [1.0, 1.0], rtol=1e-15)
    np.testing.assert_allclose(sums["silhouette"], [1.875, 1.875], rtol=1e-15)
    found = assessment.label_free_metrics(centroids, sums)
    assert found == pytest.approx(
        {"inertia": 2.0, "simplified_silhouette": 3.75 / 4, "davies_bouldin": (0.5 + 0.5) / 9}, rel=1e-15
    )


@pytest.mark.parametrize(("n", "d", "k"), [(200, 2, 5), (300, 10, 12), (50, 64, 2)])
def test_inertia_and_davies_bouldin_are_those_of_scikit_learn(n, d, k):
    X = mixture(n, d)
    fitted = KMeans(k, n_init=1, random_state=0, tol=0).fit(X)

    labels, sums = assessment.assessment_sums(X, fitted.cluster_centers_)
    found = assessment.label_free_metrics(fitted.cluster_centers_, sums)

    np.testing.assert_array_equal(labels, fitted.labels_)
    assert found["inertia"] == pytest.approx(fitted.inertia_, rel=1e-12)
    assert found["davies_bouldin"] == pytest.approx(davies_bouldin_score(X, fitted.labels_), rel=1e-10)


def test_the_simplified_silhouette_equals_its_literal_form():
    X = mixture(100, 3)
    centroids = kmeans(X, 4, np.random.default_rng(0)).centroids
    values = []
    for x in X:
        a, b = np.sort(np.linalg.norm(centroids - x, axis=1))[:2]
        values.append((b - a) / max(a, b))
    assert metrics(X, centroids)["simplified_silhouette"] == pytest.approx(np.mean(values), rel=1e-12)


@settings(deadline=None, max_examples=examples(50))
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5))
def test_adding_up_sites_gives_the_pooled_measures(seed, k, sites):
    rng = np.random.default_rng(seed)
    X = mixture(60, 2, seed)
    centroids = np.vstack([X[:k], [[500.0, 500.0]]])  # the last owns no row
    site = rng.integers(sites, size=60)  # some sites may have no rows

    parts = [assessment.assessment_sums(X[site == m], centroids)[1] for m in range(sites)]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}

    pooled = metrics(X, centroids)
    added = assessment.label_free_metrics(centroids, total)
    assert added.keys() == pooled.keys()
    for name, value in pooled.items():
        assert added[name] == (None if value is None else pytest.approx(value, rel=1e-9)), name


def test_rows_on_centroids_have_the_best_values():
    centroids = [[0.0, 0.0], [3.0, 4.0]]
    assert metrics(centroids, centroids) == {"inertia": 0.0, "simplified_silhouette": 1.0, "davies_bouldin": 0.0}


def test_a_cluster_without_rows_does_not_count():
    X = [[0.0], [2.0], [10.0], [14.0]]
    assert metrics(X, [[1.0], [12.0], [300.0]])["davies_bouldin"] == pytest.approx((1 + 2) / 11, rel=1e-15)


def test_measures_of_fewer_than_two_inhabited_clusters_are_undefined():
    expected = {"inertia": 1.0, "simplified_silhouette": None, "davies_bouldin": None}
    assert metrics([[1.0], [0.0]], [[0.0]]) == expected
    assert metrics([[1.0], [0.0]], [[0.0], [50.0]]) == expected


def test_without_rows_everything_is_undefined():
    labels, sums = assessment.assessment_sums(np.empty((0, 2)), [[0.0, 0.0], [1.0, 1.0]])
    assert labels.shape == (0,)
    assert {name: (value.tolist(), str(value.dtype)) for name, value in sums.items()} == {
        "counts": ([0, 0], "int64"),
        "sse": ([0.0, 0.0], "float64"),
        "silhouette": ([0.0, 0.0], "float64"),
        "scatter": ([0.0, 0.0], "float64"),
    }
    assert assessment.label_free_metrics([[0.0, 0.0], [1.0, 1.0]], sums) == {
        "inertia": None,
        "simplified_silhouette": None,
        "davies_bouldin": None,
    }


def test_a_row_on_two_coincident_centroids_has_silhouette_0():
    _, sums = assessment.assessment_sums([[1.0], [5.0]], [[1.0], [1.0], [4.0]])
    np.testing.assert_array_equal(sums["silhouette"], [0.0, 0.0, 0.75])


def test_davies_bouldin_is_undefined_where_centroids_of_two_clusters_coincide():
    # No assignment by distance gives rows to both, but sums of other origin may.
    sums = {"counts": np.array([2, 3]), "sse": np.ones(2), "silhouette": np.zeros(2), "scatter": np.ones(2)}
    found = assessment.label_free_metrics([[1.0, 2.0], [1.0, 2.0]], sums)
    assert found == {"inertia": 2.0, "simplified_silhouette": 0.0, "davies_bouldin": None}


def test_the_measures_can_be_written_as_json():
    X = mixture(50, 2)
    found = metrics(X, X[:3])
    assert json.loads(json.dumps(found)) == found
    assert {type(value) for value in found.values()} == {float}


def test_sums_that_do_not_fit_are_refused():
    _, sums = assessment.assessment_sums(np.zeros((3, 1)), [[0.0], [1.0]])
    with pytest.raises(BadMessage, match=r"'scatter' must have shape \(2,\).*nothing"):
        assessment.label_free_metrics([[0.0], [1.0]], {name: sums[name] for name in ("counts", "sse", "silhouette")})
    with pytest.raises(BadMessage, match=r"'counts' must have shape \(3,\).*\(2,\)"):
        assessment.label_free_metrics([[0.0], [1.0], [2.0]], sums)


def test_centroids_of_other_columns_are_refused():
    with pytest.raises(UserError, match="1 features but X has 2"):
        assessment.assessment_sums(np.zeros((3, 2)), [[0.0]])
