"""What a site's own clusters leave, from their means and the spread of its rows."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from flareclust.preparation.alone import _enough_alone, _left_alone, better_off_alone
from flareclust.protocol.columns import Columns


def clusters_of(X, labels):
    numbers = np.unique(labels)
    means = np.stack([X[labels == r].mean(axis=0) for r in numbers])
    return means, np.array([(labels == r).sum() for r in numbers])


def left(X, labels):
    return sum(((X[labels == r] - X[labels == r].mean(axis=0)) ** 2).sum() for r in np.unique(labels))


@pytest.mark.parametrize("clusters", [1, 2, 3, 6, 9])
def test_merged_clusters_leave_what_wards_method_leaves(rng, clusters):
    X = rng.normal(size=(90, 3)) + 5 * rng.normal(size=(6, 3))[np.arange(90) % 6]
    labels = np.arange(90) % 6
    means, counts = clusters_of(X, labels)
    found = _left_alone(((X - X.mean(axis=0)) ** 2).sum(), means, counts, clusters)
    # Clusters of 15 rows each: Ward's linkage of their means merges the same ones.
    merged = fcluster(linkage(means, "ward"), min(clusters, 6), "maxclust")
    assert found == pytest.approx(left(X, merged[labels]))


def test_rows_of_clusters_that_were_not_sent_never_make_a_site_look_better(rng):
    X, labels = rng.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
    X[labels == 2] += 30
    means, counts = clusters_of(X[:40], labels[:40])
    assert _left_alone(((X - X.mean(axis=0)) ** 2).sum(), means, counts, 2) > left(X, labels)


def test_three_quarters_of_the_clusters_must_do():
    assert [_enough_alone(used) for used in (1, 2, 3, 4, 8, 20)] == [1, 1, 2, 3, 6, 15]


def named(X, labels, left, used, group=None):
    """Return the warnings of one site with these clusters, whose rows the federation's clusters in use leave so much."""
    means, counts = clusters_of(X, labels)
    columns = Columns(names=("x", "y"), sites=("north",), masks=np.ones((1, 2), dtype=bool))
    assessed = {"north": {"counts": np.ones(used, dtype=int), "sse": np.array(left)}}
    received = means, counts, np.zeros(len(means), dtype=int)
    spreads = np.array([((X - X.mean(axis=0)) ** 2).sum()])
    return better_off_alone(columns, spreads, received, assessed, None if group is None else np.array(group))


def halved(rng):
    """Return rows of two clusters, and three clusters of them: the second is cut in two halves along x."""
    X = rng.normal(size=(90, 2)) + np.repeat([[0.0, 0.0], [0.0, 9.0]], [30, 60], axis=0)
    return X, np.where(np.arange(90) < 30, 0, np.where(X[:, 0] < 0, 1, 2))


def test_a_site_whose_clusters_were_merged_with_one_another_is_named_where_rows_follow_them(rng):
    X, labels = halved(rng)
    apart = named(X, labels, 0.0, 2, [0, 0, 2])
    assert len(apart) == 1
    assert apart[0].startswith("north is better off alone: 3 clusters of its own were merged into 2, which loses ")
    means, counts = clusters_of(X, labels)
    lost = left(np.repeat(means[:2], counts[:2], axis=0), np.zeros(counts[:2].sum(), dtype=int)) / left(X, 0 * labels)
    assert f"loses {lost:.0%} of the spread of its rows; use masked" in apart[0]
    assert named(X, labels, 0.0, 2, [0, 2, 2]) == []  # the halves of one
    assert named(X, labels, 0.0, 2) == []  # rows go by the nearest centroid
    assert named(X, labels, 0.0, 2, [0, 0, 1]) == []  # more clusters at the site than in the federation: to be merged


def test_a_site_that_lacks_a_cluster_is_not_named_for_needing_one_less(rng):
    X, labels = halved(rng)
    assert named(X, labels, 1.1 * left(X, np.minimum(labels, 1)), 3) == []
    three = X + np.array([[0.0, 0.0], [-9.0, 0.0], [9.0, 0.0]])[labels]
    means, counts = clusters_of(three, labels)
    two = _left_alone(left(three, 0 * labels), means, counts, 2)
    assert len(named(three, labels, 1.1 * two, 3)) == 1
