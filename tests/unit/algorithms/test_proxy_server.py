"""The server of proxy clusters against a slow literal twin, by hand, and with messages that contradict themselves."""

from itertools import product
from math import sqrt

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust.aggregators.proxy import ProxyAggregator, _generate_proxy_clusters, attract, merge
from flareclust.core.agglomeration import cut
from flareclust.executors.kfed import site_number
from flareclust.executors.proxy import ProxyExecutor
from flareclust.protocol.columns import Columns
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName
from tests.unit.algorithms.different_columns_cases import CHAIN, far_apart, names, run, tables


def columns_of(owned, D):
    masks = np.array([[j in places for j in range(D)] for places in owned.values()])
    return Columns(codes=np.arange(D), names=tuple(names(range(D))), sites=tuple(owned), masks=masks)


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
    points, cluster = _generate_proxy_clusters(columns, replies, np.random.default_rng(seed))
    G, forces = twin_server([points[cluster == a] for a in range(cluster.max() + 1)], w, k)

    round_ = ProxyAggregator(k, w=w).merge(Round(columns=columns), replies, np.random.default_rng(seed))

    group = round_.task["group"]
    assert sorted(map(sorted, G)) == sorted(np.flatnonzero(group == r).tolist() for r in range(k))
    np.testing.assert_allclose(round_.state.tree_force[: len(forces)], forces, rtol=1e-9)
    assert round_.diagnostics["force_merged"] == pytest.approx(min(forces))
    centroids = np.concatenate([columns.spread(site, reply["centroids"]) for site, reply in replies.items()])
    counts = np.concatenate([reply["counts"] for reply in replies.values()])
    for r in range(k):  # equation 4, entry by entry
        members = np.flatnonzero(group == r)
        assert round_.state.counts[r] == counts[members].sum()
        for j in range(4):
            own = [a for a in members if not np.isnan(centroids[a, j])]
            value = sum(counts[a] * centroids[a, j] for a in own) / sum(counts[a] for a in own) if own else np.nan
            np.testing.assert_allclose(round_.task["centroids"][r, j], value, rtol=1e-12)


def test_the_result_says_whose_clusters_went_where():
    columns, replies = a_federation(0)
    round_ = ProxyAggregator(3).merge(Round(columns=columns), replies, np.random.default_rng(0))
    assert round_.done
    assert round_.state.received_site.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert round_.task["group_site"].tolist() == [site_number(s) for s in "aaabbbccdd"]
    np.testing.assert_array_equal(round_.state.received_group, round_.task["group"])
    np.testing.assert_array_equal(round_.state.received_centroids[8, 1:3], [np.nan, np.nan])


def test_proxy_clusters_have_the_papers_sizes_and_their_sites_columns():
    owned = {"a": (0, 2), "b": (1, 2)}
    replies = {"a": described([[0, 0], [90, 90], [50, 50]], [2, 64, 5000]), "b": described([[7, 8]], [31])}
    points, cluster = _generate_proxy_clusters(columns_of(owned, 3), replies, np.random.default_rng(0))
    assert np.bincount(cluster).tolist() == [30, 64, 100, 31]
    assert np.isnan(points[cluster < 3, 1]).all()
    assert np.isnan(points[cluster == 3, 0]).all()
    assert not np.isnan(points[cluster == 3][:, 1:]).any()
    np.testing.assert_allclose(points[cluster == 2][:, [0, 2]].mean(axis=0), [50, 50], atol=0.5)
    np.testing.assert_allclose(points[cluster == 2][:, [0, 2]].std(axis=0), [1, 1], atol=0.3)


def test_a_cluster_without_spread_has_its_mean_as_every_proxy_point():
    replies = {"a": described([[3.0, 4.0]], [2], spread=0.0)}
    points, _ = _generate_proxy_clusters(columns_of({"a": (0, 1)}, 2), replies, np.random.default_rng(0))
    np.testing.assert_array_equal(points, np.tile([3.0, 4.0], (30, 1)))


def test_each_cluster_has_the_rows_of_the_factors_that_its_rank_says():
    reply = described([[0.0, 0.0], [9.0, 9.0], [50.0, 50.0]], [100, 100, 100], spread=0.0)
    reply |= {"factors": np.array([[1.0, 0.0], [0.0, 2.0], [4.0, 4.0]]), "ranks": np.array([2, 0, 1])}
    points, cluster = _generate_proxy_clusters(columns_of({"a": (0, 1)}, 2), {"a": reply}, np.random.default_rng(0))
    np.testing.assert_allclose(points[cluster == 0].std(axis=0), [1, 2], rtol=0.25)
    assert (points[cluster == 1] == 9.0).all()
    np.testing.assert_allclose(points[cluster == 2].std(axis=0), [4, 4], rtol=0.25)
    np.testing.assert_allclose(points[cluster == 2][:, 0], points[cluster == 2][:, 1])


