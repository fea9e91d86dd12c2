"""FKM as a whole: rounds, several runs, and its figures on the authors' own data."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from flareclust._foundation.errors import Aborted
from flareclust._foundation.seeding import stream
from flareclust.aggregators.fkm import FKMAggregator, _FKMState
from flareclust.core.seeds import kmeans_plusplus
from flareclust.data import datasets
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.engines.pooled import central_kmeans
from flareclust.executors.fkm import FKMExecutor
from flareclust.federation.server import ServerJob
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.task import StepName, Task
from tests.twins import points
from tests.unit.algorithms.fkm_cases import in_order, twin_update


def run(sites, k, seed=0, **params):
    return run_inprocess(get("fkm"), params, sites, JobOptions(k=k, seed=seed))


def twin_start(X, seeds, p):
    """Lines 3-4 with the means of the cells."""
    return twin_update(X, seeds, p, local_iter=1)


def twin_server(replies, k):
    """Lines 8-10; scikit-learn's k-means often enough to find the optimum of so few means."""
    C_l = np.array([c for reply in replies for c, _ in reply])
    S_l = np.array([s for reply in replies for _, s in reply])
    with threadpool_limits(1):  # scikit-learn's threads wait for one another where the cores are busy
        model = KMeans(min(k, len(C_l)), n_init=60, tol=0, random_state=0).fit(C_l, sample_weight=S_l)
    return model.cluster_centers_


@pytest.mark.parametrize("seed", range(6))
def test_the_whole_is_algorithm_1(seed):
    k, rounds, p = 3, 4, 2
    rng = np.random.default_rng(seed)
    centers = 3 * rng.normal(size=(k, 2))
    sites = {f"site-{i}": rng.normal(size=(30, 2)) + centers[rng.integers(k - (i == 1), size=30)] for i in range(3)}

    history = []
    replies = []
    for site, X in sites.items():  # lines 1-5
        seeds, _ = kmeans_plusplus(X, k, stream(seed, 0, site))
        replies.append(twin_start(points(X), points(seeds), p))
    history.append(twin_server(replies, k))
    for _ in range(rounds):  # lines 6-18
        replies = [twin_update(points(X), points(history[-1]), p, local_iter=1) for X in sites.values()]
        history.append(twin_server(replies, k))

    found = run(sites, k, seed, rounds=rounds, tol=0, n_init=60).arrays

    assert found["history"].shape == (rounds + 1, k, 2)
    for ours, literal in zip(found["history"], history, strict=True):
        np.testing.assert_allclose(in_order(ours), in_order(literal), rtol=1e-9)
    np.testing.assert_array_equal(found["centroids"], found["history"][-1])
    for site, reply in enumerate(replies):
        received = found["received_counts"][found["received_site"] == site]
        assert sorted(received.tolist()) == sorted(s for _, s in reply)


# ---- rounds ----


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_are_exchanges_after_the_start(sites, rounds):
    found = run(sites, 4, rounds=rounds, tol=0)
    assert found.n_rounds == rounds + 1
    assert len(found.arrays["history"]) == rounds + 1
    assert [record["round"] for record in found.rounds if record["step"] == StepName.CLUSTER] == list(range(rounds + 1))


def test_separated_clusters_settle_before_the_last_round(sites):
    found = run(sites, 4, rounds=50)
    # The start finds the clusters, and round 1 moves their centroids no more than the seeds' cells were wrong.
    assert found.n_rounds <= 4
    shifts = [record["diagnostics"].get("shift") for record in found.rounds if record["step"] == StepName.CLUSTER]
    assert shifts[0] is None
    assert shifts[-1] < 1e-4
    assert all(shift >= 1e-4 for shift in shifts[1:-1])


def test_counts_are_all_rows_where_nothing_is_withheld(sites):
    found = run(sites, 4)
    assert found.arrays["counts"].sum() == sum(map(len, sites.values()))
    pooled = np.concatenate(list(sites.values()))
    np.testing.assert_allclose(
        found.arrays["counts"] @ found.centroids / len(pooled), pooled.mean(axis=0), atol=1e-9
    )  # so means and counts belong to the same rows


