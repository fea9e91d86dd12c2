"""Algorithm 1 of Maritan and Schenato against slow literal twins, by hand, and from a damaged start."""

import logging
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.errors import Aborted, JobFailed, Refusal, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.base import Round
from flareclust.aggregators.masked import MaskedAggregator, check_alpha, movement_of_known, step_towards
from flareclust.core.rounds import match
from flareclust.core.site_clusters import CLUSTERERS_AT_SITES, site_clusters
from flareclust.data import datasets
from flareclust.data.feature_partition import split_features
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.masked import UPDATE, MaskedExecutor, aligned, compatible
from flareclust.protocol.registry import get
from flareclust.protocol.task import CLUSTER, Task
from tests.examples import examples

NAN = float("nan")


def run(sites, k, seed=0, **params):
    return run_inprocess(get("masked"), params, sites, JobOptions(k=k, seed=seed))


def window_sites(k=3, m=4, d=9, width=5, n=40, seed=0, spread=1.0, scale=10.0):
    """Separated clusters at m sites; each sees a window of the columns c0 ... that overlaps the next site's.

    Returns the tables, the true cluster of each row, and the true centers (k, d).
    """
    rng = np.random.default_rng(seed)
    centers = scale * rng.normal(size=(k, d))
    tables, true = {}, {}
    for i, first in enumerate(np.linspace(0, d - width, m).round().astype(int)):
        own = range(first, first + width)
        y = rng.permutation(np.arange(n) % k)
        X = centers[y] + spread * rng.normal(size=(n, d))
        tables[f"site-{i}"] = Table(np.ascontiguousarray(X[:, own]), tuple(f"c{j}" for j in own))
        true[f"site-{i}"] = y
    return tables, true, centers


def line_table(names, *rows):
    return Table(np.array(rows, dtype=float), tuple(names))


def by_name(found):
    """The final centroids as a list of dicts by column; what is unknown is left out."""
    names = found.arrays["column_names"].tolist()
    return [{n: v for n, v in zip(names, row, strict=True) if not np.isnan(v)} for row in found.centroids.tolist()]


def exchange(executor, aggregator, round_, sites):
    """Ask all sites and merge; return the next round and what was sent."""
    replies = {}
    for site, rows in sites.items():
        task = Task(round_.step, round_.index, {name: a.copy() for name, a in round_.task.items()}, site)
        replies[site] = dict(executor.answer(task, rows, never_abort).arrays)
        replies[site].pop("seconds")
    return aggregator.advance(round_, replies), replies


def started(sites, k, seed=0, **params):
    """Return both sides and the round after the start."""
    executor, aggregator = get("masked").build(k, seed, params)
    round_ = aggregator.begin()
    for _ in ("describe", CLUSTER):
        round_, _ = exchange(executor, aggregator, round_, sites)
    return executor, aggregator, round_


def truth(round_, sites, true):
    """Return the best centroids (k, D), equation 1: of each entry the mean of the cluster's rows that observe it."""
    names = round_.record["column_names"].tolist()
    k = 1 + max(y.max() for y in true.values())
    best = np.full((k, len(names)), np.nan)
    for a in range(k):
        for j, name in enumerate(names):
            seen = [t.X[true[s] == a, t.columns.index(name)] for s, t in sites.items() if name in t.columns]
            best[a, j] = np.concatenate(seen).mean()
    return best


# ---- a literal twin of the federated phase ----


def twin_distance(x, y, S):
    """Equation 3 on dicts by column, over those that several of S know, or y alone if it knows no such; None without any."""
    several = {j for j in y if sum(j in s for s in S) > 1}
    common = sorted(set(x) & (several or set(y)))
    if not common:
        return None
    of = {j: [s[j] for s in S if j in s] for j in common}
    widest = sum((max(of[j]) - min(of[j])) ** 2 for j in common) ** 0.5
    assume(widest > 1e-6)
    return sum((x[j] - y[j]) ** 2 for j in common) ** 0.5 / widest


def twin_nearest(x, C, S):
    candidates = [(twin_distance(x, c, S), a) for a, c in enumerate(C)]
    candidates = [pair for pair in candidates if pair[0] is not None]
    return min(candidates)[1] if candidates else None


