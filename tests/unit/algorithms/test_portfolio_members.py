"""The members of the portfolio are the algorithms that they stand for."""

import numpy as np
import pytest

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.aggregators.kfed import KFedAggregator
from flareclust.aggregators.portfolio import _MEMBERS
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.feca import FeCAExecutor
from flareclust.executors.pooled import PooledExecutor
from flareclust.executors.portfolio import PortfolioExecutor
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task
from tests import twins
from tests.computed import computed
from tests.unit.algorithms.portfolio_cases import federation, mixture, run

TASK = Task(StepName.CLUSTER, 0, {}, "site-1")


def uploads(sites, k=5, seed=0, **params):
    executor = PortfolioExecutor(k, seed, members=list(_MEMBERS), **params)
    return {site: computed(executor, TASK, X, stream(seed, 0, site), never_abort) for site, X in sites.items()}


# ---- the upload ----


@pytest.mark.parametrize("seed", range(3))
def test_the_upload_describes_the_clusters_of_the_local_k_means(seed):
    X = mixture(seed, 200)
    sent = computed(PortfolioExecutor(5, members="feca"), TASK, X, np.random.default_rng(seed), never_abort)
    labels = np.linalg.norm(X[:, None] - sent["centroids"][None], axis=2).argmin(axis=1)
    for r, centroid in enumerate(sent["centroids"]):
        own = X[labels == r]
        away = np.linalg.norm(own - centroid, axis=1)
        np.testing.assert_allclose(centroid, own.mean(axis=0), atol=0.05)  # k-means may stop before it has settled
        assert sent["counts"][r] == pytest.approx(len(own), abs=3)
        assert sent["radii"][r] == pytest.approx(away.max(), rel=0.3)
        assert sent["sse"][r] == pytest.approx((away**2).sum(), rel=0.1)


def test_what_is_sent_by_hand():
    """0, 2, 4, 4.2 and 100, 102, 106 in two opposite columns; the row at 1000 stays."""
    X = np.array([0, 2, 4, 4.2, 100, 102, 106, 1000.0])[:, None] * [1.0, -1.0] + [[0, 0.5]] * 8
    X[1] += [0.0, 0.25]  # so that rows differ in two columns, and not on a line
    sent = computed(PortfolioExecutor(3, n_init=10, members="feca"), TASK, X, np.random.default_rng(0), never_abort)
    order = sent["centroids"][:, 0].argsort()
    clusters = [X[:4], X[4:7]]
    for r, own in zip(order, clusters, strict=True):
        away = np.linalg.norm(own - own.mean(axis=0), axis=1)
        np.testing.assert_allclose(sent["centroids"][r], own.mean(axis=0))
        assert sent["counts"][r] == len(own)
        assert sent["radii"][r] == pytest.approx(away.max())
        assert sent["sse"][r] == pytest.approx((away**2).sum())


@pytest.mark.parametrize("column", [0, 1])
def test_along_one_column_distances_and_squares_are_coarse(column):
    """Two rows 2 apart: mean, square sum 2 and distance 1 would be both of them; sent are 2.1 and 1.1."""
    X = np.full((40, 2), 7.0)
    X[:20, column] = [0.0, 2.0] * 10
    X[20:, column] = np.linspace(500.0, 503.0, 20)
    sent = computed(PortfolioExecutor(2, n_init=5, members="feca"), TASK, X, np.random.default_rng(0), never_abort)
    first = sent["centroids"][:, column].argmin()
    assert sent["radii"][first] == pytest.approx(1.1)
    assert sent["sse"][first] == pytest.approx(21.0)  # of 20 rows, 20 in truth
    far = X[20:, column] - 501.5
    assert np.abs(far).max() < sent["radii"][1 - first] <= 1.1 * np.abs(far).max()
    assert (far**2).sum() < sent["sse"][1 - first] <= 1.1 * (far**2).sum()


# ---- the members ----


def all_sent(sent, sites):
    return all(message["counts"].sum() == len(sites[site]) for site, message in sent.items())


