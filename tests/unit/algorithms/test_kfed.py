"""k-FED as a whole: labels, late devices, its theory, and its figures on S1."""

from pathlib import Path

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.data.partition import partition
from flareclust.data.tables import Table
from flareclust.engines import late_sites as late
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import metrics
from flareclust.executors.kfed import KFedExecutor
from flareclust.protocol import outcome
from flareclust.protocol.registry import get
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.task import StepName, Task
from tests.unit.algorithms.kfed_cases import line, pairwise


def run(sites, k, seed=0, **params):
    return run_inprocess(get("kfed"), params, sites, JobOptions(k=k, seed=seed))


# ---- the device, worked by hand ----


def test_the_number_of_local_clusters_may_differ_by_name():
    rows = np.repeat(line(0, 100, 200, 300, 400, 500, 600, 700), 3, axis=0) + np.tile(line(-1, 0.5, 1), (8, 1))
    sites = {"a": rows, "b": rows, "c": rows}

    found = run(sites, 8, k_local={"a": 1, "c": 8})

    # b is not named: ceil(sqrt(8)) = 3.
    np.testing.assert_array_equal(np.bincount(found.arrays["received_site"]), [1, 3, 8])


@pytest.mark.parametrize("wrong", ["Auto", 0, 9, 2.5, True, None, {"a": 0}, {"a": 9}, {"a": "many"}])
def test_wrong_numbers_of_local_clusters_are_refused(wrong):
    with pytest.raises(UserError, match="k_local"):
        KFedExecutor(8, k_local=wrong)


# ---- the induced clustering ----


def test_induced_clustering_by_hand():
    # Device a: {0, 2} and {10, 12}, centers 1 and 11. Device b: {11, 13} and {30, 32}, centers 12 and 31.
    # M starts with 1 and 11 and takes 31; 12 goes to 11. So tau = {1}, {11, 12}, {31} with means 1, 11.5, 31.
    sites = {"a": line(0, 2, 10, 12), "b": line(11, 13, 30, 32)}
    for seed in range(5):
        found = run(sites, 3, seed, k_local=2)
        np.testing.assert_array_equal(np.sort(found.centroids, axis=0), line(1, 11.5, 31))
        np.testing.assert_array_equal(found.centroids[found.labels["a"]], line(1, 1, 11.5, 11.5))
        np.testing.assert_array_equal(found.centroids[found.labels["b"]], line(11.5, 11.5, 31, 31))


def test_a_row_belongs_where_its_local_center_went():
    # Device a has one center, 4, of rows 0 and 8; device b one, 10. The row 8 itself is nearer to 10.
    sites = {"a": line(0, 8), "b": line(9, 11)}
    induced = run(sites, 2, k_local=1)
    nearest = run(sites, 2, k_local=1, labels_by="nearest")
    np.testing.assert_array_equal(induced.centroids, line(4, 10))
    assert [labels.tolist() for labels in induced.labels.values()] == [[0, 0], [1, 1]]
    assert [labels.tolist() for labels in nearest.labels.values()] == [[0, 1], [1, 1]]


def test_rows_of_a_center_that_was_not_sent_are_labelled_too():
    # 50 alone is not sent; its center 50 is nearest to the centroid 41.
    sites = {"a": line(0, 2, 1, 3, 0, 50), "b": line(40, 42, 1, 3)}
    found = run(sites, 2, k_local=2)
    np.testing.assert_allclose(np.sort(found.arrays["received_centroids"], axis=0), line(1.2, 2, 41))
    labels = found.labels["a"]
    assert found.centroids[labels[5], 0] == 41
    assert set(labels[:5]) == {1 - labels[5]}


def test_a_late_center_goes_to_the_nearest_chosen_center_and_an_unsent_one_to_the_nearest_mean(tmp_path):
    # M = {0, 10}; a's 0 and b's 4 make the mean 2, b's and c's 10 the mean 10. A center at 5.5 is nearer to the
    # chosen 10 than to the chosen 0, but nearer to the mean 2 than to the mean 10. c has it as well, of a single row.
    sites = {"a": line(-1, 1), "b": line(3, 5, 9, 11), "c": line(5.5, 9, 11)}
    params = {"k_local": {"a": 1, "b": 2, "c": 2, "late": 1}, "min_count": 1}
    found = run(sites, 2, **params)
    np.testing.assert_array_equal(found.arrays["anchors"], line(0, 10))
    np.testing.assert_array_equal(found.centroids, line(2, 10))
    np.testing.assert_array_equal(found.labels["c"], [0, 1, 1])

    outcome.write(found, tmp_path, {"algorithm": "kfed", "k": 2, "seed": 0, "params": params})
    np.testing.assert_array_equal(late.place(tmp_path, line(5, 6), "late"), [1, 1])