def twin_mean(rows):
    return {j: sum(x[j] for x in rows) / len(rows) for j in rows[0]}


def twin_site(X, columns, G_c, minimum, local_iter):
    """Lines 14-19 at a site: which global cluster gets which centroid, of how many rows."""
    own = [{j: c[j] for j in c if j in columns} for c in G_c]  # Omega_i G_c
    S = [twin_nearest(x, own, own) for x in X]
    C = []
    for a in range(len(own)):
        rows = [x for x, s in zip(X, S, strict=True) if s == a]
        if len(rows) >= minimum:
            C.append({**twin_mean(rows), **own[a]})
    if not C:
        return {}
    for _ in range(local_iter):
        groups = [[] for _ in C]
        for x in X:
            groups[min(range(len(C)), key=lambda c: (sum((x[j] - C[c][j]) ** 2 for j in x), c))].append(x)
        groups = [group for group in groups if group]
        C = [twin_mean(group) for group in groups]
    cost = [[twin_distance(c, g, own) for g in own] for c in C]
    best = min(
        permutations(range(len(own)), len(C)),
        key=lambda p: sum(1e9 if cost[c][g] is None else cost[c][g] + 1e-6 * cost[c][g] ** 2 for c, g in enumerate(p)),
    )
    sent = {}
    for c, g in enumerate(best):
        row_like = any(all(abs(x[j] - C[c][j]) < 1e-9 for j in x) for x in groups[c])
        if cost[c][g] is not None and len(groups[c]) >= minimum and not row_like:
            sent[g] = (C[c], len(groups[c]))
    return sent


def twin_server(G_c, sent, alpha):
    """Line 21 with equation 4, on what the sites sent."""
    new = []
    for a, old in enumerate(G_c):
        entries = dict(old)
        reported = [own[a] for own in sent if a in own]
        for j in sorted({j for c, _ in reported for j in c}):
            total = sum(rows for c, rows in reported if j in c)
            merged = sum(c[j] * rows for c, rows in reported if j in c) / total
            entries[j] = (1 - alpha) * old[j] + alpha * merged if j in old else merged
        new.append(entries)
    return new


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([1, 2, 4]), st.sampled_from([1.0, 0.8, 0.3]),
    st.integers(1, 4), st.floats(0, 0.5),
)  # fmt: skip
def test_the_federated_phase_is_its_literal_twin(seed, k, min_count, alpha, local_iter, unknown):
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c", "d"]
    sites = {}
    for i, own in enumerate((["b", "a"], ["b", "c"], ["c", "d", "a"])):
        X = rng.normal(size=(12, len(own))) + 3 * rng.integers(3, size=(12, 1))
        sites[f"site-{i}"] = Table(X, tuple(own))
    executor, aggregator, round_ = started(sites, k, min_count=1, alpha=alpha, local_iter=local_iter, rounds=9, tol=0)
    executor.min_count = min_count
    order = round_.record["column_names"].tolist()
    start = np.where(rng.random((k, 4)) < unknown, NAN, 2 * rng.normal(size=(k, 4)) + 3)
    round_ = replace(round_, task={**round_.task, "centroids": start})
    G_c = [{n: v for n, v in zip(order, row, strict=True) if not np.isnan(v)} for row in start.tolist()]
    for _ in range(2):
        sent = [
            twin_site(
                [dict(zip(t.columns, x, strict=True)) for x in t.X.tolist()],
                set(t.columns), G_c, max(2, min_count), local_iter,
            )
            for t in sites.values()
        ]  # fmt: skip
        G_c = twin_server(G_c, sent, alpha)
        round_, _ = exchange(executor, aggregator, round_, sites)
        expected = np.array([[c.get(name, NAN) for name in order] for c in G_c])
        np.testing.assert_allclose(round_.task["centroids"], expected, atol=1e-9)
    assert set(order) == set(names)


# ---- the start ----


