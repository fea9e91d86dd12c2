"""The federated rounds of Algorithm 1 against slow literal twins, from a damaged start, and with unknown entries."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust.aggregators.masked import _movement_of_known, _step_towards
from flareclust.core.site_clusters import _CLUSTERERS_AT_SITES
from flareclust.data import datasets
from flareclust.data.feature_partition import split_features
from flareclust.data.tables import Table
from flareclust.federation.server import ServerJob
from tests.examples import examples
from tests.unit.algorithms.different_columns_cases import NAN, by_name, exchange, run, started, truth, window_sites


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
    executor.params = executor.params.model_copy(update={"min_count": min_count})
    order = list(round_.columns.names)
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


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
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
    found = run("masked", unknown_entry(), 3, k_local=2, method=method, tol=0)
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
    order = list(round_.columns.names)
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
    new = ServerJob(aggregator).advance(round_, {"a": empty, "b": reply, "c": empty})
    expected = old.copy()
    expected[low, r] = 7.0
    expected[low, q] = 0.5 * old[low, q] + 0.5 * 2.0
    np.testing.assert_allclose(new.task["centroids"], expected, atol=1e-12)  # all other entries are as they were
    assert "shift" not in new.diagnostics
    assert new.diagnostics["unknown"] == 0
    assert new.state.counts[low] == 4
    assert not new.done


def test_a_step_goes_between_old_and_reported():
    old = np.array([[1.0, NAN, 1.0, NAN]])
    reported = np.array([[3.0, 3.0, NAN, NAN]])
    np.testing.assert_allclose(_step_towards(old, reported, 0.75), [[2.5, 3.0, 1.0, NAN]])
    np.testing.assert_array_equal(_step_towards(old, reported, 1.0), [[3.0, 3.0, 1.0, NAN]])


def test_movement_is_measured_on_known_entries():
    old = np.array([[0.0, NAN], [4.0, 0.0]])
    new = np.array([[1.0, NAN], [4.0, 0.0]])
    # means 2.5 and 0: squared distances 2.25 and 2.25, so the spread is 1.5
    assert _movement_of_known(old, new) == pytest.approx(1 / 1.5)
    assert _movement_of_known(old, np.array([[0.0, 1.0], [4.0, 0.0]])) == float("inf")
    assert _movement_of_known(np.array([[1.0]]), np.array([[3.0]])) == 2.0
    # 3 and 4 in two columns are a distance of 5; the spread of the new ones, (3, 4) and (0, 0), is 2.5
    assert _movement_of_known(np.zeros((2, 2)), np.array([[3.0, 4.0], [0.0, 0.0]])) == pytest.approx(5 / 2.5)
