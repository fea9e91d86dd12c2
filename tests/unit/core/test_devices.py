"""Many small sites in one compiled loop: what each sends is, bit for bit, what a single site sends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.core import assessment
from flareclust.core.devices import steps
from flareclust.core.devices.ragged import Ragged, keys_of
from flareclust.core.devices.site_kernels import MOST_SUMMED, _uniform, pairwise_sum, start_stream
from flareclust.core.disclosure import LEAST_ROWS, check_enough
from flareclust.core.lloyd import member_statistics
from flareclust.core.local import clusters_to_send, lloyd_update, local_clusters, seed_cells
from flareclust.core.pyramid import FEWEST_ROWS
from flareclust.core.runtime import one_thread
from flareclust.core.spectral import local_kmeans

WORD = st.integers(0, 2**32 - 1)

#: Columns, clusters, rows of each site; the last is rounded so that rows repeat.
SHAPES = {
    "two columns": (2, 16, range(1, 60), 0),
    "tiles": (3, 5, (1, 255, 256, 257, 700), 0),
    "wide": (20, 10, (1, 2, 9, 10, 11, 20, 40), 0),
    "mixture": (16, 4, (30,) * 6, 0),
    "many clusters": (9, 30, (40, 200, 400), 0),
    "far from zero": (2, 4, (8, 30, 50), 1e8),
    "repeated rows": (2, 6, range(1, 40), None),
}


@given(WORD, WORD, WORD)
@settings(max_examples=30)
def test_the_random_numbers_are_numpys(seed, round_, site):
    state = np.empty(4, np.uint64)
    start_stream(seed, round_, site, state)
    assert [_uniform(state) for _ in range(20)] == np.random.default_rng([seed, round_, site]).random(20).tolist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 100, MOST_SUMMED])
def test_sums_are_added_up_as_numpy_adds(n):
    values = np.random.default_rng(n).normal(size=n) * 10.0 ** np.arange(n).clip(0, 12)
    assert pairwise_sum(values) == values.sum()


def joined(arrays, keys):
    return Ragged(np.concatenate(arrays), np.cumsum([0, *map(len, arrays)]), keys)


def sites(shape):
    d, k, sizes, offset = SHAPES[shape]
    rng = np.random.default_rng(len(shape))
    centers = 4 * rng.normal(size=(k, d))
    data = [np.ascontiguousarray(centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))) for n in sizes]
    data = [np.round(X / 3) if offset is None else X + offset for X in data]
    return data, centers + (offset or 0.0), k


def of_site(way, X, k, rng, min_count):
    if way == "cells":
        return seed_cells(X, k, rng, min_count=min_count, aborted=never_abort)
    if way == "kmeans":
        return local_clusters(X, k, rng, n_init=1, min_count=min_count, aborted=never_abort)
    check_enough(X, min_count)
    found = local_kmeans(X, min(k, len(X) // min_count), rng, never_abort)
    return clusters_to_send(X, found, min_count)


def repeats(X):
    """Return whether a row is there often enough for a cluster of it alone, to which the site adds other rows."""
    return np.unique(X, axis=0, return_counts=True)[1].max() >= LEAST_ROWS


def entries(found, i):
    first, size = int(np.maximum(found.sizes[:i], 0).sum()), int(found.sizes[i])
    return {name: value[first : first + size] for name, value in found.fields.items()}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", ["cells", "kmeans", "spectral"])
def test_clusters_are_those_of_each_site(way, shape):
    data, _, k = sites(shape)
    names = [f"site-{i}" for i in range(len(data))]
    for min_count in (1, 2, 3):
        with one_thread():
            found = steps.clusters_of_each(joined(data, keys_of(names)), way, 7, 3, k, min_count)
        for i, X in enumerate(data):
            try:
                own = of_site(way, X, k, stream(7, 3, names[i]), min_count)
            except Refusal:
                assert found.sizes[i] == -1
                continue
            if found.sizes[i] < 0:
                assert repeats(X)
                continue
            np.testing.assert_array_equal(entries(found, i)["centroids"], own.centroids, strict=True)
            np.testing.assert_array_equal(entries(found, i)["counts"], own.counts)


@pytest.mark.parametrize("shape", SHAPES)
def test_updates_and_assessments_are_those_of_each_site(shape):
    data, centers, _ = sites(shape)
    devices = joined(data, np.arange(len(data)))
    found, assessed = steps.updates_of_each(devices, centers, 2), steps.assessments_of_each(devices, centers, 2)
    for i, X in enumerate(data):
        if len(X) < 2:
            assert found.sizes[i] == assessed.sizes[i] == -1
            continue
        own = lloyd_update(X, centers, 2)
        if found.sizes[i] < 0:
            assert repeats(X)
            continue
        np.testing.assert_array_equal(entries(found, i)["centroids"], own.centroids, strict=True)
        np.testing.assert_array_equal(entries(found, i)["cluster"], own.source)
        labels = np.append(own.source, -1)[own.labels]
        sse = member_statistics(X, labels, centers).sse
        sse[own.source[own.counts < LEAST_ROWS]] = 0.0
        assert found.totals["inertia"][i] == sse.sum()
        sums = assessment.assessment_sums(X, centers)[1]
        np.testing.assert_array_equal(entries(assessed, i)["counts"], sums["counts"])
        np.testing.assert_array_equal(entries(assessed, i)["scatter"], sums["scatter"])
        assert assessed.totals["sse"][i] == sums["sse"].sum()
        assert assessed.totals["silhouette"][i] == sums["silhouette"].sum()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_site_with_values_to_refuse_is_asked_by_itself_and_the_others_are_computed(value):
    data = [np.arange(16.0).reshape(8, 2) ** 1.5 for _ in range(3)]
    data[1] = data[1].copy()
    data[1][3, 1] = value
    devices = joined(data, np.arange(3))
    with one_thread():
        found = [steps.clusters_of_each(devices, way, 0, 0, 2, 2) for way in ("cells", "kmeans", "spectral")]
    found += [steps.updates_of_each(devices, data[0][:2], 2), steps.assessments_of_each(devices, data[0][:2], 2)]
    for one in found:
        assert (one.sizes >= 0).tolist() == [True, False, True]


def test_a_site_with_as_many_rows_as_a_pyramid_is_asked_by_itself():
    X = np.random.default_rng(0).normal(size=(FEWEST_ROWS, 2))
    found = steps.clusters_of_each(joined([X, X[:50]], np.arange(2)), "kmeans", 0, 0, 3, 2)
    assert found.sizes[0] == -1
    assert found.sizes[1] > 0


def test_some_sites_are_taken_in_the_order_asked_for():
    devices = joined([np.full((n, 2), float(n)) for n in (1, 2, 3, 0, 4)], np.arange(5))
    chosen = devices.those(np.array([4, 0, 3, 2]))
    assert [chosen.rows(i).tolist() for i in range(4)] == [devices.rows(i).tolist() for i in (4, 0, 3, 2)]
    assert chosen.keys.tolist() == [4, 0, 3, 2]
    part = devices.those(np.array([1, 2]))
    assert np.shares_memory(part.values, devices.values)
    assert part.values.tolist() == [[2.0, 2.0]] * 2 + [[3.0, 3.0]] * 3


def test_one_column_and_many_clusters_are_left_to_the_sites():
    assert not steps.fits(3, 1)
    assert not steps.fits(MOST_SUMMED + 1, 2)
    assert steps.fits(MOST_SUMMED, 2)