@pytest.mark.parametrize("method", ["auto", "A", "B"])
def test_separated_clusters_are_found_from_windows_of_their_columns(method):
    sites, true, _ = window_sites(m=3, width=6)
    found = run(sites, 3, method=method)
    y, labels = (np.concatenate([of[site] for site in sites]) for of in (true, found.labels))
    assert adjusted_rand_score(y, labels) == 1
    assert found.arrays["mask"].all()
    assert (
        found.arrays["counts"].tolist()
        == np.bincount(y)[match(found.centroids, _means(found, sites, true))[1]].tolist()
    )


def _means(found, sites, true):
    return truth(Round(record=found.arrays), sites, true)


def test_final_centroids_are_the_best_ones_where_clusters_are_separated():
    sites, true, _ = window_sites(seed=3)
    found = run(sites, 3)
    best = _means(found, sites, true)
    own, of = match(found.centroids, best)
    np.testing.assert_allclose(found.centroids[own], best[of], atol=1e-9)


def test_the_method_follows_from_who_shares_columns():
    chain, _, _ = window_sites(m=4, d=9, width=4)
    assert str(run(chain, 3).arrays["method"]) == "A"
    complete, _, _ = window_sites(m=3, d=6, width=5)
    for forced, expected in (("auto", "B"), ("A", "A"), ("B", "B")):
        found = run(complete, 3, method=forced)
        assert str(found.arrays["method"]) == expected
        assert found.rounds[1]["diagnostics"]["method_b"] == (expected == "B")
        assert found.rounds[1]["diagnostics"]["assumption_2"] == 1
        assert len(str(found.arrays["verdict"])) > 20
    assert run(chain, 3).rounds[1]["diagnostics"]["assumption_2"] == 0
    assert run(chain, 3).rounds[1]["diagnostics"]["assumption_1"] == 1


def test_the_verdict_is_about_the_sites_that_answered():
    sites, _, _ = window_sites(m=4, d=9, width=4)
    ends_only = {site: sites[site] for site in ("site-0", "site-1")}
    sites["site-3"] = Table(sites["site-3"].X[:1], sites["site-3"].columns)  # one row: it refuses
    sites["site-2"] = Table(sites["site-2"].X[:1], sites["site-2"].columns)
    found = run_inprocess(get("masked"), {}, sites, JobOptions(k=3, min_sites=2))
    assert set(found.refused) == {"site-2", "site-3"}
    assert str(found.arrays["method"]) == str(run(ends_only, 3).arrays["method"]) == "B"
    numbers = found.arrays["column_sites"][found.arrays["received_site"]]
    assert set(numbers.tolist()) == {"site-0", "site-1"}


def test_more_clusters_than_all_sites_found_are_refused_with_advice():
    sites, _, _ = window_sites(m=2, d=6, width=4)
    for method in ("A", "B"):
        with pytest.raises(JobFailed, match="7"):
            run(sites, 7, k_local=3, method=method)


def test_a_local_cluster_that_nothing_can_be_compared_with_is_reported(caplog):
    rng = np.random.default_rng(0)

    def blob(*center):
        return np.array(center) + 0.1 * rng.normal(size=(10, len(center)))

    sites = {
        "a": Table(np.concatenate([blob(0, 0), blob(9, 9)]), ("p", "q")),
        "b": Table(blob(9, 9), ("q", "r")),
        "c": Table(np.concatenate([blob(0, 0), blob(9, 9)]), ("r", "s")),
    }
    with caplog.at_level(logging.WARNING):
        found = run(sites, 2, k_local={"b": 1}, method="A", rounds=0)
    assert found.rounds[1]["diagnostics"]["unassigned"] == 1
    assert sorted(found.arrays["received_group"].tolist()) == [-1, 0, 0, 0, 1] or (
        sorted(found.arrays["received_group"].tolist()) == [-1, 0, 1, 1, 1]
    )
    assert any("c: 1 of its clusters joined no group" in record.getMessage() for record in caplog.records)
    assert found.arrays["counts"].sum() == 40  # the ten rows of the cluster left out count nowhere