def test_proxy_points_stay_in_the_boxes_that_were_sent():
    reply = described([[0.0, 0.0]], [100], spread=5.0) | {
        "low": np.array([[-1.0, -2.0]]),
        "high": np.array([[1.0, 3.0]]),
    }
    points, _ = _generate_proxy_clusters(columns_of({"a": (0, 1)}, 2), {"a": reply}, np.random.default_rng(0))
    assert (points >= [-1, -2]).all()
    assert (points <= [1, 3]).all()
    assert points.std(axis=0).min() > 0.3


def test_proxy_points_of_shares_are_shares():
    reply = described([[0.2, 0.3, 0.5], [0.5, 0.25, 0.25]], [100, 40], spread=0.0)
    reply["concentration"] = np.array([50.0, 0.0])
    points, cluster = _generate_proxy_clusters(columns_of({"a": (0, 1, 2)}, 3), {"a": reply}, np.random.default_rng(0))
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
        merged = server.merge(Round(columns=columns_of({"a": (0, 1)}, 2)), replies, np.random.default_rng(0))
        assert merged.task["group"].tolist() == group


def test_merged_centroids_weigh_by_rows_where_the_entry_is_known():
    centroids = np.array([[1.0, np.nan, 2.0], [4.0, 6.0, np.nan], [9.0, 9.0, 9.0]])
    found = merge(centroids, np.array([30, 10, 5]), np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [[(30 + 40) / 40, 6.0, 2.0], [9, 9, 9]])


def test_more_clusters_than_were_sent_fail_with_advice():
    sites, _ = tables(CHAIN, far_apart(3, 6))
    with pytest.raises(JobFailed, match=r"sent 6 clusters where k=7 are wanted; set a smaller k, a larger k_local"):
        run("proxy", sites, k=7, k_local=2)
    assert len(run("proxy", sites, k=7, k_local=2, choose_k=True).arrays["centroids"]) <= 6


def test_a_single_cluster_is_no_trouble():
    sites, classes = tables({"a": (0, 1)}, far_apart(1, 2))
    for choose_k in (False, True):
        outcome = run("proxy", sites, k=1, choose_k=choose_k)
        assert outcome.labels["a"].tolist() == [0] * len(classes["a"])
        assert outcome.arrays["tree_force"].shape == (0,)


def test_sets_that_cannot_be_compared_are_joined_last_and_counted(caplog):
    columns = columns_of({"a": (0,), "b": (1,)}, 2)
    replies = {"a": described([[0.0], [9.0]], [40, 40]), "b": described([[0.0], [9.0]], [40, 40])}
    merged = ProxyAggregator(1).merge(Round(columns=columns), replies, np.random.default_rng(0))
    assert merged.diagnostics["incomparable"] == 1
    assert "1 merges joined clusters of sites without a column in common" in caplog.text
    merged = ProxyAggregator(2).merge(Round(columns=columns), replies, np.random.default_rng(0))
    assert merged.task["group"].tolist() == [0, 0, 1, 1]
    assert merged.diagnostics["incomparable"] == 0
    assert "force_left" not in merged.diagnostics


# ---- settings, trouble ----


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": np.array([1, 1])},
        {"ranks": np.array([2, 3])},
        {"ranks": np.array([5, 0])},
        {"concentration": np.array([1.0])},
        {"concentration": np.array([0.5, 0.0])},  # of rows that are no shares
        {"low": np.zeros((1, 2)), "high": np.zeros((1, 2))},
        {"low": np.ones((2, 2)), "high": np.zeros((2, 2))},
    ],
)
def test_a_reply_that_contradicts_itself_is_a_bad_message(change):
    good = described([[0.0, 0.0], [9.0, 9.0]], [10, 10])
    ProxyExecutor.job_steps()[StepName.CLUSTER].schema.check(good)
    with pytest.raises(BadMessage):
        ProxyExecutor.job_steps()[StepName.CLUSTER].schema.check(good | change)


def test_ranks_that_overflow_are_a_bad_message():
    reply = described(np.zeros((4, 2)), [10] * 4, spread=0.0)
    with pytest.raises(BadMessage, match="ranks"):
        ProxyExecutor.job_steps()[StepName.CLUSTER].schema.check(reply | {"ranks": np.full(4, 2**62)})


def test_a_reply_without_clusters_is_a_bad_message():
    empty = {name: value[:0] for name, value in described([[0.0, 0.0]], [10]).items()}
    with pytest.raises(BadMessage, match="at least one cluster"):
        ProxyExecutor.job_steps()[StepName.CLUSTER].schema.check(empty)
