"""Merging, scaled distances and methods A and B against slow literal twins and their invariances."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust.core.missing.distances import PHIS, extremes, nearest, scaled_distances
from flareclust.core.missing.grouping import merge, method_a, method_b, objective
from tests.examples import examples
from tests.unit.core.masked_cases import NAN, common, lists, twin_contrasts, twin_distance, twin_extremes, twin_merge

#: What rounding may do to a mean near 0 of numbers of size 1.
SUMS = 1e-13


@pytest.fixture(autouse=True)
def fifty_digits():
    with localcontext() as context:
        context.prec = 50
        yield


class Margins:
    """First best of candidates, and by how much it was the only best one at the closest of all decisions."""

    def __init__(self):
        self.minimum = Decimal(1)

    def best(self, candidates, sign):
        """candidates: (key, value) -> key of the value times sign that is largest."""
        ranked = sorted(candidates, key=lambda pair: -sign * pair[1])
        if len(ranked) > 1:
            self.minimum = min(self.minimum, abs(ranked[0][1] - ranked[1][1]))
        return ranked[0][0]


def twin_spread(points, pool, seeds, k, over, phi, margins):
    """Add the point of the pool at max-min distance, among those comparable with most seeds, until there are k."""
    seeds = list(seeds)
    while len(seeds) < k:
        found = {}
        for z in pool:
            if z not in seeds:
                found[z] = [d for s in seeds if (d := twin_distance(points[z], points[s], over, phi)) is not None]
        maximum = max(len(d) for d in found.values())
        seeds.append(margins.best([(z, min(d, default=Decimal(0))) for z, d in found.items() if len(d) == maximum], 1))
    return seeds


def twin_pair(points, pool, over, phi, margins):
    pairs = [(i, j) for i in pool for j in pool if i < j]
    distances = [(p, twin_distance(points[p[0]], points[p[1]], over, phi)) for p in pairs]
    distances = [(p, d) for p, d in distances if d]
    return list(margins.best(distances, 1)) if distances else [pool[0]]


def twin_seeds_a(points, site, k, over, phi, margins):
    own = {i: [l for l in range(len(site)) if site[l] == i] for i in sorted(set(site))}
    if any(len(members) <= k for members in own.values()):
        start = max((i for i in own if len(own[i]) <= k), key=lambda i: (len(own[i]), -i))
        return twin_spread(points, range(len(points)), own[start], k, over, phi, margins)
    start = min(own, key=lambda i: (len(own[i]), i))
    return twin_spread(points, own[start], twin_pair(points, own[start], over, phi, margins)[:k], k, over, phi, margins)


def twin_a(points, counts, site, k, phi):
    """Method A; group of each centroid, and the margin."""
    margins, over = Margins(), twin_extremes(points)
    G = [[z] for z in twin_seeds_a(points, site, k, over, phi, margins)]
    L = [l for l in range(len(points)) if [l] not in G]
    while L:
        D = []
        for l in L:
            for g in range(k):
                if all(site[a] != site[l] for a in G[g]):
                    G_c = twin_merge([points[a] for a in G[g]], [counts[a] for a in G[g]])
                    D.append(((l, g), twin_distance(G_c, points[l], over, phi)))
        D = [(lg, d) for lg, d in D if d is not None]
        if not D:
            break
        l, g = margins.best(D, -1)
        G[g].append(l)
        L.remove(l)
    return [next((g for g in range(k) if l in G[g]), -1) for l in range(len(points))], margins.minimum


def twin_b(points, counts, k, phi):
    """Method B; group of each centroid, global centroids, and the margin."""
    margins, over, c = Margins(), twin_extremes(points), len(points)
    Z = twin_spread(points, range(c), twin_pair(points, range(c), over, phi, margins)[:k], k, over, phi, margins)
    G_c, group, before = [points[z] for z in Z], None, ()
    for _ in range(100):
        group = []
        for x in points:
            D = [(g, twin_distance(G_c[g], x, over, phi)) for g in range(k)]
            D = [(g, d) for g, d in D if d is not None]
            group.append(margins.best(D, -1) if D else -1)
        group = [Z.index(l) if g < 0 and l in Z else g for l, g in enumerate(group)]
        if group == before:
            break
        before = group
        for g in range(k):
            members = [l for l in range(c) if group[l] == g]
            if members:
                G_c[g] = twin_merge([points[l] for l in members], [counts[l] for l in members])
    return group, G_c, margins.minimum


# ---- random problems ----


@st.composite
def tables(draw, rows=6, columns=None):
    """Integers with unknown entries; often equal, or 0, or a constant column, or rows that share no entry."""
    d = draw(st.integers(1, 4)) if columns is None else columns
    entry = st.one_of(st.just(NAN), st.integers(-3, 3).map(float))
    return np.array(draw(st.lists(st.lists(entry, min_size=d, max_size=d), min_size=1, max_size=rows)))


@st.composite
def problems(draw):
    """Centroids of up to 5 sites near up to 3 true ones, counts, site, k, phi; any two sites share 0, 2, .. columns."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, m, blocks = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, k + 2), min_size=m, max_size=m))
    site = rng.permutation(np.repeat(np.arange(m), sizes))
    share = draw(st.sampled_from([0.3, 0.6, 1.0]))
    masks = rng.random((m, blocks)) < share
    masks[np.arange(m), rng.integers(blocks, size=m)] = True
    true = rng.normal(size=(k, 2 * blocks)) * 10.0 ** rng.integers(-2, 3, size=2 * blocks)
    centroids = true[rng.integers(k, size=len(site))] * (1 + 0.3 * rng.normal(size=(len(site), 2 * blocks)))
    centroids[~np.repeat(masks, 2, axis=1)[site]] = NAN
    assume(len(site) >= k)
    return centroids, rng.integers(1, 30, size=len(site)), site, k, draw(st.sampled_from(PHIS))


