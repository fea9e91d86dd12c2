"""Every array of every algorithm that is about single clusters is known as such, so that it follows new numbers."""

import numpy as np
import pytest

from flareclust.protocol import cluster_arrays
from flareclust.protocol.registry import algorithms
from flareclust.testing.tools import embeds, iid_sites, run

K, SITES, COLUMNS = 7, 5, 3


@pytest.mark.parametrize(
    "algorithm", [a for a in algorithms().values() if a.federated and not embeds(a)], ids=lambda a: a.name
)
def test_arrays_with_an_axis_of_clusters_are_known(algorithm):
    sites, _ = iid_sites(SITES, K, COLUMNS)
    # Rows nearly fill the bounds of `GRANTED`, or noise leaves dp-lloyd without one of the clusters in 1 of 60 runs.
    arrays = run(algorithm, {site: 90 * rows for site, rows in sites.items()}, K).arrays
    assert len(arrays["centroids"]) == K
    for name, values in arrays.items():
        axes = [axis for axis, n in enumerate(values.shape) if n == K]
        if axes:
            assert [cluster_arrays._AXES.get(name)] == axes, name
    order = [3, 0, 6, 1, 5, 2, 4]
    found = cluster_arrays.renumbered_arrays(arrays, order)
    np.testing.assert_array_equal(found["centroids"], arrays["centroids"][order])
    for name in set(cluster_arrays._NUMBERS) & set(arrays):
        groups = arrays[name]
        np.testing.assert_array_equal(found[name] < 0, groups < 0)
        kept = groups >= 0
        np.testing.assert_array_equal(found["centroids"][found[name][kept]], arrays["centroids"][groups[kept]])
    back = cluster_arrays.renumbered_arrays(found, np.argsort(order).tolist())
    for name, values in arrays.items():
        np.testing.assert_array_equal(back[name], values, err_msg=name)
