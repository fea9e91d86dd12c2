"""Proxy clusters: the whole against a slow literal twin, labels by merged clusters, and what leaves a site."""

import logging
from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.errors import Aborted, BadMessage, JobFailed, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.base import Round
from flareclust.aggregators.proxy import ProxyAggregator, attract, generate_proxy_clusters, merge
from flareclust.core.agglomeration import cut
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.kfed import site_number
from flareclust.executors.proxy import ProxyExecutor, fit_pdf, several
from flareclust.features.columns import Columns
from flareclust.protocol.registry import get
from flareclust.protocol.task import CLUSTER, Task
from tests.examples import examples

#: Columns of three sites that overlap in a chain: the first and the last have none in common.
CHAIN = {"a": (0, 1, 2), "b": (2, 3, 4), "c": (4, 5, 0)}


def names(places):
    return tuple(f"f{j}" for j in places)


def tables(owned, centers, per_cluster=40, seed=0, clusters=None):
    """Return each site's rows of its own columns, around the centers (k, D) of its clusters, and whose each row is."""
    rng = np.random.default_rng(seed)
    sites, classes = {}, {}
    for site, places in owned.items():
        own = (clusters or {}).get(site, range(len(centers)))
        classes[site] = np.repeat(list(own), per_cluster)
        rows = centers[classes[site]] + rng.normal(size=(len(classes[site]), centers.shape[1]))
        sites[site] = Table(rows[:, list(places)], names(places))
    return sites, classes


def far_apart(k, D, seed=0):
    """Return centers (k, D) that are apart in every column."""
    rng = np.random.default_rng(seed)
    return 20.0 * np.stack([rng.permutation(k) for _ in range(D)], axis=1)


def run(sites, k, seed=0, **params):
    return run_inprocess(get("proxy"), params, sites, JobOptions(k=k, seed=seed))


def in_order(outcome, D):
    """Return the outcome's centroids with their columns in the order of their names."""
    known = outcome.arrays["column_names"].tolist()
    return outcome.arrays["centroids"][:, [known.index(f"f{j}") for j in range(D)]]


def agreement(outcome, classes):
    sites = list(classes)
    found = np.concatenate([outcome.labels[site] for site in sites])
    return adjusted_rand_score(np.concatenate([classes[site] for site in sites]), found)


def sent_by(rows, k, min_count=2, **params):
    """Return what a site with these rows sends, or None where it refuses."""
    executor = ProxyExecutor(k, min_count=min_count, **params)
    try:
        return executor.answer(Task(CLUSTER, 0, {}, "site-1"), np.asarray(rows, dtype=float), never_abort).arrays
    except Refusal:
        return None


def columns_of(owned, D):
    masks = np.array([[j in places for j in range(D)] for places in owned.values()])
    return Columns(np.arange(D), names(range(D)), tuple(owned), masks)


def described(centroids, counts, spread=1.0):
    """Return a reply of round clusters."""
    centroids = np.asarray(centroids, dtype=float)
    k, d = centroids.shape
    return {
        "centroids": centroids,
        "counts": np.asarray(counts),
        "factors": np.tile(spread * np.eye(d), (k, 1)) if spread else np.empty((0, d)),
        "ranks": np.full(k, d if spread else 0),
        "concentration": np.empty(0),
        "low": np.empty((0, d)),
        "high": np.empty((0, d)),
    }


# ---- the whole ----


@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_found_across_sites_with_different_columns(seed):
    centers = far_apart(3, 6, seed)
    sites, classes = tables(CHAIN, centers, seed=seed)
    outcome = run(sites, k=3, seed=seed)
    assert agreement(outcome, classes) == 1.0
    found = in_order(outcome, 6)
    gaps = np.linalg.norm(centers[:, None] - found[None], axis=2)
    assert gaps.min(axis=1).max() < 1.0
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2]
    assert outcome.arrays["counts"].tolist() == [120, 120, 120]


def test_clusters_are_found_where_no_site_has_all_of_them():
    owned = {"a": (0, 1, 2), "b": (1, 2, 3), "c": (2, 3, 4), "d": (3, 4, 5)}
    clusters = {"a": [0, 1], "b": [0, 1, 2], "c": [1, 2, 3], "d": [2, 3]}
    sites, classes = tables(owned, far_apart(4, 6, 4), clusters=clusters)
    outcome = run(sites, k=4, k_local={site: len(own) for site, own in clusters.items()})
    assert agreement(outcome, classes) == 1.0
    mask = outcome.arrays["mask"]
    truth = np.array([np.concatenate([classes[s] for s in sites]) == r for r in range(4)])
    found = np.concatenate([outcome.labels[s] for s in sites])
    for r in range(4):  # an entry is known exactly where a site that has the column has the cluster
        (label,) = np.unique(found[truth[r]])
        holders = [owned[site] for site in owned if r in clusters[site]]
        known = {
            int(name[1:])
            for name, is_known in zip(outcome.arrays["column_names"], mask[label], strict=True)
            if is_known
        }
        assert known == set().union(*holders)


