"""Outlier scores in blocks against tables of sites times centroids."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from flareclust.core import robust
from tests.examples import examples
from tests.memory import peak_of


def plain_score(points, site):
    """The definition: nearest centroid of every other site, its median, and that of these centroids' own medians."""
    sites = np.unique(site)
    others = [[s for s in sites if s != own] for own in site]
    nearest = {s: np.flatnonzero(site == s)[cdist(points, points[site == s]).argmin(axis=1)] for s in sites}
    apart = cdist(points, points)
    own = np.array([np.median([apart[i, nearest[s][i]] for s in others[i]]) for i in range(len(points))])
    usual = np.array([np.median([own[nearest[s][i]] for s in others[i]]) for i in range(len(points))])
    quotient = [a / b if b > 0 else (np.inf if a > 0 else 1.0) for a, b in zip(own, usual, strict=True)]
    reach = [np.median([apart[np.ix_(site == s, site == t)].max() for t in sites if t != s]) for s in sites]
    return np.array(quotient), own > np.median(reach)


@st.composite
def problems(draw):
    """Sites with different numbers of centroids, in any order, on a lattice (ties) or off it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=3, max_size=9))
    site = rng.permutation(np.repeat(3 * np.arange(len(sizes)), sizes))
    shape = len(site), draw(st.integers(1, 4))
    points = rng.integers(0, 4, shape).astype(float) if draw(st.booleans()) else rng.normal(size=shape)
    if draw(st.booleans()):
        points[0] = 1e139
    return points, site


@settings(max_examples=examples(200), deadline=None)
@given(problems(), st.sampled_from([1, 40, 1 << 21]))
def test_blocks_give_the_scores_of_the_definition(problem, block):
    before, robust._BLOCK = robust._BLOCK, block
    try:
        quotient, absurd = robust.outlier_score(*problem)
    finally:
        robust._BLOCK = before
    expected = plain_score(*problem)
    np.testing.assert_array_equal(quotient, expected[0])
    np.testing.assert_array_equal(absurd, expected[1])


def test_no_table_of_sites_times_centroids_is_kept(monkeypatch, rng):
    monkeypatch.setattr(robust, "_BLOCK", 1 << 14)
    m, k = 400, 4
    points, site = rng.normal(size=(m * k, 2)), np.repeat(np.arange(m), k)
    robust.outlier_score(points[:40], site[:40])
    assert peak_of(lambda: robust.outlier_score(points, site)) < m * m * k * 8 / 3
