"""What a site's own clusters leave, from their means and the spread of its rows."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from flareclust.preparation.alone import _enough_alone, _left_alone


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
