"""Which algorithm is advised, from what each makes of a table; the measures by hand and beside scikit-learn."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from flareclust.evaluation.advice import Candidate, bic_of_kmeans, border_of, caution, choose, stability_of


def candidate(algorithm, stability, bic=None, k=3, unlabelled=0.0):
    return Candidate(algorithm, k, stability, bic, unlabelled, None)


KMEANS = candidate("portfolio", 0.9, 5.0)


@pytest.mark.parametrize(
    ("mixture", "tree", "expected"),
    [
        (candidate("gmm", 0.9, 4.0), None, "gmm"),  # likelier, and as stable
        (candidate("gmm", 0.8, 4.0), None, "portfolio"),  # likelier, and less stable
        (candidate("gmm", 1.0, 6.0), None, "portfolio"),  # less likely
        (candidate("gmm", 1.0, 4.0, k=1), None, "gmm"),  # no clusters
        (candidate("gmm", 1.0, 6.0, k=1), None, "portfolio"),  # less likely than several balls
        (candidate("gmm", 1.0, 4.0, k=1), candidate("tree", 1.01), "tree"),
        (None, None, "portfolio"),
        (candidate("gmm", 0.5, 4.0), candidate("tree", 1.0), "portfolio"),  # not clearly more stable
        (candidate("gmm", 0.5, 4.0), candidate("tree", 1.01), "tree"),
        (candidate("gmm", 0.5, 4.0), candidate("tree", 1.01, k=1), "portfolio"),
        (candidate("gmm", 0.5, 4.0), candidate("tree", 1.01, unlabelled=0.3), "portfolio"),
        (candidate("gmm", 0.95, 4.0), candidate("tree", 1.01), "gmm"),
    ],
)
def test_what_is_advised(mixture, tree, expected):
    assert choose(KMEANS, mixture, tree, 2)[0].algorithm == expected


def test_a_tree_with_fewer_clusters_than_asked_for_is_not_advised():
    tree = candidate("tree", 1.01, k=3)
    assert [choose(candidate("portfolio", 0.5, 5.0), None, tree, least)[0].algorithm for least in (3, 4)] == [
        "tree",
        "portfolio",
    ]


def test_clusters_that_do_not_come_back_are_doubted():
    assert "(0.50): there may be none" in caution(candidate("gmm", 0.5), 10)
    assert "rows without clusters" in caution(candidate("gmm", 1.0, k=1), 10)
    assert "as many clusters as were allowed (10)" in caution(candidate("gmm", 0.9, k=10), 10)
    assert "12% of the rows" in caution(candidate("tree", 0.9, unlabelled=0.12), 10)


def test_the_likelihood_of_kmeans_is_that_of_a_mixture_of_round_components():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(center, 1, (n, 3)) for center, n in ((0, 100), (9, 60))])
    labels = np.repeat([0, 1], [100, 60])
    centroids = np.stack([X[labels == c].mean(axis=0) for c in (0, 1)])
    variance = np.square(X - centroids[labels]).sum() / (160 * 3)
    theirs = GaussianMixture(2, covariance_type="spherical").fit(X)
    theirs.weights_, theirs.means_ = np.array([100, 60]) / 160, centroids
    theirs.precisions_cholesky_ = np.full(2, variance**-0.5)
    free = 2 * 3 + 1 + 1
    expected = -2 * theirs.score(X) + free * np.log(160) / 160
    assert bic_of_kmeans(X, centroids, labels) == pytest.approx(expected, rel=1e-12)


def test_the_border_of_a_cut_is_as_dense_as_the_middle_and_between_balls_it_is_not():
    rng = np.random.default_rng(0)
    even = rng.uniform(0, 1, (4000, 2))
    assert border_of(even, (even[:, 0] > 0.5).astype(np.int64)) == pytest.approx(1, abs=0.15)
    balls = np.concatenate([rng.normal(center, 1, (2000, 2)) for center in (0, 4)])
    assert border_of(balls, (balls.sum(axis=1) > 4).astype(np.int64)) < 0.3
    assert border_of(balls, np.zeros(4000, np.int64)) is None
    assert border_of(balls[:5], np.zeros(5, np.int64)) is None


def test_stability_is_of_rows_with_a_label_in_both():
    one, other = np.array([0, 0, 1, 1, -1]), np.array([5, 5, 7, 7, 7])
    assert stability_of([(one, other), (one, other)]) == 1.0
    assert stability_of([(one, other), (np.full(5, -1), other)]) == 0.5
