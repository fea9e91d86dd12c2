"""Small local clusters that join others, so that all rows of a site are included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flareclust
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import never_abort
from flareclust.core.lloyd import Clustering, cluster_statistics
from flareclust.core.local import dissolve_small, local_clusters
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from tests.computed import computed

WITH_THE_SETTING = ("pooled", "feca", "kfed", "mavg")


def clustering(X, labels):
    counts = np.bincount(labels)
    means = np.stack([X[labels == r].mean(axis=0) for r in range(len(counts))])
    return Clustering(means, labels, counts, float(((X - means[labels]) ** 2).sum()), 1)


def test_the_smallest_goes_first_and_joins_the_nearest_by_hand():
    """Clusters at 0 (5 rows), 10 (1), 12 (2), 30 (4), at least 3 rows: 10 joins 12, and then they are 3 rows."""
    X = np.repeat([0.0, 10.0, 12.0, 30.0], [5, 1, 2, 4])[:, None]
    found = dissolve_small(X, clustering(X, np.repeat([0, 1, 2, 3], [5, 1, 2, 4])), 3)
    np.testing.assert_allclose(found.centroids.ravel(), [0, (10 + 12 * 2) / 3, 30])
    assert found.counts.tolist() == [5, 3, 4]
    assert found.labels.tolist() == [0] * 5 + [1] * 3 + [2] * 4
    sse = cluster_statistics(X, found.labels, found.centroids).sse
    assert sse.sum() == pytest.approx(1 * (4 / 3) ** 2 + 2 * (2 / 3) ** 2)


def test_a_joint_cluster_that_is_still_too_small_goes_on():
    """10 and 12 have 3 rows of the 4 that are asked for; their mean is nearer to 0 than to 30."""
    X = np.repeat([0.0, 10.0, 12.0, 30.0], [5, 1, 2, 4])[:, None]
    found = dissolve_small(X, clustering(X, np.repeat([0, 1, 2, 3], [5, 1, 2, 4])), 4)
    np.testing.assert_allclose(found.centroids.ravel(), [34 / 8, 30])
    assert found.counts.tolist() == [8, 4]


def test_nothing_changes_where_no_cluster_is_too_small(rng):
    X = rng.normal(size=(20, 2))
    before = clustering(X, np.arange(20) % 4)
    assert dissolve_small(X, before, 5) is before


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    floor=st.integers(1, 30),
    d=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_all_rows_are_in_groups_of_the_floor(sizes, floor, d, seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.normal(size=(len(labels), d)) + 5 * rng.normal(size=(len(sizes), d))[labels]
    found = dissolve_small(X, clustering(X, labels), floor)
    assert found.counts.sum() == len(X)
    assert found.counts.min() >= min(floor, len(X))
    np.testing.assert_array_equal(found.counts, np.bincount(found.labels, minlength=len(found.counts)))
    expected = clustering(X, found.labels)
    np.testing.assert_allclose(found.centroids, expected.centroids, atol=1e-9)
    sse = cluster_statistics(X, found.labels, found.centroids).sse
    assert sse.sum() == pytest.approx(expected.inertia, abs=1e-9)
    for group in np.unique(labels):  # clusters join whole
        assert len(np.unique(found.labels[labels == group])) == 1


@given(n=st.integers(3, 60), k=st.integers(1, 12), floor=st.integers(2, 8), seed=st.integers(0, 2**32 - 1))
def test_local_clusters_tell_of_all_rows(n, k, floor, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(n + floor, 2))
    found = local_clusters(X, k, rng, n_init=1, min_count=floor, aborted=never_abort, small_clusters="dissolve")
    assert found.counts.sum() == len(X)
    assert found.counts.min() >= floor
    assert (found.labels >= 0).all()


def test_what_is_left_is_still_withheld_where_it_would_be_a_row():
    """The mean of three rows is one of them, so their cluster is large enough, and stays."""
    X = np.concatenate([[[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], 50 + np.random.default_rng(0).normal(size=(20, 2))])
    found = local_clusters(
        X, 2, np.random.default_rng(0), n_init=3, min_count=3, aborted=never_abort, small_clusters="dissolve"
    )
    assert found.counts.tolist() == [20]


# ---- the algorithms ----


def site(seed=0):
    """Two clusters of thirty rows, and two rows of their own far away."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(30, 2)), 40 + rng.normal(size=(30, 2)), [[200.0, 0.0], [201.0, 1.5]]])


def sent(name, **params):
    executor, _ = get(name).build(3, 0, {"min_count": 5, **params})
    return computed(executor, Task(StepName.CLUSTER, 0, {}, "a"), site(), np.random.default_rng(0), never_abort)


@pytest.mark.parametrize("name", WITH_THE_SETTING)
def test_the_setting_decides_about_small_clusters(name):
    more = {"k_local": 3} if name == "kfed" else {}
    withheld = sent(name, **more)["centroids"]
    assert withheld.max() < 45
    dissolved = sent(name, small_clusters="dissolve", **more)
    assert dissolved["centroids"].max() > 45
    X = site()
    moved = np.stack([X[:30].mean(axis=0), X[30:].mean(axis=0)])
    found = dissolved["centroids"][dissolved["centroids"][:, 0].argsort()]
    np.testing.assert_allclose(found, moved, atol=1e-9)
    if "counts" in dissolved:
        assert dissolved["counts"].sum() == len(X)


@pytest.mark.parametrize("name", WITH_THE_SETTING)
def test_the_setting_is_withhold_unless_set(name):
    assert get(name).parameters()["small_clusters"] == "withhold"
    with pytest.raises(UserError, match="small_clusters"):
        get(name).build(3, 0, {"small_clusters": "merge"})


def test_rows_of_dissolved_clusters_get_the_labels_of_their_new_clusters():
    sites = {"a": site(), "b": site(1), "c": site(2)}
    result = flareclust.run("kfed", sites, k=3, k_local=3, min_count=5, small_clusters="dissolve")
    for labels in result.labels.reshape(3, -1):
        assert len(np.unique(labels[30:])) == 1
        assert labels[0] != labels[30]


def test_the_job_that_selects_k_follows_the_setting():
    sites = {
        name: np.repeat(site(i), 4, axis=0) + np.random.default_rng(i).normal(size=(248, 2))
        for i, name in enumerate("abc")
    }
    counts = [
        flareclust.run("pooled", sites, k="2..6", min_count=20, small_clusters=how).arrays["received_counts"].sum()
        for how in ("withhold", "dissolve")
    ]
    assert counts[0] < counts[1] == 3 * 248
