"""The baseline: scikit-learn's k-means with enough starts."""

import numpy as np
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