def heterogeneous(d, k, k_local, m0, per_component, c, seed):
    """The set-up of section 4.1: groups of k' components, the rows of each group assigned evenly to m0 devices.

    Components have sigma = 1 and equal weights. Their means are normal vectors, scaled so that the closest two are c
    apart. This is less than Theorem 4.1 asks for, which multiplies c sigma by powers of k', m0 and 1 / w_min.
    """
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(k, d))
    gaps = pairwise(means)
    means *= c / gaps[gaps > 0].min()
    sites, component = {}, {}
    for group in range(0, k, k_local):
        for device in range(m0):
            site = f"device-{group:03}-{device}"
            component[site] = np.repeat(np.arange(group, group + k_local), per_component)
            sites[site] = means[component[site]] + rng.normal(size=(len(component[site]), d))
    return sites, component, means


def test_a_late_device_gets_the_clusters_it_would_have_had(tmp_path):
    # Theorem 3.2. Clusters are compared through the true means that their centroids are nearest to.
    for seed in range(3):
        sites, component, means = heterogeneous(d=10, k=9, k_local=3, m0=4, per_component=20, c=20, seed=seed)
        latecomer = "device-003-2"
        some = sites[latecomer][component[latecomer] == 4]  # and one that has rows of one cluster only
        everybody = run(sites, 9, seed, k_local={site: 3 for site in sites})
        others = {site: rows for site, rows in sites.items() if site != latecomer}
        params = {"k_local": {site: 3 for site in sites} | {"device-new": 1}}
        without = run(others, 9, seed, **params)
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcome.write(without, folder, {"algorithm": "kfed", "k": 9, "seed": seed, "params": params})

        def true_cluster(centroids, labels, means=means):
            return np.linalg.norm(centroids[labels][:, None] - means, axis=2).argmin(axis=1)

        executor, _ = get("kfed").build(9, seed, params)
        task = Task(StepName.ASSESS, 1, without.arrays, latecomer)
        asked = executor.labels(task, SiteRows(Table(sites[latecomer]), np.random.default_rng(9)))
        placed = late.place(folder, sites[latecomer], latecomer)
        placed_some = late.place(folder, some, "device-new")

        there = true_cluster(everybody.centroids, everybody.labels[latecomer])
        np.testing.assert_array_equal(there, component[latecomer])
        np.testing.assert_array_equal(true_cluster(without.centroids, placed), there)
        np.testing.assert_array_equal(true_cluster(without.centroids, asked), there)
        np.testing.assert_array_equal(true_cluster(without.centroids, placed_some), np.full(20, 4))


# ---- theory: Table 1 ----


@pytest.mark.parametrize(("d", "k"), [(100, 16), pytest.param(100, 64, marks=pytest.mark.slow)])
def test_separated_mixtures_are_clustered_as_in_table_1(d, k):
    k_local = round(np.sqrt(k))
    for seed in range(10):
        sites, component, _ = heterogeneous(d, k, k_local, m0=5, per_component=20, c=100, seed=seed)
        found = run(sites, k, seed, k_local=k_local)
        labels = np.concatenate([found.labels[site] for site in sites])
        assert metrics.accuracy(labels, np.concatenate(list(component.values()))) >= 0.995


# ---- figures on S1: 10 sites, 30 seeds ----


@pytest.mark.parametrize(
    ("spec", "minimum", "maximum"), [("iid", 46, 50), ("dirichlet:0.3", 15, 24), ("dirichlet:0.1", 9, 20)]
)
def test_s1_with_five_local_clusters(shared_data: Path, spec, minimum, maximum):
    with np.load(shared_data / "s1" / "s1.npz", allow_pickle=False) as data:
        X, y, true = data["X"].astype(float), data["y"].astype(int), data["centroids"].astype(float)
    l2 = []
    for seed in range(30):
        parts = partition(spec, X, y, 10, np.random.default_rng([seed, 1]))
        sites = {site: X[rows] for site, rows in parts.items()}
        found = run_inprocess(get("kfed"), {"k_local": 5}, sites, JobOptions(k=15, seed=seed, assess=False))
        assert len(found.centroids) == 15
        l2.append(metrics.l2_distance(found.centroids, true) / 1e4)
    assert minimum <= np.mean(l2) <= maximum


@pytest.mark.parametrize(
    ("anchors", "error"),
    [
        (np.zeros((9, 3)), "was sent 9 centroids where the job has at most 3"),
        (np.zeros((3, 2)), "3 columns where the federation has 2"),
        (np.full((3, 3), np.nan), "NaN"),
        (np.zeros((3, 3), np.int64), "float64"),
    ],
)
def test_anchors_are_checked_as_the_centroids_are(anchors, error):
    """They number labels: with more of them rows would get clusters that the result does not have."""
    rows = np.random.default_rng(0).normal(size=(30, 3))
    own = {"tau": np.zeros(0, np.int64), "tau_site": np.zeros(0, np.int64)}
    task = Task(StepName.ASSESS, 1, {"centroids": rows[:3] + 0.1, "anchors": anchors, **own}, "late")
    with pytest.raises((BadMessage, Refusal), match=error):
        KFedExecutor(3).answer(task, rows, never_abort)
