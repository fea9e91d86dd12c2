"""FeCA against slow literal twins of its algorithms."""

from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.core.lloyd import cluster_statistics, kmeans
from flareclust.executors.feca import (
    FeCAExecutor,
    _theoretical_radii,
    empirical_radii,
    remove_one_fit_many,
)
from tests import twins
from tests.examples import examples
from tests.unit.algorithms.feca_cases import MODES, TASK, aggregate, local_clusters


def clusters_of(X, labels):
    """Rows by cluster, for the twins."""
    return [twins.points(X[labels == c]) for c in range(labels.max() + 1)]


@st.composite
def partitions(draw, unit):
    """At most 16 rows of a lattice in at most 8 clusters, none empty; any partition, not only a local minimum."""
    k, d = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    labels = np.array([*range(k), *draw(st.lists(st.integers(0, k - 1), max_size=16 - k))])
    X = unit * draw(arrays(np.float64, (len(labels), d), elements=st.integers(-2, 2).map(float)))
    return X, labels


# 720720 is divisible by all of 1 ... 16, so that every mean and every sum of squares is an integer: what the paper
# compares is compared exactly, ties (G_i = G_j) included.
@settings(max_examples=examples(300), deadline=None)
@given(partitions(unit=720720.0), st.sampled_from(MODES))
def test_removal_is_algorithm_2_to_the_last_tie(problem, mode):
    X, labels = problem
    D = [[tuple(map(Fraction, x)) for x in cluster] for cluster in clusters_of(X, labels)]
    C, D, origin = twins.client_update([twins.mu(cluster) for cluster in D], D, mode)
    means = np.array([X[labels == c].mean(axis=0) for c in range(labels.max() + 1)])

    kept, made_of = remove_one_fit_many(local_clusters(X, labels, means), mode)

    assert made_of == origin
    np.testing.assert_array_equal(kept.counts, [len(cluster) for cluster in D])
    np.testing.assert_array_equal(kept.centroids, np.array(C, dtype=float))
    exact = [twins.objective(cluster, c) for c, cluster in zip(C, D, strict=True)]
    np.testing.assert_array_equal(kept.sse, np.array(exact, dtype=float))


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(2, 5),  # with one column the radii are coarser (deviation 8)
    k=st.integers(1, 8),
    mode=st.sampled_from(MODES),
    radius=st.sampled_from(["empirical", "theoretical"]),
    init=st.sampled_from(["k-means++", "random"]),
    n_init=st.sampled_from([1, 3]),
)
def test_a_site_sends_what_algorithms_2_to_4_give(seed, d, k, mode, radius, init, n_init):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(5 * k, d)) + 6 * rng.normal(size=(4, d))[rng.integers(4, size=5 * k)]
    found = kmeans(X, k, stream(seed, 0, "site-1"), n_init=n_init, init=init)
    D = clusters_of(X, found.labels)
    means = [twins.mu(cluster) for cluster in D]
    C, D, origin = twins.client_update(means, D, mode)
    assign = {"empirical": twins.radius_assign_empirical, "theoretical": twins.radius_assign_theoretical}[radius]
    disclosable_clusters = [
        len(set(cluster)) >= 2 for cluster in D
    ]  # what is not sent is nobody's neighbour (deviation 7)
    assume(any(disclosable_clusters))
    C, D = ([x for x, leaves in zip(xs, disclosable_clusters, strict=True) if leaves] for xs in (C, D))
    R = assign(C, D)

    executor = FeCAExecutor(k, seed, n_init=n_init, init=init, after_removal=mode, radius=radius)
    reply = executor.answer(TASK, X, never_abort).arrays

    assert len(origin) == len(disclosable_clusters)
    np.testing.assert_allclose(reply["centroids"], np.array(C), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(reply["radii"], np.array(R), rtol=1e-9, atol=1e-9)


@settings(max_examples=examples(300), deadline=None)
@given(partitions(unit=1.0))
def test_radii_are_those_of_algorithms_3_and_4(problem):
    X, labels = problem
    D = clusters_of(X, labels)
    centroids = X[np.unique(labels, return_index=True)[1]]  # a row of each: distances are roots of integers
    C = twins.points(centroids)
    reach = cluster_statistics(X, labels, centroids).max_distance

    np.testing.assert_array_equal(reach, twins.r_prime(C, D))
    np.testing.assert_array_equal(empirical_radii(centroids, reach), twins.radius_assign_empirical(C, D))
    np.testing.assert_array_equal(_theoretical_radii(centroids, reach), twins.radius_assign_theoretical(C, D))


@st.composite
def messages(draw):
    """Up to four sites' centroids on a lattice, with radii whose squares are exact."""
    d, replies = draw(st.integers(1, 5)), {}
    for site in "abcd"[: draw(st.integers(1, 4))]:
        c = draw(st.integers(1, 8))
        replies[site] = {
            "centroids": draw(arrays(np.float64, (c, d), elements=st.integers(-2, 2).map(float))),
            "radii": draw(arrays(np.float64, c, elements=st.integers(0, 6).map(lambda halves: halves / 2))),
        }
    return replies


@settings(max_examples=examples(300), deadline=None)
@given(messages(), st.integers(1, 8))
def test_the_server_runs_algorithm_5(replies, k):
    centroids = np.concatenate([reply["centroids"] for reply in replies.values()])
    radii = np.concatenate([reply["radii"] for reply in replies.values()])
    C, S, picked = twins.server_aggregation(k, twins.points(centroids), radii.tolist())

    found, record = aggregate(k, replies)

    np.testing.assert_array_equal(found, np.array(C))
    np.testing.assert_array_equal(record["votes"], [len(S_n) for S_n in S])
    np.testing.assert_array_equal(record["radii"], radii[picked])
