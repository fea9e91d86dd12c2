"""What flareclust asks of every algorithm, and one figure of its own."""

import numpy as np
from flareclust_linkage import LINKAGE

import flareclust
from flareclust.testing import check_algorithm, iid_sites


def test_the_algorithm_keeps_its_promises():
    check_algorithm(LINKAGE)


def test_separated_clusters_are_found_under_a_policy():
    sites, centers = iid_sites(m=4, k=4)
    result = flareclust.run("linkage", sites, 4, policy={})
    gap = np.linalg.norm(centers[:, None] - result.centroids[None], axis=2).min(axis=1)
    assert gap.max() < 1