def test_one_exchange_is_enough():
    sites, _ = tables(CHAIN, far_apart(3, 6))
    outcome = run(sites, k=3)
    assert [record["step"] for record in outcome.rounds] == ["describe", "cluster", "assess"]
    assert outcome.n_rounds == 1


def test_standardized_columns_end_in_the_units_of_the_data():
    centers = far_apart(3, 6)
    sites, classes = tables(CHAIN, centers)
    unit = np.array([1e-3, 1.0, 1e3, 1.0, 1e4, 7.0])
    scaled = {site: Table(table.X * unit[list(CHAIN[site])], table.columns) for site, table in sites.items()}
    outcome = run(scaled, k=3, standardize=True)
    assert agreement(outcome, classes) == 1.0
    gaps = np.abs(centers[:, None] - in_order(outcome, 6)[None] / unit).max(axis=2)
    assert gaps.min(axis=1).max() < 1.0


@pytest.mark.parametrize(
    "params", [{"covariance": "ledoit-wolf"}, {"covariance": "diagonal"}, {"boxes": True}, {"phi": "cosine"}]
)
def test_every_description_and_distance_finds_separate_clusters(params):
    centers = far_apart(3, 6) - 20.0  # around 0, so that directions differ, too
    owned = {"a": (0, 1, 2, 3), "b": (2, 3, 4, 5), "c": (4, 5, 0, 1)}
    centers[:, ::2] = [[20, 20, 20], [-20, 20, -20], [20, -20, -20]]
    centers[:, 1::2] = [[0, 0, 0], [20, -20, 20], [-20, 20, -20]]
    sites, classes = tables(owned, centers)
    assert agreement(run(sites, k=3, **params), classes) == 1.0


def test_the_number_of_clusters_can_be_chosen():
    sites, classes = tables(CHAIN, far_apart(3, 6))
    outcome = run(sites, k=6, choose_k=True, k_local=3)
    assert len(outcome.arrays["centroids"]) == 3
    assert agreement(outcome, classes) == 1.0
    assert outcome.rounds[1]["diagnostics"]["clusters"] == 3


def test_a_site_may_have_more_local_clusters_than_there_are_clusters():
    """Assumption 3 of the paper, no mixed local cluster, can always be had by enough of them."""
    rng = np.random.default_rng(0)
    long = np.column_stack([np.linspace(0, 30, 200), np.zeros(200)])  # k-means cuts both across
    rows = np.concatenate([long, long + np.array([0.0, 10.0])]) + 0.3 * rng.normal(size=(400, 2))
    sites, classes = {"a": Table(rows, names((0, 1)))}, {"a": np.repeat([0, 1], 200)}
    few, many = run(sites, k=2), run(sites, k=2, k_local=6)
    assert agreement(few, classes) < 0.1
    assert agreement(many, classes) == 1.0
    assert many.arrays["centroids"].shape == (2, 2)


def test_two_numbers_of_clusters_come_from_one_tree():
    sites, _ = tables(CHAIN, far_apart(4, 6))
    four, two = run(sites, k=4, k_local=4).arrays, run(sites, k=4, k_local=4, choose_k=True).arrays
    for name in ("tree_left", "tree_right", "tree_force", "tree_size", "received_centroids"):
        np.testing.assert_array_equal(four[name], two[name])
    assert len(four["tree_left"]) == 11


# ---- the server against a literal twin ----


def twin_scaled(x, y, high, low):
    """Equations 2 and 3 on the entries that both points know; None where there are none."""
    common = [j for j in range(len(x)) if x[j] == x[j] and y[j] == y[j]]
    if not common:
        return None
    largest = sqrt(sum((high[j] - low[j]) ** 2 for j in common))
    return sqrt(sum((x[j] - y[j]) ** 2 for j in common)) / largest


def twin_force(P_r, P_s, w, high, low):
    """Equation 10 without the division, and the number of pairs that can be compared."""
    total, pairs = 0.0, 0
    for x, y in product(P_r, P_s):
        d = twin_scaled(x, y, high, low)
        if d is not None:
            total, pairs = total + max(d, 1e-12) ** -w, pairs + 1
    return total, pairs