def test_what_was_received_can_be_repeated_at_the_site():
    sites, _, _ = window_sites(seed=5)
    params = {"k_local": {"site-1": 2, "site-3": "silhouette"}, "clusterer": {"site-2": "kmedoids"}}
    found = run(sites, 4, seed=11, **params)
    executor, _ = get("masked").build(4, 11, params)
    order = found.arrays["column_names"].tolist()
    for i, site in enumerate(found.arrays["column_sites"].tolist()):
        own = [sites[site].columns.index(name) for name in order if name in sites[site].columns]
        X = np.ascontiguousarray(sites[site].X[:, own])
        again = executor.local_clustering(site, X, stream(11, 0, site), never_abort)
        mine = found.arrays["received_site"] == i
        mask = found.arrays["column_masks"][i]
        np.testing.assert_array_equal(found.arrays["received_centroids"][mine][:, mask], again.centroids)
        assert np.isnan(found.arrays["received_centroids"][mine][:, ~mask]).all()
        np.testing.assert_array_equal(found.arrays["received_counts"][mine], again.counts)
    assert np.bincount(found.arrays["received_site"]).tolist() == [4, 2, 4, 3]


def test_every_site_uses_its_own_clusterer():
    data = np.random.default_rng(0).normal(size=(40, 3))
    executor = MaskedExecutor(5, clusterer={"a": "agglomerative", "b": "kmedoids"})
    for site, clusterer in (("a", "agglomerative"), ("b", "kmedoids"), ("c", "kmeans")):
        ours = executor.local(Task(CLUSTER, 0, {}, site), data, stream(0, 0, site), never_abort)
        others = {
            name: site_clusters(data, 5, stream(0, 0, site), clusterer=name, min_count=2, aborted=never_abort).centroids
            for name in CLUSTERERS_AT_SITES
        }
        same = [name for name, c in others.items() if np.array_equal(c, ours["centroids"])]
        assert same == [clusterer]


def test_the_number_of_local_clusters_is_found_by_the_silhouette():
    sites, true, _ = window_sites(k=5, m=4, d=12, width=8, n=50, seed=2)
    kept = {
        site: np.isin(true[site], present)
        for site, present in zip(sites, ([0, 1], [1, 2, 3], [2, 3, 4, 0], [0, 4]), strict=True)
    }
    some = {site: Table(table.X[kept[site]], table.columns) for site, table in sites.items()}
    found = run(some, 5, k_local="silhouette", method="A")
    assert np.bincount(found.arrays["received_site"]).tolist() == [2, 3, 4, 2]
    y = np.concatenate([true[site][kept[site]] for site in sites])
    assert adjusted_rand_score(y, np.concatenate([found.labels[site] for site in sites])) == 1


# ---- a damaged start ----


def relative_errors(sites, true, k, rounds, damage, **params):
    """Replace the start by the best centroids plus noise; return the relative error after it and after every round."""
    executor, aggregator, round_ = started(sites, k, rounds=rounds + 1, tol=0, **params)
    best = truth(round_, sites, true)
    noise = np.random.default_rng(0).normal(size=best.shape)
    damaged = best + damage * np.linalg.norm(best) / np.linalg.norm(noise) * noise
    round_ = replace(round_, task={**round_.task, "centroids": damaged})
    errors = []
    for left in range(rounds, -1, -1):
        errors.append(float(np.linalg.norm(round_.task["centroids"] - best) / np.linalg.norm(best)))
        if left:
            round_, _ = exchange(executor, aggregator, round_, sites)
    return np.array(errors)


@pytest.mark.parametrize("clusterer", CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0])
def test_a_damaged_start_heals_by_one_minus_alpha_per_round(alpha, clusterer):
    sites, true, _ = window_sites(k=3, m=5, d=20, width=8, n=60, seed=1)
    errors = relative_errors(sites, true, 3, 4, 0.3, alpha=alpha, clusterer=clusterer)
    assert errors[0] == pytest.approx(0.3)
    np.testing.assert_allclose(errors[1:], 0.3 * (1 - alpha) ** np.arange(1, 5), atol=1e-9)


