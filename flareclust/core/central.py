"""The baseline: k-means on the pooled rows, which a federation may not do."""

from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import check_int
from flareclust.core.blas import one_thread


def central_kmeans(X: FloatArray, k: int, seed: int = 0, n_init: int = 10, max_iter: int = 300) -> FloatArray:
    """Return the centroids (k, d) of scikit-learn's k-means on all rows (n, d).

    It shares no code with the federated algorithms, so that a fault of theirs cannot hide in the comparison.
    """
    check_int("n_init", n_init, minimum=1)
    check_int("max_iter", max_iter, minimum=1)
    from sklearn.cluster import KMeans

    with one_thread():
        model = KMeans(k, n_init=n_init, max_iter=max_iter, random_state=seed).fit(X)
    centroids: FloatArray = model.cluster_centers_
    return centroids