# ---- small sites ----


def test_a_site_with_fewer_rows_than_k_takes_part(sites):
    few = np.random.default_rng(0).normal(size=(6, 3))
    found = run(sites | {"site-small": few}, 8, tol=0)
    assert found.refused == {}
    assert found.labels["site-small"].shape == (6,)


@pytest.mark.parametrize("min_count", [20, 25, 30])
def test_small_sites_with_a_high_min_count_end_in_centroids(min_count):
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(30, 2)) + 4 * np.eye(2)[rng.integers(2, size=30)] for i in range(5)}
    found = run(sites, 3, min_count=min_count, tol=0)
    assert found.refused == {}
    assert found.rounds[-2]["diagnostics"]["received"] == 0
    assert len(found.arrays["history"]) == found.n_rounds < 11
    np.testing.assert_array_equal(found.centroids, found.arrays["history"][0])


# ---- stops and draws ----


def test_local_iterations_stop_when_aborted(sites):
    with pytest.raises(Aborted):
        FKMExecutor(4, local_iter=2).local(
            Task(StepName.CLUSTER, 1, {"centroids": sites["site-1"][:4]}, "site-1"),
            SiteRows(Table(sites["site-1"]), np.random.default_rng(0), lambda: True),
        )


def objectives(n_init):
    """The objective of clustering the same means in several rounds; they have no clusters, so that every draw shows."""
    means, sizes = np.random.default_rng(0).normal(size=(80, 2)), np.full(80, 3)
    aggregator = FKMAggregator(8, seed=5, n_init=n_init)
    old = Round({"centroids": means[:8]}, state=_FKMState(), index=1)
    return [
        ServerJob(aggregator)
        .advance(replace(old, index=index), {"a": {"centroids": means, "counts": sizes}})
        .diagnostics["objective"]
        for index in range(1, 9)
    ]


def test_every_round_draws_anew_and_the_same_again():
    assert len(set(objectives(n_init=1))) > 4
    assert objectives(n_init=1) == objectives(n_init=1)


def test_the_best_of_several_runs_counts():
    once, often = objectives(n_init=1), objectives(n_init=20)
    assert max(often) < np.mean(once)


# ---- figures on the authors' grid, in their own split over five clients ----


def published_clients(beta):
    data = datasets.load(f"garst_grid:beta{beta}_ppc50_noise1")
    members = {f"client-{c}": data.owners == c for c in range(5)}
    return (
        data,
        {site: data.X[own] for site, own in members.items()},
        {site: data.y[own] for site, own in members.items()},
    )


@pytest.mark.usefixtures("shared_data")
@pytest.mark.parametrize("beta", ["0.1", "1", "10"])
def test_ari_on_the_grid_is_that_of_central_kmeans(beta):
    data, sites, true = published_clients(beta)
    y = np.concatenate(list(true.values()))
    ari: dict[str, list[float]] = {"means": [], "rows": []}
    per_client, central = [], []
    for seed in range(10):
        for seeds, found in ari.items():
            labels = run(sites, 16, seed, seeds=seeds).labels
            found.append(adjusted_rand_score(y, np.concatenate([labels[site] for site in sites])))
            if seeds == "means":
                own = [len(true[site]) * adjusted_rand_score(true[site], labels[site]) for site in sites]
                per_client.append(sum(own) / len(y))
        with threadpool_limits(1):
            best = central_kmeans(data.X, 16, seed)
        nearest = ((data.X[:, None] - best) ** 2).sum(axis=2).argmin(axis=1)
        central.append(adjusted_rand_score(data.y, nearest))
    for found in (ari["means"], ari["rows"], per_client):
        assert np.mean(found) >= 0.94
        assert abs(np.mean(found) - np.mean(central)) <= 0.015