def test_a_damaged_start_heals_with_cosine_distances_too():
    sites, true, _ = window_sites(k=3, m=5, d=20, width=8, n=60, seed=1)
    errors = relative_errors(sites, true, 3, 3, 0.3, phi="cosine")
    np.testing.assert_allclose(errors[1:], 0.3 * 0.2 ** np.arange(1, 4), atol=1e-9)


@pytest.mark.usefixtures("shared_data")
def test_a_damaged_start_heals_on_measured_activities():
    """Two activities, a site per subject, as the paper has them for its Assumption 2."""
    data = datasets.load("har")
    split = split_features("har-a2", data.X, data.y, 30, np.random.default_rng(0), data.owners)
    classes = np.unique(np.concatenate([data.y[rows] for rows in split.rows.values()]))
    sites, true = {}, {}
    for site, rows in split.rows.items():
        columns = split.columns[site]
        sites[site] = Table(np.ascontiguousarray(data.X[rows][:, columns]), tuple(f"f{j}" for j in columns))
        true[site] = np.searchsorted(classes, data.y[rows])
    errors = relative_errors(sites, true, 2, 3, 0.5)
    np.testing.assert_allclose(errors, [0.5, 0.1, 0.02, 0.0047], rtol=0.1)


# ---- unknown entries ----


def unknown_entry():
    """One of three clusters is at a site without column r only, so that its entry there is known to nobody."""
    rng = np.random.default_rng(0)

    def blob(*center):
        return np.array(center) + 0.1 * rng.normal(size=(12, len(center)))

    sites = {
        "a": Table(np.concatenate([blob(0, 0), blob(5, 5)]), ("p", "q")),
        "b": Table(np.concatenate([blob(5, 5), blob(9, 9)]), ("q", "r")),
        "c": Table(np.concatenate([blob(5, 5), blob(9, 9)]), ("p", "q")),
    }
    return sites


@pytest.mark.parametrize("method", ["A", "B"])
def test_entries_that_nobody_observes_stay_unknown(method):
    found = run(unknown_entry(), 3, k_local=2, method=method, tol=0)
    low = min(by_name(found), key=lambda c: c["q"])
    assert set(low) == {"p", "q"}
    assert sum(len(c) for c in by_name(found)) == 8
    np.testing.assert_array_equal(found.arrays["mask"], ~np.isnan(found.centroids))
    assert [r["diagnostics"]["unknown"] for r in found.rounds[1:-1]] == [1.0] * 4
    assert (np.isnan(found.arrays["history"]).sum(axis=(1, 2)) == 1).all()
    assert all(np.isfinite(value) for value in found.metrics.values() if value is not None)


def test_an_entry_that_becomes_known_takes_the_whole_value():
    sites = unknown_entry()
    _, aggregator, round_ = started(sites, 3, k_local=2, method="A", alpha=0.5)
    order = round_.record["column_names"].tolist()
    old = round_.task["centroids"]
    low = int(np.isnan(old).any(axis=1).argmax())
    q, r = order.index("q"), order.index("r")
    own = [name for name in order if name in ("q", "r")]
    reply = {
        "centroids": np.array([[{"q": 2.0, "r": 7.0}[n] for n in own]]),
        "counts": np.array([4]),
        "cluster": np.array([low]),
    }
    empty = {"centroids": np.empty((0, 2)), "counts": np.empty(0, int), "cluster": np.empty(0, int)}
    new = aggregator.advance(round_, {"a": empty, "b": reply, "c": empty})
    expected = old.copy()
    expected[low, r] = 7.0
    expected[low, q] = 0.5 * old[low, q] + 0.5 * 2.0
    np.testing.assert_allclose(new.task["centroids"], expected, atol=1e-12)  # all other entries are as they were
    assert "shift" not in new.diagnostics
    assert new.diagnostics["unknown"] == 0
    assert new.record["counts"][low] == 4
    assert not new.done


def test_a_step_goes_between_old_and_reported():
    old = np.array([[1.0, NAN, 1.0, NAN]])
    reported = np.array([[3.0, 3.0, NAN, NAN]])
    np.testing.assert_allclose(step_towards(old, reported, 0.75), [[2.5, 3.0, 1.0, NAN]])
    np.testing.assert_array_equal(step_towards(old, reported, 1.0), [[3.0, 3.0, 1.0, NAN]])


