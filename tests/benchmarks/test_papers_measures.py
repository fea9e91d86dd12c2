"""The papers' generators of data and measures of results."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score, silhouette_score

from benchmarks.papers import kfed_oracle
from benchmarks.papers.generators import Federation, bounded, bounded_variance, deal, gaussian_groups, grid, nested
from benchmarks.papers.measures import clustering_cost, history, nearest, silhouettes, solve, truth
from flareclust._foundation.errors import UserError
from flareclust.data.datasets import Dataset
from flareclust.experiment.sweeps import trials as study_trials

pytestmark = pytest.mark.slow


def line(*numbers):
    return np.array(numbers, dtype=float).reshape(-1, 1)


def cell(mean, std, n=10, metric="ari", **keys):
    return study_trials.Cell({"method": "m", **keys}, {metric: mean}, {metric: std}, n, 0)


# ---- generators ----


def test_groups_of_components_sit_on_devices_of_their_own(rng):
    found = gaussian_groups(d=20, k=10, k_local=4, m0=3, rows=50, c=30, rng=rng)

    held = {site: frozenset(y.tolist()) for site, y in found.y.items()}
    groups = [frozenset(range(4)), frozenset(range(4, 8)), frozenset((8, 9))]
    assert sorted(map(sorted, held.values())) == sorted(3 * [sorted(group) for group in groups])
    assert all(np.bincount(y)[y.min() :].tolist() == [50] * len(set(y.tolist())) for y in found.y.values())
    gaps = cdist(found.means, found.means)
    assert gaps[gaps > 0].min() == pytest.approx(30)
    residuals = np.concatenate([rows - found.means[found.y[site]] for site, rows in found.sites.items()])
    assert residuals.std() == pytest.approx(1, abs=0.05)


def test_nested_sites_have_the_first_clusters_and_share_them_evenly(rng):
    data = grid(1.0, 50, rng)
    found = nested(data, (1, 4, 7, 10, 16), rng)

    assert [sorted(set(y.tolist())) for y in found.y.values()] == [list(range(n)) for n in (1, 4, 7, 10, 16)]
    sizes = np.array([np.bincount(y, minlength=16) for y in found.y.values()])
    assert sizes.sum(axis=0).tolist() == [50] * 16
    assert len(found.sites["site-01"]) == 10  # as the paper says of its smallest client
    assert all(np.ptp(column[column > 0]) <= 1 for column in sizes.T)
    assert sorted(map(tuple, found.pooled.tolist())) == sorted(map(tuple, data.X.tolist()))


def test_nested_sites_need_one_that_has_all_clusters(rng):
    with pytest.raises(UserError, match="one site must have all 16 clusters"):
        nested(grid(1.0, 5, rng), (1, 15), rng)


def test_bounded_clusters_fulfil_the_assumptions(rng):
    means = np.array([[0.0, 0, 0], [9, 0, 0]])
    found = bounded(means, radius=2, rows=5000, m=3, rng=rng, power=3.0)

    assert all(np.bincount(y).tolist() == [5000, 5000] for y in found.y.values())
    distance = np.concatenate([np.linalg.norm(X - means[found.y[s]], axis=1) for s, X in found.sites.items()])
    assert distance.max() <= 2
    assert distance.max() > 1.99
    # E R^2 u^6 = R^2 / 7
    assert (distance**2).mean() == pytest.approx(4 / 7, rel=0.03)
    assert bounded_variance(2, 3.0) == pytest.approx(4 / 7)


def test_sites_without_rows_are_left_out(rng):
    data = Dataset("d", line(0, 1, 2, 3), np.array([0, 0, 1, 1]), owners=np.array([3, 3, 3, 7]))
    found = deal(data, "owners", 1, rng)
    assert {site: rows.ravel().tolist() for site, rows in found.sites.items()} == {"site-1": [0, 1, 2], "site-2": [3]}
    assert found.y["site-1"].tolist() == [0, 0, 1]


# ---- measures ----


def test_the_cost_of_a_clustering_is_about_its_own_means():
    # {0, 4} has mean 2 and cost 8, {10, 11, 15} mean 12 and 4 + 1 + 9 = 14; the numbers of the labels do not matter.
    assert clustering_cost(line(0, 10, 4, 11, 15), np.array([7, 2, 7, 2, 2])) == pytest.approx(22)


def test_truth_is_over_all_rows_and_by_site():
    y = {"a": np.array([0, 0, 1, 1]), "b": np.array([2, 2, 3, 3, 3, 3])}
    labels = {"a": np.array([1, 1, 0, 0]), "b": np.array([1, 1, 1, 2, 2, 2])}
    federation = Federation({site: np.zeros((len(one), 1)) for site, one in y.items()}, y)

    found = truth(federation, labels)

    own = adjusted_rand_score(y["b"], labels["b"])
    assert found["ari_sites"] == pytest.approx((4 * 1 + 6 * own) / 10)
    pooled = [np.concatenate(list(one.values())) for one in (y, labels)]
    assert found["ari"] == pytest.approx(adjusted_rand_score(*pooled))
    assert found["accuracy"] == pytest.approx(7 / 10)  # 0 -> class 1, 1 -> class 0 or 2 (2 rows each), 2 -> class 3


def test_the_history_of_a_method_ends_with_its_result(rng):
    federation = deal(grid(1.0, 20, rng), "iid", 4, rng)
    outcome = solve("fkm", {"rounds": 3, "tol": 0.0}, federation, 16, 0)
    found = history(outcome)
    assert len(found) == 4
    np.testing.assert_array_equal(found[-1], outcome.centroids)
    labels = nearest(federation, found[-1])
    for site in federation.sites:
        np.testing.assert_array_equal(labels[site], outcome.labels[site])


def test_silhouettes_are_those_of_the_nearest_centroids(rng):
    federation = deal(grid(1.0, 20, rng), "iid", 4, rng)
    outcome = solve("kfed", {"k_local": 16}, federation, 16, 0)
    found = silhouettes(federation, outcome)
    distance = cdist(federation.pooled, outcome.centroids)
    a, b = np.sort(distance, axis=1)[:, :2].T
    assert found["silhouette"] == pytest.approx(silhouette_score(federation.pooled, distance.argmin(axis=1)))
    assert found["simplified_silhouette"] == pytest.approx(np.mean((b - a) / b))


def test_separation_ratios_of_a_data_set_by_hand():
    # Means 1 and 12, residuals -1, 1, -2, 0, 2: |A - C|^2 = 10. Delta = sqrt(2 * 10 / n_r); no factor 2, m0 = 1.
    data = Dataset("d", line(0, 2, 10, 12, 14), np.array([0, 0, 1, 1, 1]))
    expected = 11 / (math.sqrt(20 / 2) + math.sqrt(20 / 3))
    np.testing.assert_allclose(kfed_oracle.pair_ratios(data), [expected])


def test_the_rule_takes_the_largest_share_and_of_equals_the_smallest_k():
    def judged(**shares):
        return [
            cell(share, 0, metric="above_c0", data="d", k=k.removeprefix("k"), method="oracle")
            for k, share in shares.items()
        ]

    assert kfed_oracle.chosen(judged(k4=0.1, k9=0.3, k16=0.3), "d", (4, 9, 16)) == 9
    assert kfed_oracle.chosen(judged(k4=0.0, k9=0.0, k16=0.0), "d", (4, 9, 16)) == 4