def as_floats(points):
    return np.array([[NAN if v is None else float(v) for v in row] for row in points])


def assert_merged(found, centroids, counts, k):
    """The centroids and counts of a grouping are those of its groups."""
    for g in range(k):
        members = np.flatnonzero(found.group == g)
        if len(members):
            want = twin_merge(lists(centroids[members]), counts[members].tolist())
            np.testing.assert_allclose(
                found.centroids[g], as_floats([want])[0], rtol=1e-12, atol=SUMS * np.nanmax(np.abs(centroids))
            )
        known = ~np.isnan(centroids[members])
        np.testing.assert_array_equal(found.counts[g], (known * counts[members][:, None]).sum(axis=0))
    assert found.group.dtype == found.counts.dtype == np.int64


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_method_a_equals_its_twin(problem):
    centroids, counts, site, k, phi = problem
    want, margin = twin_a(lists(centroids), counts.tolist(), site.tolist(), k, phi)
    assume(margin > 1e-9)
    found = method_a(centroids, counts, site, k, phi)
    assert found.group.tolist() == want
    assert_merged(found, centroids, counts, k)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_method_b_equals_its_twin(problem):
    centroids, counts, site, k, phi = problem
    want, means, margin = twin_b(lists(centroids), counts.tolist(), k, phi)
    assume(margin > 1e-9)
    found = method_b(centroids, counts, site, k, phi)
    assert found.group.tolist() == want
    np.testing.assert_allclose(found.centroids, as_floats(means), rtol=1e-12, atol=SUMS * np.nanmax(np.abs(centroids)))
    assert_merged(found, centroids, counts, k)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_a_group_of_method_a_never_holds_two_centroids_of_a_site(problem):
    centroids, counts, site, k, phi = problem
    group = method_a(centroids, counts, site, k, phi).group
    placed = [pair for pair in zip(group.tolist(), site.tolist(), strict=True) if pair[0] >= 0]
    assert len(set(placed)) == len(placed)
    assert set(range(k)) <= set(group.tolist())