def test_movement_is_measured_on_known_entries():
    old = np.array([[0.0, NAN], [4.0, 0.0]])
    new = np.array([[1.0, NAN], [4.0, 0.0]])
    # means 2.5 and 0: squared distances 2.25 and 2.25, so the spread is 1.5
    assert movement_of_known(old, new) == pytest.approx(1 / 1.5)
    assert movement_of_known(old, np.array([[0.0, 1.0], [4.0, 0.0]])) == float("inf")
    assert movement_of_known(np.array([[1.0]]), np.array([[3.0]])) == 2.0
    # 3 and 4 in two columns are a distance of 5; the spread of the new ones, (3, 4) and (0, 0), is 2.5
    assert movement_of_known(np.zeros((2, 2)), np.array([[3.0, 4.0], [0.0, 0.0]])) == pytest.approx(5 / 2.5)


# ---- the site's side by hand ----


def test_a_centroid_with_too_few_rows_is_not_compatible():
    data = np.array([[0.0, 0.0], [1, 0], [9, 9], [10, 9], [11, 9]])
    centroids = np.array([[0.4, 0.0], [10.0, NAN], [50, 50]])
    np.testing.assert_allclose(compatible(data, centroids, 2, "euclidean"), [[0.4, 0], [10, 9]])
    np.testing.assert_allclose(compatible(data, centroids, 3, "euclidean"), [[10, 9]])
    assert compatible(data, centroids, 4, "euclidean").shape == (0, 2)
    assert np.isnan(centroids[1, 1])  # what the server sent is left as it is


def test_alignment_adds_up_to_the_least_cost():
    centroids = np.array([[0.0], [4.0], [100.0]])
    # The nearest of both is 4; together they cost least as 0 and 4.
    assert aligned(np.array([[3.0], [5.0]]), centroids, "euclidean").tolist() == [0, 1]
    assert aligned(np.array([[5.0], [3.0]]), centroids, "euclidean").tolist() == [1, 0]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3, unique=True))
def test_alignment_keeps_the_order_in_a_single_column(numbers):
    """Sums of distances are equal where all of one side lie beyond all of the other: 5 + 2 and 1 + 6."""
    assert aligned(np.array([[5.0], [6.0]]), np.array([[0.0], [4.0]]), "euclidean").tolist() == [0, 1]
    assume(np.diff(np.sort(numbers)).min() > 1e-3)
    beyond = np.array(numbers)[:, None] + 200
    ranks = np.argsort(np.argsort(numbers)).tolist()
    assert aligned(beyond, np.array([[-60.0], [10.0], [60.0]]), "euclidean").tolist() == ranks


def test_what_cannot_be_compared_is_not_matched():
    centroids = np.array([[0.0, NAN], [NAN, NAN], [9.0, 1.0]])
    assert aligned(np.array([[1.0, 1], [8, 1]]), centroids, "euclidean").tolist() == [0, 2]
    assert sorted(aligned(np.array([[1.0, 1], [8, 1], [30, 1]]), centroids, "euclidean").tolist()) == [-1, 0, 2]


def test_a_site_without_a_cluster_that_it_may_send_sits_the_round_out():
    rows = np.array([[0.0], [10], [21]])
    reply = (
        MaskedExecutor(3)
        .answer(Task(UPDATE, 1, {"centroids": np.array([[1.0], [9], [21]])}, "b"), rows, never_abort)
        .arrays
    )
    assert (reply["centroids"].shape, reply["counts"].shape, reply["cluster"].shape) == ((0, 1), (0,), (0,))
    again = (
        MaskedExecutor(3)
        .answer(Task(UPDATE, 2, {"centroids": np.array([[4.0], [22], [90]])}, "b"), rows, never_abort)
        .arrays
    )
    assert again["counts"].tolist() == [3]
    assert again["cluster"].tolist() == [0]


def test_a_site_with_other_rows_than_any_known_entry_sits_out():
    reply = MaskedExecutor(2).answer(
        Task(UPDATE, 1, {"centroids": np.full((2, 1), NAN)}, "b"), np.array([[0.0], [1], [3]]), never_abort
    )
    assert reply.arrays["counts"].tolist() == []