@pytest.mark.parametrize("seed", range(8))
def test_feca_is_feca_where_nothing_is_withheld(seed):
    sites = federation(seed)
    sent = uploads(sites, seed=seed, n_init=2)
    assert all_sent(sent, sites)
    executor = FeCAExecutor(5, seed, n_init=2)
    theirs = {site: computed(executor, TASK, X, stream(seed, 0, site), never_abort) for site, X in sites.items()}
    expected = FeCAAggregator(5).merge(Round(), theirs, np.random.default_rng(0)).task["centroids"]
    found = _MEMBERS["feca"](list(sent.values()), 5, 20, np.random.default_rng(0))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def described(X, sent):
    """Clusters for the twin that has rows: those nearest to each centroid, where k-means had settled."""
    labels = np.linalg.norm(X[:, None] - sent["centroids"][None], axis=2).argmin(axis=1)
    return [twins.points(X[labels == r]) for r in range(len(sent["counts"]))]


def test_feca_is_the_literal_twin():
    compared = 0
    for seed in range(8):
        sites = federation(seed, n=60)
        sent = uploads(sites, seed=seed, n_init=3)
        D = {site: described(sites[site], message) for site, message in sent.items()}
        if any([len(c) for c in D[site]] != message["counts"].tolist() for site, message in sent.items()):
            continue  # k-means stopped on its tolerance: labels are not those of the nearest centroids
        C, R = [], []
        for site, message in sent.items():
            kept, clusters, _ = twins.client_update(twins.points(message["centroids"]), D[site])
            C += kept
            R += twins.radius_assign_empirical(kept, clusters)
        expected, _, _ = twins.server_aggregation(5, C, R)
        found = _MEMBERS["feca"](list(sent.values()), 5, 20, np.random.default_rng(0))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize("seed", range(5))
def test_kfed_is_the_server_of_kfed_on_the_same_centroids(seed):
    sent = uploads(federation(seed), seed=seed)
    theirs = {site: {name: message[name] for name in ("centroids", "counts")} for site, message in sent.items()}
    expected = KFedAggregator(5).merge(Round(), theirs, np.random.default_rng(0)).task["centroids"]
    found = _MEMBERS["kfed"](list(sent.values()), 5, 20, np.random.default_rng(0))
    np.testing.assert_array_equal(found, expected)
    _, tau = twins.kfed_server(5, [twins.points(message["centroids"]) for message in sent.values()])
    everything = np.concatenate([message["centroids"] for message in sent.values()])
    tau = np.concatenate(tau)
    np.testing.assert_allclose(found, [everything[tau == r].mean(axis=0) for r in range(5)])


@pytest.mark.parametrize(("member", "weighted"), [("pooled", True), ("unweighted", False)])
def test_pooled_is_the_algorithm_pooled(member, weighted):
    for seed in range(3):
        sites = federation(seed)
        alone = run(sites, seed=seed, members=[member], n_init=2, polish=0)
        pooled = run_inprocess(get("pooled"), {"weighted": weighted, "n_init": 2}, sites, JobOptions(k=5, seed=seed))
        np.testing.assert_array_equal(alone.centroids, pooled.centroids)


def test_a_site_sends_pooled_and_portfolio_the_same_centroids():
    X = mixture(0, 100)
    ours = computed(PortfolioExecutor(5, n_init=2), TASK, X, np.random.default_rng(0), never_abort)
    theirs = computed(PooledExecutor(5, n_init=2), TASK, X, np.random.default_rng(0), never_abort)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value)


def test_sampled_cuts_a_local_cluster_that_k_means_on_centroids_cannot():
    """Clusters of width 1 at 0 and 6; one site describes all of its rows of both by a single centroid at 3."""
    upload = {
        "centroids": np.array([[0.0], [6.0], [3.0]]),
        "counts": np.array([400, 400, 390]),
        "radii": np.array([3.0, 3.0, 6.0]),
        "sse": np.array([400.0, 400.0, 390 * 10.0]),
    }
    rng = np.random.default_rng(0)
    pooled, sampled = (np.sort(_MEMBERS[name]([upload], 2, 20, rng).ravel()) for name in ("pooled", "sampled"))
    off = [np.abs(found - [0.0, 6.0]).max() for found in (pooled, sampled)]
    assert off[1] < off[0] / 2


@pytest.mark.parametrize("member", _MEMBERS)
def test_a_member_copes_with_a_single_cluster_in_all(member):
    upload = {
        "centroids": np.array([[1.0, 2.0]]),
        "counts": np.array([9]),
        "radii": np.array([3.0]),
        "sse": np.array([20.0]),
    }
    np.testing.assert_allclose(_MEMBERS[member]([upload], 4, 20, np.random.default_rng(0)), [[1.0, 2.0]])
