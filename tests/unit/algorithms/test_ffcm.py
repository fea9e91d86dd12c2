"""FFCM as a whole: against fuzzy c-means on the pooled rows, and its figures on the S-sets."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust.core.fuzzy import fuzzy_cmeans, memberships
from flareclust.data.partition import partition
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import metrics
from flareclust.executors.ffcm import FUZZY
from flareclust.protocol.task import StepName
from flareclust.testing.tools import exchanges, iid_sites
from tests.unit.algorithms.ffcm_cases import FFCM, twin_describable
from tests.unit.core.fuzzy_cases import twin


def run(sites, k, seed=0, **params):
    return run_inprocess(FFCM, params, sites, JobOptions(k=k, seed=seed))


def two_sites(seed=0, n=40):
    """Sites with other shares of three overlapping clusters in two dimensions, and k = 3 points to start from."""
    rng = np.random.default_rng(seed)
    centers = 5 * rng.normal(size=(3, 2))
    shares = {"a": (0.6, 0.3, 0.1), "b": (0.1, 0.3, 0.6)}
    rows = {site: centers[rng.choice(3, n, p=p)] + rng.normal(size=(n, 2)) for site, p in shares.items()}
    return rows, centers + rng.normal(size=(3, 2))


# ---- whole federations ----


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.sampled_from([1.5, 2.0, 3.0]), max_iter=st.sampled_from([1, 3, 30]))
def test_v1_is_the_literal_federation(seed, m, max_iter):
    sites, start = two_sites(seed, n=20)
    centroids = start
    for _ in range(3):
        sums, total = 0.0, 0.0
        for X in sites.values():
            local, u, _ = twin(X, centroids, m, max_iter, 1e-2)
            support = (u**m).sum(axis=0)
            assume(all(twin_describable(X, u, local, m, 2)))
            sums, total = sums + support[:, None] * local, total + support
        centroids = sums / total[:, None]

    params = {"version": "v1", "rounds": 3, "fuzzifier": m, "max_iter": max_iter, "tol": 1e-2}
    found = run(sites, 3, start=start.tolist(), **params)

    np.testing.assert_allclose(found.centroids, centroids, rtol=1e-6, atol=1e-7)
    assert found.n_rounds == 3


@pytest.mark.parametrize("m", [1.5, 2.0])
def test_v1_with_one_local_iteration_is_fuzzy_c_means_on_the_pooled_rows(m):
    sites, start = two_sites(seed=3, n=150)
    found = run(sites, 3, version="v1", rounds=8, max_iter=1, fuzzifier=m, start=start.tolist())
    pooled = np.concatenate(list(sites.values()))
    for round_, centroids in enumerate(found.arrays["history"]):
        central = fuzzy_cmeans(pooled, start, m, max_iter=round_ + 1, tol=0)
        np.testing.assert_allclose(centroids, central.centroids, rtol=1e-10)
    np.testing.assert_allclose(found.arrays["support"], central.sum_um, rtol=1e-10)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_one_site_with_everything_is_fuzzy_c_means(version):
    sites, start = two_sites(seed=1)
    rows = np.concatenate(list(sites.values()))
    found = run({"all": rows}, 3, version=version, start=start.tolist()).centroids
    expected = fuzzy_cmeans(rows, start).centroids
    np.testing.assert_allclose(found[found[:, 0].argsort()], expected[expected[:, 0].argsort()], rtol=1e-12)


def test_labels_are_the_clusters_of_largest_membership():
    sites, _ = two_sites(seed=2)
    for m in (1.2, 2.0, 4.0):
        found = run(sites, 3, rounds=2, fuzzifier=m)
        for site, rows in sites.items():
            u = memberships(rows, found.centroids, m)
            np.testing.assert_array_equal(found.labels[site], u.argmax(axis=1))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), version=st.sampled_from(["v1", "v2"]), shift=st.sampled_from([-1e4, 3.0, 1e5]))
def test_neither_origin_nor_order_matter(seed, version, shift):
    sites, start = two_sites(seed)
    params = {"version": version, "rounds": 2, "tol": 0.0, "max_iter": 5}
    found = run(sites, 3, start=start.tolist(), **params)
    there = {site: rows + shift for site, rows in sites.items()}
    moved = run(there, 3, start=(start + shift).tolist(), **params)
    np.testing.assert_allclose(moved.centroids - shift, found.centroids, atol=1e-6)
    order = np.random.default_rng(seed).permutation(40)
    shuffled = {site: sites[site][order] for site in ("b", "a")}
    np.testing.assert_allclose(run(shuffled, 3, start=start.tolist(), **params).centroids, found.centroids, atol=1e-7)


def test_sites_of_other_names_differ_in_v2_by_the_order_of_what_came_only():
    sites, start = two_sites(seed=5)
    found = run(sites, 3, start=start.tolist()).centroids
    renamed = run({"z": sites["a"], "b": sites["b"]}, 3, start=start.tolist()).centroids
    np.testing.assert_allclose(renamed[renamed[:, 0].argsort()], found[found[:, 0].argsort()], rtol=1e-12)


def test_rounds_are_counted_after_the_start():
    sites, start = two_sites()
    for version in ("v1", "v2"):
        drawn = run(sites, 3, version=version, rounds=4)
        assert drawn.n_rounds == 5
        assert drawn.arrays["history"].shape == (5, 3, 2)
        given_ = run(sites, 3, version=version, rounds=4, start=start.tolist())
        assert given_.n_rounds == 4
        assert given_.arrays["history"].shape == (4, 3, 2)
        np.testing.assert_array_equal(given_.arrays["history"][-1], given_.centroids)


def test_what_leaves_a_site_is_what_the_page_says():
    sent = exchanges(FFCM, iid_sites()[0], 4, rounds=2)
    steps = [StepName.CLUSTER] * 4 + [FUZZY] * 8
    assert [task.step for task, _ in sent] == steps
    names = {StepName.CLUSTER: {"centroids", "counts"}, FUZZY: {"centroids", "support", "cluster"}}
    assert all(set(arrays_) == names[task.step] for task, arrays_ in sent)


def test_supports_and_weights_change_the_result():
    sites, start = two_sites(seed=7)

    def centroids(**params):
        return run(sites, 3, start=start.tolist(), **params).centroids

    assert not np.allclose(centroids(version="v1"), centroids(version="v1", support="u"), rtol=1e-6)
    assert not np.allclose(centroids(weighted=True), centroids(), rtol=1e-6)


# ---- odd rows and starts ----


def test_given_centroids_must_fit_the_data():
    sites, _ = two_sites()
    with pytest.raises(JobFailed, match="rows of 2 columns where the federation has 1"):
        run(sites, 3, start=[[0.0], [1.0], [2.0]])


@settings(max_examples=30, deadline=None)
@given(X=arrays(np.float64, (12, 2), elements=st.integers(-3, 3).map(float)), seed=st.integers(0, 99))
def test_rows_on_a_lattice_end_in_centroids_or_in_a_plain_reason(X, seed):
    for version in ("v1", "v2"):
        reason, centroids = "", np.zeros((1, 2))
        try:
            centroids = run({"a": X[:6], "b": X[6:], "c": X}, 3, seed, version=version, rounds=2).centroids
        except JobFailed as failure:
            reason = str(failure)
        assert not reason or "nothing it may send" in reason
        assert 1 <= len(centroids) <= 3
        assert np.isfinite(centroids).all()


# ---- figures: Table 1 of Xu et al. 2024 asks for ten sites and ten seeds ----


def s_set(folder, name):
    with np.load(folder / name / f"{name}.npz", allow_pickle=False) as data:
        return data["X"].astype(float), data["y"].astype(int), data["centroids"].astype(float)


@pytest.mark.parametrize(
    ("name", "split", "params", "minimum", "maximum"),
    [
        ("s1", "iid", {"rounds": 10}, 0.8, 1.1),
        ("s1", "dirichlet:0.1", {}, 1.5, 3.5),
        ("s2", "dirichlet:0.3", {}, 2.0, 5.0),
        ("s1", "dirichlet:0.1", {"version": "v1"}, 45, 65),
    ],
)
def test_s_sets(shared_data, name, split, params, minimum, maximum):
    X, y, true = s_set(shared_data, name)
    l2 = []
    for seed in range(5):
        parts = partition(split, X, y, 10, np.random.default_rng([seed, 1]))
        sites = {site: X[rows] for site, rows in parts.items()}
        found = run_inprocess(FFCM, params, sites, JobOptions(k=15, seed=seed, assess=False))
        assert len(found.centroids) == 15
        l2.append(metrics.l2_distance(found.centroids, true) / 1e4)
    assert minimum <= np.mean(l2) <= maximum


def test_fuzzy_labels_of_a_run_from_python(shared_data):
    result = flareclust.run("ffcm", data="s1", seed=0, rounds=2)
    assert result.centroids_found == 15
    rows = s_set(shared_data, "s1")[0]
    assert flareclust.memberships(rows, result.centroids).shape == (5000, 15)