def test_a_site_that_sits_out_leaves_the_round_to_the_others():
    sites, _, _ = window_sites(m=3)
    executor, aggregator, round_ = started(sites, 3)
    _, replies = exchange(executor, aggregator, round_, sites)
    d = replies["site-1"]["centroids"].shape[1]
    silent = {"centroids": np.empty((0, d)), "counts": np.empty(0, int), "cluster": np.empty(0, int)}
    beside = aggregator.advance(round_, replies | {"site-1": silent})
    without = aggregator.advance(round_, {s: replies[s] for s in ("site-0", "site-2")})
    np.testing.assert_array_equal(beside.task["centroids"], without.task["centroids"])
    nobody = aggregator.advance(round_, {"site-1": silent})
    np.testing.assert_array_equal(nobody.task["centroids"], round_.task["centroids"])
    np.testing.assert_array_equal(nobody.record["counts"], round_.record["counts"])
    assert nobody.done
    assert not beside.done


# ---- the whole ----


def test_it_ends_after_its_rounds_or_when_nothing_moves():
    sites, _, _ = window_sites(m=3)
    assert [run(sites, 3, rounds=r, tol=0).n_rounds for r in (0, 1, 4)] == [1, 2, 5]
    still = run(sites, 3, rounds=50)
    assert still.n_rounds < 20
    assert still.rounds[-2]["diagnostics"]["shift"] < 1e-4
    for r in (0, 4):
        assert run(sites, 3, rounds=r, tol=0).arrays["history"].shape == (r + 1, 3, 9)


def test_the_order_of_columns_and_of_sites_does_not_matter():
    sites, _, _ = window_sites(seed=4)
    shuffled = {}
    for site in reversed(sites):
        mix = np.random.default_rng(len(site)).permutation(len(sites[site].columns))
        names = tuple(np.array(sites[site].columns)[mix].tolist())
        shuffled[site] = Table(np.ascontiguousarray(sites[site].X[:, mix]), names)
    one, other = run(sites, 3), run(shuffled, 3)
    key = lambda c: c["c0"]
    for a, b in zip(sorted(by_name(one), key=key), sorted(by_name(other), key=key), strict=True):
        assert a == pytest.approx(b)


def test_standardised_columns_give_the_same_labels_in_any_unit():
    sites, true, _ = window_sites(seed=6, m=3, width=6)
    units = {f"c{j}": 10.0 ** (j - 4) for j in range(9)}
    other = {s: Table(t.X * [units[n] for n in t.columns] + 5, t.columns) for s, t in sites.items()}
    one, scaled = run(sites, 3, standardize=True), run(other, 3, standardize=True)
    for site in sites:
        np.testing.assert_array_equal(one.labels[site], scaled.labels[site])
    for a, b in zip(by_name(one), by_name(scaled), strict=True):
        assert {n: v * units[n] + 5 for n, v in a.items()} == pytest.approx(b)
    y = np.concatenate([true[site] for site in sites])
    assert adjusted_rand_score(y, np.concatenate([scaled.labels[site] for site in sites])) == 1


def test_rows_belong_to_the_nearest_centroid_by_the_jobs_distance():
    data = np.array([[1.0, 0.1], [30.0, 40.0], [0.1, 9.0]])
    task = Task("assess", 3, {"centroids": np.array([[9.0, 0.0], [1.0, 1.0], [0.0, 2.0]])}, "a")
    found = {
        phi: MaskedExecutor(3, phi=phi).labels(task, data, stream(0, 0, "a"), never_abort, data).tolist()
        for phi in ("euclidean", "cosine")
    }
    assert found == {"euclidean": [1, 0, 2], "cosine": [0, 1, 2]}


def test_sites_with_the_same_columns_need_no_names(sites):
    found = run(sites, 4)
    assert found.arrays["mask"].all()
    assert str(found.arrays["method"]) == "B"
    assert min(len(np.unique(found.labels[site])) for site in sites) == 4


# ---- privacy ----


