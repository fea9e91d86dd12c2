"""Algorithm 1 of Maritan and Schenato as a whole: clusters found, labels, settings."""

import logging

import numpy as np
import pytest

from flareclust._foundation.errors import Aborted
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
from tests.unit.algorithms.different_columns_cases import run, truth, window_sites

# ---- the start ----


def _means(found, sites, true):
    return truth(Round(columns=columns_of(found.arrays)), sites, true)


def test_final_centroids_are_the_best_ones_where_clusters_are_separated():
    sites, true, _ = window_sites(seed=3)
    found = run("masked", sites, 3)
    best = _means(found, sites, true)
    own, of = match(found.centroids, best)
    np.testing.assert_allclose(found.centroids[own], best[of], atol=1e-9)


def test_the_method_follows_from_who_shares_columns():
    chain, _, _ = window_sites(m=4, d=9, width=4)
    assert str(run("masked", chain, 3).arrays["method"]) == "A"
    complete, _, _ = window_sites(m=3, d=6, width=5)
    for forced, expected in (("auto", "B"), ("A", "A"), ("B", "B")):
        found = run("masked", complete, 3, method=forced)
        assert str(found.arrays["method"]) == expected
        assert found.rounds[1]["diagnostics"]["method_b"] == (expected == "B")
        assert found.rounds[1]["diagnostics"]["assumption_2"] == 1
        assert len(str(found.arrays["verdict"])) > 20
    assert run("masked", chain, 3).rounds[1]["diagnostics"]["assumption_2"] == 0
    assert run("masked", chain, 3).rounds[1]["diagnostics"]["assumption_1"] == 1


def test_the_verdict_is_about_the_sites_that_answered():
    sites, _, _ = window_sites(m=4, d=9, width=4)
    ends_only = {site: sites[site] for site in ("site-0", "site-1")}
    sites["site-3"] = Table(sites["site-3"].X[:1], sites["site-3"].columns)  # one row: it refuses
    sites["site-2"] = Table(sites["site-2"].X[:1], sites["site-2"].columns)
    found = run_inprocess(get("masked"), {}, sites, JobOptions(k=3, min_sites=2))
    assert set(found.refused) == {"site-2", "site-3"}
    assert str(found.arrays["method"]) == str(run("masked", ends_only, 3).arrays["method"]) == "B"
    numbers = found.arrays["column_sites"][found.arrays["received_site"]]
    assert set(numbers.tolist()) == {"site-0", "site-1"}


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
        found = run("masked", sites, 2, k_local={"b": 1}, method="A", rounds=0)
    assert found.rounds[1]["diagnostics"]["unassigned"] == 1
    assert sorted(found.arrays["received_group"].tolist()) == [-1, 0, 0, 0, 1] or (
        sorted(found.arrays["received_group"].tolist()) == [-1, 0, 1, 1, 1]
    )
    assert any("c: 1 of its clusters joined no group" in record.getMessage() for record in caplog.records)
    assert found.arrays["counts"].sum() == 40  # the ten rows of the cluster left out count nowhere


def test_what_was_received_can_be_repeated_at_the_site():
    sites, _, _ = window_sites(seed=5)
    params = {"k_local": {"site-1": 2, "site-3": "silhouette"}, "clusterer": {"site-2": "kmedoids"}}
    found = run("masked", sites, 4, seed=11, **params)
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


# ---- the whole ----


def test_it_ends_after_its_rounds_or_when_nothing_moves():
    sites, _, _ = window_sites(m=3)
    assert [run("masked", sites, 3, rounds=r, tol=0).n_rounds for r in (0, 1, 4)] == [1, 2, 5]
    still = run("masked", sites, 3, rounds=50)
    assert still.n_rounds < 20
    assert still.rounds[-2]["diagnostics"]["shift"] < 1e-4
    for r in (0, 4):
        assert run("masked", sites, 3, rounds=r, tol=0).arrays["history"].shape == (r + 1, 3, 9)


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


# ---- settings ----


def test_steps_up_to_one_are_taken():
    steps = (1e-9, 0.8, 1, 1.0)
    assert [get("masked").check(3, 0, {"alpha": alpha}).alpha for alpha in steps] == [1e-9, 0.8, 1.0, 1.0]


def test_refinement_stops_when_aborted():
    data = np.random.default_rng(0).normal(size=(40, 2))
    asked = iter([False, True])
    with pytest.raises(Aborted):
        MaskedExecutor(2).answer(Task(UPDATE, 1, {"centroids": data[:2]}, "a"), data, lambda: next(asked))


def test_the_default_settings_are_those_of_the_paper():
    aggregator = MaskedAggregator(2)
    assert (aggregator.params.alpha, aggregator.params.rounds, aggregator.params.phi) == (0.8, 3, "euclidean")
