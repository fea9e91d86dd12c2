"""Algorithm 1 of Maritan and Schenato as a whole: clusters found, labels, settings."""

import logging

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.errors import Aborted, JobFailed
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.masked import MaskedAggregator
from flareclust.core.rounds import match
from flareclust.core.site_clusters import _CLUSTERERS_AT_SITES, site_clusters
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.local_clusters import local_clusters
from flareclust.executors.masked import UPDATE, MaskedExecutor
from flareclust.federation.site import answer
from flareclust.preparation import alignment
from flareclust.preparation.result import columns_of
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.unit.algorithms.masked_cases import by_name, run, truth, window_sites

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
    return truth(Round(columns=columns_of(found.arrays)), sites, true)


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
        again = local_clusters(executor.params, site, SiteRows(Table(X), stream(11, 0, site)))
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
        ours = computed(executor, Task(StepName.CLUSTER, 0, {}, site), data, stream(0, 0, site), never_abort)
        others = {
            name: site_clusters(data, 5, stream(0, 0, site), clusterer=name, min_count=2, aborted=never_abort).centroids
            for name in _CLUSTERERS_AT_SITES
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
    one, scaled = run(sites, 3, scale="standard"), run(other, 3, scale="standard")
    for site in sites:
        np.testing.assert_array_equal(one.labels[site], scaled.labels[site])
    for a, b in zip(by_name(one), by_name(scaled), strict=True):
        assert {n: v * units[n] + 5 for n, v in a.items()} == pytest.approx(b)
    y = np.concatenate([true[site] for site in sites])
    assert adjusted_rand_score(y, np.concatenate([scaled.labels[site] for site in sites])) == 1


def test_rows_belong_to_the_nearest_centroid_by_the_jobs_distance():
    data = np.array([[1.0, 0.1], [30.0, 40.0], [0.1, 9.0]])
    columns = alignment._codes_of(Table(data, columns=tuple("xy")))
    centroids = np.array([[9.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    task = Task(StepName.ASSESS, 3, {"centroids": centroids, "columns": columns}, "a")
    found = {
        phi: answer(MaskedExecutor(3, phi=phi), task, Table(data, columns=tuple("xy")), never_abort).labels.tolist()
        for phi in ("euclidean", "cosine")
    }
    assert found == {"euclidean": [1, 0, 2], "cosine": [0, 1, 2]}


def test_sites_with_the_same_columns_need_no_names(sites):
    found = run(sites, 4)
    assert found.arrays["mask"].all()
    assert str(found.arrays["method"]) == "B"
    assert min(len(np.unique(found.labels[site])) for site in sites) == 4


# ---- settings ----


def test_steps_up_to_one_are_taken():
    steps = (1e-9, 0.8, 1, 1.0)
    assert [get("masked").check(3, 0, {"alpha": alpha}).alpha for alpha in steps] == [1e-9, 0.8, 1.0, 1.0]


def test_sites_that_settings_name_wrongly_are_warned_of(caplog):
    sites, _, _ = window_sites(m=2, d=6, width=4)
    with caplog.at_level(logging.WARNING):
        run(sites, 3, k_local={"site1": 2}, clusterer={"site-9": "kmedoids", "site-0": "kmeans"}, rounds=0)
    reported = [record.getMessage() for record in caplog.records]
    assert reported == [
        "k_local names 'site1' (did you mean 'site-1'?), which is none of the sites",
        "clusterer names 'site-9' (did you mean 'site-1'?), which is none of the sites",
    ]


def test_refinement_stops_when_aborted():
    data = np.random.default_rng(0).normal(size=(40, 2))
    asked = iter([False, True])
    with pytest.raises(Aborted):
        MaskedExecutor(2).answer(Task(UPDATE, 1, {"centroids": data[:2]}, "a"), data, lambda: next(asked))


def test_the_default_settings_are_those_of_the_paper():
    aggregator = MaskedAggregator(2)
    assert (aggregator.params.alpha, aggregator.params.rounds, aggregator.params.phi) == (0.8, 3, "euclidean")
