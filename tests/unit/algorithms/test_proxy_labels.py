"""Proxy clusters: rows get the labels of the merged clusters, late sites included."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.executors.kfed import site_number
from flareclust.executors.local_clusters import local_clusters
from flareclust.executors.proxy import ProxyExecutor
from flareclust.protocol.registry import get
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.task import Task
from tests.unit.algorithms.different_columns_cases import CHAIN, far_apart, in_order, run, tables, two_clusters


def site_rows(X):
    return SiteRows(Table(X), np.random.default_rng(0))


def result_for(executor, rows, group, site="site-1", owner="site-1"):
    """Return a task with a result in which the site's clusters went to `group`."""
    sent = local_clusters(executor.params, "site-1", site_rows(rows))
    arrays = {
        "centroids": sent.centroids.copy(),
        "group": np.array([5, *group, 5]),
        "group_site": np.array([1, *[site_number(owner)] * len(group), 2]),
    }
    return Task("assess", 1, arrays, site), sent


def test_rows_go_where_their_local_cluster_went():
    rows, executor = two_clusters(), ProxyExecutor(2)
    for group in ([0, 1], [1, 0], [1, 1]):
        task, sent = result_for(executor, rows, group)
        found = executor.labels(task, site_rows(rows))
        np.testing.assert_array_equal(found, np.array(group)[sent.labels])


@pytest.mark.parametrize("group", [[0, 1], [1, 0]])
def test_rows_of_clusters_that_stayed_and_of_late_sites_go_to_the_nearest_centroid(group, caplog):
    rows = np.concatenate([two_clusters(), [[31.0, 90.0]]])
    executor = ProxyExecutor(3)
    task, sent = result_for(executor, rows, group)
    assert sent.labels[-1] == -1  # a cluster of one row is not sent
    found = executor.labels(task, site_rows(rows))
    nearest = ((rows[:, None] - task.arrays["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
    assert found[-1] == nearest[-1]
    np.testing.assert_array_equal(found[:-1], np.array(group)[nearest[:-1]])
    late, _ = result_for(executor, rows, group, site="late")
    np.testing.assert_array_equal(executor.labels(late, site_rows(rows)), nearest)
    assert not caplog.text


@pytest.mark.parametrize("scale", ["none", "standard", "robust"])
def test_a_late_site_with_some_of_the_columns_finds_its_clusters(scale):
    centers = far_apart(3, 6)
    sites, _ = tables(CHAIN, centers)
    outcome = run("proxy", sites, k=3, scale=scale)
    executor, _ = get("proxy").build(3, 0, {"scale": scale})
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
    found = executor.labels(task, site_rows(rows))
    np.testing.assert_array_equal(found, sent.labels)  # the nearest centroid
    assert "3 clusters were merged where 2 were sent" in caplog.text


def test_the_labels_of_a_run_are_those_of_the_merged_local_clusters():
    sites, _ = tables(CHAIN, far_apart(3, 6), seed=5)
    outcome = run("proxy", sites, k=2, k_local=3, seed=1)  # two of the three are joined
    for number, (site, table) in enumerate(sites.items()):
        own = outcome.arrays["received_group"][outcome.arrays["received_site"] == number]
        where = [outcome.arrays["column_names"].tolist().index(name) for name in table.columns]
        centers = outcome.arrays["received_centroids"][outcome.arrays["received_site"] == number][:, where]
        local = ((table.X[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
        np.testing.assert_array_equal(outcome.labels[site], own[local])