def twin_server(P, w, k):
    """Algorithm 2, lines 5-12, on proxy clusters: the sets of clusters, and the forces of the merges."""
    everything = np.concatenate(P)
    high, low = np.nanmax(everything, axis=0).tolist(), np.nanmin(everything, axis=0).tolist()
    P = [proxies.tolist() for proxies in P]
    f = {(a, b): twin_force(P[a], P[b], w, high, low) for a in range(len(P)) for b in range(a)}
    G = [[a] for a in range(len(P))]  # line 5
    merged = []
    while len(G) > k:  # line 6
        best, pair = -1.0, None
        for r in range(len(G)):
            for s in range(r + 1, len(G)):  # line 7, equation 11
                between = [f[max(a, b), min(a, b)] for a in G[r] for b in G[s]]
                pairs = sum(number for _, number in between)
                if pairs and sum(force for force, _ in between) / pairs > best:
                    best, pair = sum(force for force, _ in between) / pairs, (r, s)  # line 8
        r, s = pair
        G[r] = G[r] + G[s]  # line 9
        del G[s]
        merged.append(best)
    return G, merged


def a_federation(seed):
    """Replies of four sites with two or three clusters each, of which one has no spread."""
    rng = np.random.default_rng(seed)
    owned = {"a": (0, 1), "b": (1, 2), "c": (2, 3), "d": (0, 3)}
    centers = 4 * rng.normal(size=(3, 4))
    replies = {}
    for site, places in owned.items():
        own = centers[: 2 + (site in "ab"), list(places)]
        means = own + rng.normal(size=own.shape)
        replies[site] = described(means, rng.integers(2, 60, size=len(own)), spread=0.0 if site == "d" else 1.5)
    return columns_of(owned, 4), replies


@pytest.mark.parametrize(("seed", "w", "k"), [(0, 2.0, 3), (1, 2.0, 2), (2, 1.5, 3), (3, 3.0, 4), (4, 2.0, 1)])
def test_the_server_is_algorithm_2(seed, w, k):
    columns, replies = a_federation(seed)
    points, cluster = generate_proxy_clusters(columns, replies, np.random.default_rng(seed))
    G, forces = twin_server([points[cluster == a] for a in range(cluster.max() + 1)], w, k)

    round_ = ProxyAggregator(k, w=w).merge_described(Round(), columns, replies, np.random.default_rng(seed))

    group = round_.task["group"]
    assert sorted(map(sorted, G)) == sorted(np.flatnonzero(group == r).tolist() for r in range(k))
    np.testing.assert_allclose(round_.record["tree_force"][: len(forces)], forces, rtol=1e-9)
    assert round_.diagnostics["force_merged"] == pytest.approx(min(forces))
    centroids = np.concatenate([columns.spread(site, reply["centroids"]) for site, reply in replies.items()])
    counts = np.concatenate([reply["counts"] for reply in replies.values()])
    for r in range(k):  # equation 4, entry by entry
        members = np.flatnonzero(group == r)
        assert round_.record["counts"][r] == counts[members].sum()
        for j in range(4):
            own = [a for a in members if not np.isnan(centroids[a, j])]
            value = sum(counts[a] * centroids[a, j] for a in own) / sum(counts[a] for a in own) if own else np.nan
            np.testing.assert_allclose(round_.task["centroids"][r, j], value, rtol=1e-12)