@pytest.mark.parametrize("clusterer", CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("min_count", [1, 2, 5])
def test_no_row_and_no_small_cluster_is_sent_in_any_round(min_count, clusterer):
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(50, 2))
    for X in (
        np.concatenate([ordinary, 1e3 * np.eye(2)]),
        np.concatenate([ordinary, np.full((20, 2), 99.0)]),
        rng.integers(0, 6, size=(60, 2)).astype(float),
    ):
        sites = {"a": Table(X, ("p", "q")), "b": Table(rng.normal(size=(30, 2)), ("q", "r"))}
        executor, aggregator, round_ = started(sites, 6, min_count=min_count, clusterer=clusterer, rounds=9, tol=0)
        executor.answer(Task(CLUSTER, 0, {}, "a"), X, never_abort)
        for _ in range(5):
            round_, replies = exchange(executor, aggregator, round_, sites)
            sent = replies["a"]
            assert set(sent) == {"centroids", "counts", "cluster"}
            if len(sent["counts"]):
                assert np.abs(sent["centroids"][:, None] - X[None]).max(axis=2).min() > 1e-12
                assert sent["counts"].min() >= max(2, min_count)
            assert len(np.unique(sent["cluster"])) == len(sent["cluster"])


def test_a_site_with_too_few_rows_refuses():
    for step, arrays in ((CLUSTER, {}), (UPDATE, {"centroids": np.array([[1.0], [2.0]])})):
        with pytest.raises(Refusal, match="min_count=3"):
            MaskedExecutor(4, min_count=3).answer(Task(step, 0, arrays, "a"), np.array([[1.0], [2.0]]), never_abort)


# ---- settings ----


@pytest.mark.parametrize("alpha", [0, -0.1, 1.0001, NAN, float("inf"), "0.8", None, True])
def test_a_step_outside_of_zero_to_one_is_refused_with_advice(alpha):
    with pytest.raises(UserError, match="alpha must be a number above 0 and at most 1"):
        get("masked").build(3, 0, {"alpha": alpha})


def test_steps_up_to_one_are_taken():
    assert [check_alpha(alpha) for alpha in (1e-9, 0.8, 1, 1.0)] == [1e-9, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": "C"}, "method must be one of auto, A, B"),
        ({"rounds": -1}, "rounds must be an integer of at least 0"),
        ({"tol": -1}, "tol"),
        ({"phi": "cosin"}, "did you mean 'cosine'"),
        ({"clusterer": "k-means"}, "did you mean 'kmeans'"),
        ({"k_local": 4}, "more than k=3"),
        ({"k_local": {"site-1": "silhuette"}}, "did you mean 'silhouette'"),
        ({"n_init": 0}, "n_init"),
        ({"local_iter": 0}, "local_iter"),
        ({"min_count": 0}, "min_count"),
        ({"standardize": "yes"}, "standardize must be true or false"),
        ({"round": 3}, "did you mean 'rounds'"),
    ],
)
def test_wrong_settings_are_refused(wrong, said):
    with pytest.raises(UserError, match=said):
        get("masked").build(3, 0, wrong)


def test_sites_that_settings_name_wrongly_are_warned_of(caplog):
    sites, _, _ = window_sites(m=2, d=6, width=4)
    with caplog.at_level(logging.WARNING):
        run(sites, 3, k_local={"site1": 2}, clusterer={"site-9": "kmedoids", "site-0": "kmeans"}, rounds=0)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "k_local names 'site1' (did you mean 'site-1'?), which is none of the sites",
        "clusterer names 'site-9' (did you mean 'site-1'?), which is none of the sites",
    ]


def test_refinement_stops_when_told():
    data = np.random.default_rng(0).normal(size=(40, 2))
    asked = iter([False, True])
    with pytest.raises(Aborted):
        MaskedExecutor(2).answer(Task(UPDATE, 1, {"centroids": data[:2]}, "a"), data, lambda: next(asked))


def test_the_default_settings_are_those_of_the_paper():
    aggregator = MaskedAggregator(2)
    assert (aggregator.alpha, aggregator.rounds, aggregator.phi) == (0.8, 3, "euclidean")
