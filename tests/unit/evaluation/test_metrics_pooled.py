"""Label-free measures on pooled rows: hand-worked cases, scikit-learn as oracle, and invariances."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import davies_bouldin_score

from flareclust._foundation.typing import FloatArray
from flareclust.evaluation import metrics
from tests.examples import examples


# --- label-free measures of the pooled rows ---
def _literal(X: FloatArray, centroids: FloatArray) -> tuple[float, float]:
    """Inertia and simplified silhouette, row by row."""
    inertia, values = 0.0, []
    for x in X:
        distance = sorted(math.dist(x, c) for c in centroids)
        a, b = distance[:2]
        inertia += a**2
        values.append((b - a) / max(a, b) if max(a, b) > 0 else 0.0)
    return inertia, sum(values) / len(values)


def test_pooled_values_of_a_case_worked_by_hand():
    # Own distances 1, 1, 2; next ones 9, 11, 8. S = 1 and 2, centroids 10 apart.
    result = metrics.pooled_label_free([[1.0], [-1.0], [8.0]], [[0.0], [10.0]])
    assert result["inertia"] == pytest.approx(6.0)
    assert result["simplified_silhouette"] == pytest.approx((8 / 9 + 10 / 11 + 6 / 8) / 3)
    assert result["davies_bouldin"] == pytest.approx(3 / 10)


def test_pooled_values_equal_scikit_learn_where_centroids_are_the_means():
    X = load_digits().data[:600]
    fitted = KMeans(8, n_init=1, tol=0, random_state=0).fit(X)
    result = metrics.pooled_label_free(X, fitted.cluster_centers_)
    inertia, silhouette = _literal(X, fitted.cluster_centers_)
    assert result["inertia"] == pytest.approx(fitted.inertia_)
    assert result["inertia"] == pytest.approx(inertia)
    assert result["simplified_silhouette"] == pytest.approx(silhouette)
    assert result["davies_bouldin"] == pytest.approx(davies_bouldin_score(X, fitted.labels_))


def test_empty_cluster_is_left_out_of_davies_bouldin_but_can_be_the_next_centroid():
    X = [[1.0], [-1.0], [8.0]]
    result = metrics.pooled_label_free(X, [[0.0], [10.0], [13.0]])
    assert result["davies_bouldin"] == pytest.approx(3 / 10)
    # The row at 8 has its next centroid at 13 now (5 away), not at 0 (8 away).
    assert result["simplified_silhouette"] == pytest.approx((8 / 9 + 10 / 11 + 3 / 5) / 3)


@pytest.mark.parametrize("centroids", [[[0.0]], [[0.0], [100.0]], [[0.0], [0.0]]])
def test_one_cluster_with_rows_has_neither_silhouette_nor_davies_bouldin(centroids: list[list[float]]):
    result = metrics.pooled_label_free([[1.0], [-1.0]], centroids)
    assert result == {"inertia": 2.0, "simplified_silhouette": None, "davies_bouldin": None}


def test_a_second_centroid_on_the_same_place_has_no_rows_and_leaves_those_of_the_first_a_silhouette_of_zero():
    result = metrics.pooled_label_free([[0.0], [1.0], [10.0]], [[0.0], [0.0], [10.0]])
    assert result["davies_bouldin"] == pytest.approx(0.5 / 10)
    assert result["simplified_silhouette"] == pytest.approx((0 + 0 + 1) / 3)  # a = b = 0; a = b = 1; a = 0, b = 10


def test_davies_bouldin_is_undefined_where_the_distance_of_two_centroids_with_rows_vanishes():
    # 2e-163 squared is zero in double precision, and yet the row at 1e-160 is nearer to the second centroid.
    result = metrics.pooled_label_free([[0.0], [1e-160]], [[0.0], [2e-163]])
    assert result["simplified_silhouette"] is not None
    assert result["davies_bouldin"] is None


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(-50, 50))
def test_pooled_values_ignore_order_and_translation(seed: int, k: int, shift: int):
    rng = np.random.default_rng(seed)
    X, centroids = rng.normal(size=(30, 2)), rng.normal(size=(k, 2))
    expected = metrics.pooled_label_free(X, centroids)
    changed = metrics.pooled_label_free(rng.permutation(X) + shift, rng.permutation(centroids) + shift)
    assert expected["inertia"] == pytest.approx(_literal(X, centroids)[0])
    for name, value in expected.items():
        assert changed[name] == (None if value is None else pytest.approx(value, rel=1e-9)), name