@settings(max_examples=30, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_groups_do_not_depend_on_the_unit_the_origin_or_the_order_of_columns(problem, seed):
    centroids, counts, site, k, _ = problem
    rng = np.random.default_rng(seed)
    order = rng.permutation(centroids.shape[1])
    other = (centroids * 7 + rng.normal(size=centroids.shape[1]))[:, order]
    margins = (
        twin_a(lists(centroids), counts.tolist(), site.tolist(), k, "euclidean")[1],
        twin_b(lists(centroids), counts.tolist(), k, "euclidean")[2],
    )
    assume(min(margins) > 1e-9)
    for method in (method_a, method_b):
        assert method(other, counts, site, k).group.tolist() == method(centroids, counts, site, k).group.tolist()


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from(PHIS))
def test_scaled_distances_equal_their_twin(data, phi):
    A = data.draw(tables())
    B, S = data.draw(tables(columns=A.shape[1])), data.draw(tables(columns=A.shape[1]))
    over, twin_over = extremes(S), twin_extremes(lists(S))
    want = [[twin_distance(x, y, twin_over, phi) for y in lists(B)] for x in lists(A)]
    # Directions of parallel vectors may differ in the last digit.
    np.testing.assert_allclose(scaled_distances(A, B, over, phi), as_floats(want), rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(over, as_floats(twin_over))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(PHIS), st.sampled_from([1e-9, 1e-5, 1e-2, 1e3]))
def test_distances_keep_their_digits_however_close_the_points(seed, phi, noise):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(4, 5))
    B = A + noise * rng.normal(size=(4, 5))
    A[rng.random(A.shape) < 0.2] = NAN
    S = np.concatenate([A, B])
    want = [[twin_distance(x, y, twin_extremes(lists(S)), phi) for y in lists(B)] for x in lists(A)]
    # Reading the points already costs digits: a relative error of 1e-16 in a coordinate is one of 1e-7 in 1e-9.
    np.testing.assert_allclose(scaled_distances(A, B, extremes(S), phi), as_floats(want), rtol=1e-6, atol=1e-14)


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.sampled_from(PHIS))
def test_nearest_equals_its_twin(data, phi):
    X = data.draw(tables(rows=8))
    centroids = data.draw(tables(columns=X.shape[1]))
    over, want = twin_contrasts(lists(centroids)), []
    for x in lists(X):
        distances = [(j, twin_distance(x, y, over, phi)) for j, y in enumerate(lists(centroids))]
        distances = [(j, d) for j, d in distances if d is not None]
        if not distances:
            distances = [(j, Decimal(0)) for j, y in enumerate(lists(centroids)) if common(x, y)][:1]
        # Equal distances of unlike subspaces may differ in the last digit: all of them are right.
        want.append({j for j, d in distances if d <= min(d for _, d in distances) * (1 + Decimal("1e-9"))} or {-1})
    for label, allowed in zip(nearest(X, centroids, phi).tolist(), want, strict=True):
        assert label in allowed


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_merge_equals_its_twin(data):
    points = data.draw(tables())
    counts = data.draw(st.lists(st.integers(1, 9), min_size=len(points), max_size=len(points)))
    np.testing.assert_allclose(merge(points, counts), as_floats([twin_merge(lists(points), counts)])[0], atol=SUMS)


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_the_objective_equals_its_twin(problem, seed):
    centroids, counts, _, k, phi = problem
    group = np.random.default_rng(seed).integers(-1, k, size=len(centroids))
    points, total = lists(centroids), Decimal(0)
    for g in range(k):
        members = [l for l in range(len(points)) if group[l] == g]
        if members:
            merged = twin_merge([points[l] for l in members], counts[members].tolist())
            distances = [twin_distance(points[l], merged, twin_extremes(points), phi) for l in members]
            total += sum(d**2 for d in distances if d is not None)
    assert objective(centroids, counts, group, k, phi) == pytest.approx(float(total), rel=1e-9, abs=1e-15)