def test_the_result_says_whose_clusters_went_where():
    columns, replies = a_federation(0)
    round_ = ProxyAggregator(3).merge_described(Round(), columns, replies, np.random.default_rng(0))
    assert round_.done
    assert round_.record["received_site"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert round_.task["group_site"].tolist() == [site_number(s) for s in "aaabbbccdd"]
    np.testing.assert_array_equal(round_.record["received_group"], round_.task["group"])
    np.testing.assert_array_equal(round_.record["received_centroids"][8, 1:3], [np.nan, np.nan])


def test_proxy_clusters_have_the_papers_sizes_and_their_sites_columns():
    owned = {"a": (0, 2), "b": (1, 2)}
    replies = {"a": described([[0, 0], [90, 90], [50, 50]], [2, 64, 5000]), "b": described([[7, 8]], [31])}
    points, cluster = generate_proxy_clusters(columns_of(owned, 3), replies, np.random.default_rng(0))
    assert np.bincount(cluster).tolist() == [30, 64, 100, 31]
    assert np.isnan(points[cluster < 3, 1]).all()
    assert np.isnan(points[cluster == 3, 0]).all()
    assert not np.isnan(points[cluster == 3][:, 1:]).any()
    np.testing.assert_allclose(points[cluster == 2][:, [0, 2]].mean(axis=0), [50, 50], atol=0.5)
    np.testing.assert_allclose(points[cluster == 2][:, [0, 2]].std(axis=0), [1, 1], atol=0.3)


def test_a_cluster_without_spread_has_its_mean_as_every_proxy_point():
    replies = {"a": described([[3.0, 4.0]], [2], spread=0.0)}
    points, _ = generate_proxy_clusters(columns_of({"a": (0, 1)}, 2), replies, np.random.default_rng(0))
    np.testing.assert_array_equal(points, np.tile([3.0, 4.0], (30, 1)))


def test_each_cluster_has_the_rows_of_the_factors_that_its_rank_says():
    reply = described([[0.0, 0.0], [9.0, 9.0], [50.0, 50.0]], [100, 100, 100], spread=0.0)
    reply |= {"factors": np.array([[1.0, 0.0], [0.0, 2.0], [4.0, 4.0]]), "ranks": np.array([2, 0, 1])}
    points, cluster = generate_proxy_clusters(columns_of({"a": (0, 1)}, 2), {"a": reply}, np.random.default_rng(0))
    np.testing.assert_allclose(points[cluster == 0].std(axis=0), [1, 2], rtol=0.25)
    assert (points[cluster == 1] == 9.0).all()
    np.testing.assert_allclose(points[cluster == 2].std(axis=0), [4, 4], rtol=0.25)
    np.testing.assert_allclose(points[cluster == 2][:, 0], points[cluster == 2][:, 1])


def test_proxy_points_stay_in_the_boxes_that_were_sent():
    reply = described([[0.0, 0.0]], [100], spread=5.0) | {
        "low": np.array([[-1.0, -2.0]]),
        "high": np.array([[1.0, 3.0]]),
    }
    points, _ = generate_proxy_clusters(columns_of({"a": (0, 1)}, 2), {"a": reply}, np.random.default_rng(0))
    assert (points >= [-1, -2]).all()
    assert (points <= [1, 3]).all()
    assert points.std(axis=0).min() > 0.3


def test_proxy_points_of_shares_are_shares():
    reply = described([[0.2, 0.3, 0.5], [0.5, 0.25, 0.25]], [100, 40], spread=0.0)
    reply["concentration"] = np.array([50.0, 0.0])
    points, cluster = generate_proxy_clusters(columns_of({"a": (0, 1, 2)}, 3), {"a": reply}, np.random.default_rng(0))
    np.testing.assert_allclose(points.sum(axis=1), 1.0)
    np.testing.assert_allclose(points[cluster == 0].mean(axis=0), [0.2, 0.3, 0.5], atol=0.03)
    spread = points[cluster == 0].std(axis=0)  # sqrt(p (1 - p) / 51)
    assert (spread > 0.02).all()
    assert (spread < 0.15).all()
    assert (points[cluster == 1] == [0.5, 0.25, 0.25]).all()


def test_a_larger_w_gives_the_nearest_points_more_to_say():
    """A long cluster whose end touches another one, with a small one beside its middle, whose centroid is nearer."""
    rng = np.random.default_rng(0)
    noise = 0.05 * rng.normal(size=(300, 2))
    long = np.column_stack([np.linspace(0, 10, 100), np.zeros(100)])
    touching = np.column_stack([np.linspace(10.2, 20, 100), np.zeros(100)])
    points, cluster = np.concatenate([long, touching, np.full((100, 2), [5.0, 4.0])]) + noise, np.repeat([0, 1, 2], 100)
    assert cut(attract(points, cluster, 2.0, "euclidean"), 2).tolist() == [0, 1, 0]
    assert cut(attract(points, cluster, 4.0, "euclidean"), 2).tolist() == [0, 0, 1]


def test_attraction_may_be_by_direction():
    replies = {"a": described([[1.0, 0.0], [10.0, 0.5], [1.5, 1.5]], [40, 40, 40], spread=0.0)}
    for phi, group in (("euclidean", [0, 1, 0]), ("cosine", [0, 0, 1])):
        server = ProxyAggregator(2, phi=phi)
        merged = server.merge_described(Round(), columns_of({"a": (0, 1)}, 2), replies, np.random.default_rng(0))
        assert merged.task["group"].tolist() == group


def test_merged_centroids_weigh_by_rows_where_the_entry_is_known():
    centroids = np.array([[1.0, np.nan, 2.0], [4.0, 6.0, np.nan], [9.0, 9.0, 9.0]])
    found = merge(centroids, np.array([30, 10, 5]), np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [[(30 + 40) / 40, 6.0, 2.0], [9, 9, 9]])


def test_more_clusters_than_were_sent_fail_with_advice():
    sites, _ = tables(CHAIN, far_apart(3, 6))
    with pytest.raises(JobFailed, match=r"sent 6 clusters where k=7 are wanted; set a smaller k, a larger k_local"):
        run(sites, k=7, k_local=2)
    assert len(run(sites, k=7, k_local=2, choose_k=True).arrays["centroids"]) <= 6


def test_a_single_cluster_is_no_trouble():
    sites, classes = tables({"a": (0, 1)}, far_apart(1, 2))
    for choose_k in (False, True):
        outcome = run(sites, k=1, choose_k=choose_k)
        assert outcome.labels["a"].tolist() == [0] * len(classes["a"])
        assert outcome.arrays["tree_force"].shape == (0,)


def test_sets_that_cannot_be_compared_are_joined_last_and_counted(caplog):
    columns = columns_of({"a": (0,), "b": (1,)}, 2)
    replies = {"a": described([[0.0], [9.0]], [40, 40]), "b": described([[0.0], [9.0]], [40, 40])}
    merged = ProxyAggregator(1).merge_described(Round(), columns, replies, np.random.default_rng(0))
    assert merged.diagnostics["incomparable"] == 1
    assert "1 merges joined clusters of sites without a column in common" in caplog.text
    merged = ProxyAggregator(2).merge_described(Round(), columns, replies, np.random.default_rng(0))
    assert merged.task["group"].tolist() == [0, 0, 1, 1]
    assert merged.diagnostics["incomparable"] == 0
    assert "force_left" not in merged.diagnostics


# ---- labels ----


def result_for(executor, rows, group, site="site-1", owner="site-1"):
    """Return a task with a result in which the site's clusters went to `group`."""
    sent = executor.local_clustering("site-1", rows, np.random.default_rng(0), never_abort)
    arrays = {
        "centroids": sent.centroids.copy(),
        "group": np.array([5, *group, 5]),
        "group_site": np.array([1, *[site_number(owner)] * len(group), 2]),
    }
    return Task("assess", 1, arrays, site), sent


def two_clusters():
    rng = np.random.default_rng(3)
    return np.concatenate([rng.normal(size=(20, 2)), 30 + rng.normal(size=(25, 2))])


def test_rows_go_where_their_local_cluster_went():
    rows, executor = two_clusters(), ProxyExecutor(2)
    for group in ([0, 1], [1, 0], [1, 1]):
        task, sent = result_for(executor, rows, group)
        found = executor.labels(task, rows, np.random.default_rng(0), never_abort, rows)
        np.testing.assert_array_equal(found, np.array(group)[sent.labels])


@pytest.mark.parametrize("group", [[0, 1], [1, 0]])
def test_rows_of_clusters_that_stayed_and_of_late_sites_go_to_the_nearest_centroid(group, caplog):
    rows = np.concatenate([two_clusters(), [[31.0, 90.0]]])
    executor = ProxyExecutor(3)
    task, sent = result_for(executor, rows, group)
    assert sent.labels[-1] == -1  # a cluster of one row is not sent
    found = executor.labels(task, rows, np.random.default_rng(0), never_abort, rows)
    nearest = ((rows[:, None] - task.arrays["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
    assert found[-1] == nearest[-1]
    np.testing.assert_array_equal(found[:-1], np.array(group)[nearest[:-1]])
    late, _ = result_for(executor, rows, group, site="late")
    np.testing.assert_array_equal(executor.labels(late, rows, np.random.default_rng(0), never_abort, rows), nearest)
    assert not caplog.text


@pytest.mark.parametrize("standardize", [False, True])
def test_a_late_site_with_some_of_the_columns_finds_its_clusters(standardize):
    centers = far_apart(3, 6)
    sites, _ = tables(CHAIN, centers)
    outcome = run(sites, k=3, standardize=standardize)
    executor, _ = get("proxy").build(3, 0, {"standardize": standardize})
    late, classes = tables({"late": (1, 5)}, centers, seed=9)
    task = Task("assess", 1, executor.placing(outcome.arrays), "late")
    found = executor.answer(
        task, Table(np.column_stack([late["late"].X, np.zeros(120)]), ("f1", "f5", "odd")), never_abort
    ).labels
    assert adjusted_rand_score(classes["late"], found) == 1.0
    known = in_order(outcome, 6)
    for r in range(3):  # the same numbers as the other sites' labels
        assert np.abs(known[found[classes["late"] == r][0]] - centers[r]).max() < 1.0


def test_other_clusters_than_were_merged_are_noticed(caplog):
    rows, executor = two_clusters(), ProxyExecutor(2)
    task, sent = result_for(executor, rows, [1, 0, 0])
    found = executor.labels(task, rows, np.random.default_rng(0), never_abort, rows)
    np.testing.assert_array_equal(found, sent.labels)  # the nearest centroid
    assert "3 clusters were merged where 2 were sent" in caplog.text


def test_the_labels_of_a_run_are_those_of_the_merged_local_clusters():
    sites, _ = tables(CHAIN, far_apart(3, 6), seed=5)
    outcome = run(sites, k=2, k_local=3, seed=1)  # two of the three are joined
    for number, (site, table) in enumerate(sites.items()):
        own = outcome.arrays["received_group"][outcome.arrays["received_site"] == number]
        where = [outcome.arrays["column_names"].tolist().index(name) for name in table.columns]
        centers = outcome.arrays["received_centroids"][outcome.arrays["received_site"] == number][:, where]
        local = ((table.X[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
        np.testing.assert_array_equal(outcome.labels[site], own[local])


# ---- what leaves a site ----


def covariances(sent):
    factors = np.split(sent["factors"], np.cumsum(sent["ranks"])[:-1])
    return [factor.T @ factor for factor in factors]


def test_a_site_sends_mean_rows_and_covariance_of_each_cluster():
    rng = np.random.default_rng(0)
    rows = two_clusters() @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(45, 4))
    for covariance in ("mle", "ledoit-wolf", "diagonal"):
        sent = sent_by(rows, k=2, covariance=covariance)
        labels = ((rows[:, None] - sent["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
        for r, found in enumerate(covariances(sent)):
            own = rows[labels == r]
            assert sent["counts"][r] == len(own)
            np.testing.assert_allclose(sent["centroids"][r], own.mean(axis=0))
            full = np.cov(own.T, bias=True)
            expected = {
                "mle": full,
                "ledoit-wolf": LedoitWolf().fit(own).covariance_,
                "diagonal": np.diag(np.diag(full)),
            }
            np.testing.assert_allclose(found, expected[covariance], atol=1e-9)
        assert not len(sent["low"])
        assert not len(sent["concentration"])


def test_clusters_with_fewer_rows_than_columns_have_a_low_rank():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(5, 30)), 50 + rng.normal(size=(4, 30))])
    sent = sent_by(rows, k=2, min_shape=4)
    assert sorted(sent["ranks"]) == [3, 4]
    assert len(sent["factors"]) == 7


def test_clusters_below_min_shape_are_described_by_their_mean_alone():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(12, 3)), 50 + rng.normal(size=(9, 3))])
    sent = sent_by(rows, k=2, boxes=True)
    small = int(sent["counts"].argmin())
    assert sent["ranks"].tolist() == [0 if r == small else 3 for r in range(2)]
    np.testing.assert_array_equal(sent["low"][small], sent["centroids"][small])
    with pytest.raises(UserError, match="min_shape must be an integer of at least 3"):
        ProxyExecutor(2, min_shape=2)


def test_sums_of_all_rows_less_the_covariances_do_not_tell_a_small_cluster():
    """With the sums of the description, the variances of a cluster without a covariance are what the others leave."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(40, 3)), 50 + rng.normal(size=(20, 3)), 100 + rng.normal(size=(4, 3))])
    plain, told = (sent_by(rows, k=3, standardize=s) for s in (False, True))
    by_size = plain["counts"].argsort()
    assert (plain["ranks"][by_size] > 0).tolist() == [False, True, True]
    assert (told["ranks"][told["counts"].argsort()] > 0).tolist() == [False, False, True]


@pytest.mark.parametrize("covariance", ["mle", "diagonal", "ledoit-wolf"])
def test_a_flag_that_one_row_has_does_not_tell_the_row(covariance):
    """Mean plus n times its covariances with a column in which it alone differs is a row."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(50, 10, 200), rng.normal(100, 30, 200), np.zeros(200)])
    rows[17, 2] = 1.0
    sent = sent_by(rows, k=1, covariance=covariance)
    cov = sent["factors"].T @ sent["factors"]
    found = sent["centroids"][0] + 200 * cov[2]
    assert np.abs(found[:2] - rows[17, :2]).max() > 1
    if covariance != "ledoit-wolf":  # which gives every column some variance
        assert not cov[2].any()
    rows[:3, 2] = 1.0  # four rows, which the covariances tell the mean of
    assert sent_by(rows, k=1, covariance=covariance)["factors"][:, 2].any()


def test_two_different_rows_send_no_covariance():
    far = np.array([[100.0, 0.0, 3.0], [101.0, 1.0, 1.0]])
    crowd = np.random.default_rng(0).normal(size=(40, 3))
    for pair in (far, far[[0, 1, 1, 0, 1]]):
        for params in ({}, {"covariance": "ledoit-wolf"}, {"covariance": "diagonal"}, {"boxes": True}):
            sent = sent_by(np.concatenate([crowd, pair]), k=2, **params)
            small = int(sent["counts"].argmin())
            assert sent["counts"][small] == len(pair)
            assert sent["ranks"][small] == 0
            assert sent["ranks"][1 - small] == 3
            if "boxes" in params:
                np.testing.assert_array_equal(sent["low"][small], sent["centroids"][small])
                np.testing.assert_array_equal(sent["high"][small], sent["centroids"][small])


def test_a_deviation_that_is_a_row_by_chance_is_not_sent():
    far = 100 + np.array([-7.0, -1, 1, 7])  # deviation 5
    for value, rank in ((5.0, 0), (5.2, 1)):
        rows = np.concatenate([far, [3, 4.5, value, 8]])[:, None]
        sent = sent_by(rows, k=2, min_shape=3)
        assert sent["ranks"][sent["centroids"][:, 0] == 100].tolist() == [rank]


def test_without_boxes_bounds_are_not_even_computed():
    rows = two_clusters()[:20]
    pdf = fit_pdf(rows, rows.mean(axis=0), "gaussian", "mle")
    np.testing.assert_array_equal(pdf.low, pdf.mean)
    np.testing.assert_array_equal(pdf.high, pdf.mean)


def test_boxes_hold_the_rows_and_no_corner_is_a_value():
    rows = two_clusters()
    sent = sent_by(rows, k=2, boxes=True)
    labels = ((rows[:, None] - sent["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
    for r in range(2):
        own = rows[labels == r]
        assert (sent["low"][r] < own.min(axis=0)).all()
        assert (sent["high"][r] > own.max(axis=0)).all()
        assert (sent["high"][r] - sent["low"][r] < 1.1 * np.ptp(own, axis=0)).all()


whole_rows = st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=25)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=whole_rows,
    columns=st.integers(1, 2),
    k=st.integers(1, 4),
    min_count=st.integers(1, 4),
    covariance=st.sampled_from(["mle", "ledoit-wolf", "diagonal"]),
    boxes=st.booleans(),
)
def test_nothing_sent_is_a_row_however_odd_the_rows(rows, columns, k, min_count, covariance, boxes):
    rows = np.array(rows, dtype=float)[:, :columns]
    sent = sent_by(rows, k, min_count, covariance=covariance, boxes=boxes, n_init=1)
    if sent is None:
        return
    assert (sent["counts"] >= min_count).all()
    for name in ("centroids", "factors", "low", "high"):
        gaps = np.abs(sent[name][:, None] - rows[None]).max(axis=2)
        assert gaps.min(initial=np.inf) > 1e-12, name
    for found, centroid in zip(covariances(sent), sent["centroids"], strict=True):
        own = rows[
            ((rows[:, None] - sent["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
            == np.flatnonzero((sent["centroids"] == centroid).all(axis=1))[0]
        ]
        if found.any():
            assert len(np.unique(own, axis=0)) >= 3


def test_different_rows_are_counted():
    rows = np.array([[0.0, 1], [0, 1], [0, 2], [0, 1], [1, 1]])
    assert several(rows, 3)
    assert not several(rows, 4)
    assert not several(rows[:4], 3)
    assert several(rows[:1], 1)
    assert not several(rows[:0], 1)


# ---- shares ----


def shares(owned, alphas, per_cluster=60, seed=0):
    rng = np.random.default_rng(seed)
    sites, classes = {}, {}
    for site, places in owned.items():
        classes[site] = np.repeat(np.arange(len(alphas)), per_cluster)
        rows = np.concatenate([rng.dirichlet(alpha[list(places)], size=per_cluster) for alpha in alphas])
        sites[site] = Table(rows, names(places))
    return sites, classes


ALPHAS = np.array([[60.0, 5, 60, 5, 60, 5], [5, 60, 5, 60, 5, 60]])


def test_shares_of_a_whole_are_clustered_by_their_dirichlet_distributions():
    sites, classes = shares({"a": (0, 1, 2, 3), "b": (2, 3, 4, 5), "c": (4, 5, 0, 1)}, ALPHAS)
    outcome = run(sites, k=2, distribution="dirichlet")
    assert agreement(outcome, classes) == 1.0


def test_a_dirichlet_distribution_travels_as_mean_and_concentration():
    rows = np.random.default_rng(0).dirichlet([20.0, 10.0, 30.0], size=4000)
    sent = sent_by(rows, k=1, distribution="dirichlet")
    np.testing.assert_allclose(sent["concentration"][:, None] * sent["centroids"], [[20, 10, 30]], rtol=0.05)
    assert not len(sent["factors"])
    np.testing.assert_allclose(sent["centroids"].sum(), 1.0)


def test_rows_that_are_no_shares_are_refused():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), size=50)
    executor = ProxyExecutor(2, distribution="dirichlet")
    for bad in (2 * rows, rows - [0.5, -0.25, -0.25], np.where(np.arange(50)[:, None] == 7, 1.01 * rows, rows)):
        with pytest.raises(Refusal, match="not shares of a whole"):
            executor.answer(Task(CLUSTER, 0, {}, "site-1"), bad, never_abort)
    assert executor.answer(Task(CLUSTER, 0, {}, "site-1"), rows, never_abort).arrays["counts"].sum() == 50


def test_two_different_shares_send_no_concentration():
    pair = np.array([[0.9, 0.1], [0.8, 0.2], [0.8, 0.2]])
    pdf = fit_pdf(pair, pair.mean(axis=0), "dirichlet", "mle")
    assert pdf.concentration == 0
    np.testing.assert_array_equal(pdf.mean, pair.mean(axis=0))


# ---- settings, trouble ----


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"distribution": "gausian"}, "distribution must be one of gaussian, dirichlet.*did you mean 'gaussian'"),
        ({"covariance": "ledoit_wolf"}, "covariance must be one of .*did you mean 'ledoit-wolf'"),
        ({"boxes": "yes"}, "boxes must be true or false"),
        ({"clusterer": "kmean"}, "clusterer must be one of .*did you mean 'kmeans'"),
        ({"k_local": 0}, "k_local must be an integer of at least 1"),
        ({"k_local": "auto"}, 'k_local must be an integer, "silhouette"'),
        ({"n_init": 0}, "n_init must be an integer of at least 1"),
        ({"w": 1}, "w must be a number above 1 and at most 20, got 1"),
        ({"w": 1.0}, "w must be a number above 1"),
        ({"w": float("inf")}, "w must be a number above 1"),
        ({"w": float("nan")}, "w must be a number above 1"),
        ({"w": "2"}, "w must be a number above 1"),
        ({"w": 21}, "w must be a number above 1 and at most 20"),
        ({"w": True}, "w must be a number above 1"),
        ({"choose_k": 1}, "choose_k must be true or false"),
        ({"phi": "manhattan"}, "phi must be one of euclidean, cosine"),
        ({"standardize": 1}, "standardize must be true or false"),
        ({"distribution": "dirichlet", "standardize": True}, "standardize=true does not go with"),
        ({"distribution": "dirichlet", "boxes": True}, "boxes=true does not go with"),
        ({"box": True}, "no parameter 'box'.*did you mean 'boxes'"),
    ],
)
def test_bad_settings_are_refused(params, told):
    with pytest.raises(UserError, match=told):
        get("proxy").build(3, 0, params)


def test_settings_for_sites_that_are_not_there_are_named(caplog):
    with caplog.at_level(logging.WARNING):
        ProxyExecutor(3, k_local={"nort": 2}, clusterer={"west": "kmedoids"}).check_sites(["north", "south"])
    assert "k_local names 'nort' (did you mean 'north'?)" in caplog.text
    assert "clusterer names 'west'" in caplog.text


def test_sites_may_cluster_in_their_own_ways():
    sites, classes = tables(CHAIN, far_apart(3, 6))
    outcome = run(sites, k=3, clusterer={"a": "agglomerative", "b": "kmedoids"}, k_local={"a": "silhouette"})
    assert agreement(outcome, classes) == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": np.array([1, 1])},
        {"ranks": np.array([2, 3])},
        {"ranks": np.array([5, 0])},
        {"concentration": np.array([1.0])},
        {"low": np.zeros((1, 2)), "high": np.zeros((1, 2))},
        {"low": np.ones((2, 2)), "high": np.zeros((2, 2))},
    ],
)
def test_a_reply_that_contradicts_itself_is_a_bad_message(change):
    good = described([[0.0, 0.0], [9.0, 9.0]], [10, 10])
    ProxyExecutor.reply.check(good)
    with pytest.raises(BadMessage):
        ProxyExecutor.reply.check(good | change)


def test_ranks_that_overflow_are_a_bad_message():
    reply = described(np.zeros((4, 2)), [10] * 4, spread=0.0)
    with pytest.raises(BadMessage, match="ranks"):
        ProxyExecutor.reply.check(reply | {"ranks": np.full(4, 2**62)})


def test_a_reply_without_clusters_is_a_bad_message():
    empty = {name: value[:0] for name, value in described([[0.0, 0.0]], [10]).items()}
    with pytest.raises(BadMessage, match="at least one cluster"):
        ProxyExecutor.reply.check(empty)


def test_a_site_stops_between_clusters_when_told():
    rows, asked = two_clusters(), []

    def later():
        asked.append(1)
        return len(asked) > calls - 1

    calls = 10**9
    ProxyExecutor(2, n_init=1).local(Task(CLUSTER, 0, {}, "a"), rows, np.random.default_rng(0), later)
    calls, asked = len(asked), []
    with pytest.raises(Aborted, match="after the distributions of"):
        ProxyExecutor(2, n_init=1).local(Task(CLUSTER, 0, {}, "a"), rows, np.random.default_rng(0), later)
