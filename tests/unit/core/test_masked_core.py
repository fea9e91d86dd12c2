"""Merging, scaled distances and methods A and B against slow literal twins, by hand, and against their invariances."""

import tracemalloc
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.core.lloyd import assign
from flareclust.core.missing import distances as masked_distances
from flareclust.core.missing.grouping import (
    PHIS,
    Extremes,
    extremes,
    merge,
    method_a,
    method_b,
    nearest,
    objective,
    scaled_distances,
)
from tests.examples import examples

NAN = float("nan")

#: What rounding may do to a mean near 0 of numbers of size 1.
SUMS = 1e-13

# ---- the twins: lists of decimals with 50 digits, None where unknown, one line per printed line ----


@pytest.fixture(autouse=True)
def fifty_digits():
    with localcontext() as context:
        context.prec = 50
        yield


def lists(points):
    return [[None if np.isnan(v) else Decimal(float(v)) for v in row] for row in np.asarray(points)]


def common(*points):
    return [f for f in range(len(points[0])) if all(p[f] is not None for p in points)]


def twin_phi(x, y, phi):
    if phi == "euclidean":
        return sum((a - b) ** 2 for a, b in zip(x, y, strict=True)).sqrt()
    xx, yy = sum(a * a for a in x), sum(b * b for b in y)
    if xx == 0 or yy == 0:
        return Decimal(int(xx != yy))
    found = 1 - sum(a * b for a, b in zip(x, y, strict=True)) / (xx * yy).sqrt()
    return found if abs(found) > Decimal("1e-30") else Decimal(0)  # what 50 digits cannot hold


def twin_extremes(points):
    columns = [[v for v in column if v is not None] for column in zip(*points, strict=True)]
    return [max(c) if c else None for c in columns], [min(c) if c else None for c in columns]


def twin_contrasts(centroids):
    """The extremes of entries that two centroids know, or that belong to one which shares none with another."""
    shared = [m for m in range(len(centroids[0])) if sum(c[m] is not None for c in centroids) > 1]
    loners = [c for c in centroids if all(c[m] is None for m in shared)]
    counted = set(shared) | {m for c in loners for m in range(len(c)) if c[m] is not None}
    high, low = twin_extremes(centroids)
    return [[x if m in counted else None for m, x in enumerate(side)] for side in (high, low)]


def twin_distance(x, y, over, phi):
    """Equations 2 and 3; None without a common entry."""
    high, low = over
    entries = common(x, y, high)
    if not entries:
        return None
    x, y, high, low = ([p[f] for f in entries] for p in (x, y, high, low))
    floor = Decimal("1e-12")
    if phi == "euclidean":
        floor *= sum(max(abs(h), abs(v)) ** 2 for h, v in zip(high, low, strict=True)).sqrt()
    return twin_phi(x, y, phi) / (max(twin_phi(high, low, phi), floor) or 1)


def twin_merge(members, counts):
    """Equation 4 as corrected."""
    merged = []
    for f in range(len(members[0])):
        above = sum(n * c[f] for c, n in zip(members, counts, strict=True) if c[f] is not None)
        less_than = sum(n for c, n in zip(members, counts, strict=True) if c[f] is not None)
        merged.append(above / max(1, less_than) if less_than else None)
    return merged


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
            total += sum(twin_distance(points[l], merged, twin_extremes(points), phi) ** 2 for l in members)
    assert objective(centroids, counts, group, k, phi) == pytest.approx(float(total), rel=1e-9, abs=1e-15)


# ---- by hand: merge and distances ----


def test_merge_weighs_every_entry_by_the_rows_that_saw_it():
    # (1 * 1 + 3 * 3) / 4 = 2.5; the second entry is known to the second only, the third to none.
    np.testing.assert_array_equal(merge([[1.0, NAN, NAN], [3.0, 5.0, NAN]], [1, 3]), [2.5, 5.0, NAN])


def test_merging_nothing_knows_nothing():
    assert np.isnan(merge(np.empty((0, 3)), [])).all()


def test_a_distance_is_divided_by_that_of_the_extremes_on_the_common_entries():
    S = [[0.0, 0.0, 1.0], [6.0, 8.0, 2.0]]
    # Entries 0 and 1: 5 of 10. Entry 2 alone is common to the last pair: 0.5 of 1.
    A, B = [[0.0, 0.0, NAN], [NAN, NAN, 1.5]], [[3.0, 4.0, 1.0], [NAN, NAN, 2.0]]
    np.testing.assert_allclose(scaled_distances(A, B, extremes(S)), [[0.5, NAN], [0.5, 0.5]], rtol=1e-15)


def test_cosine_distances_by_hand():
    # 1 - cos of a right angle is 1, of 45 degrees 1 - 1/sqrt 2, which is also that of the extremes (1, 1) and (1, 0).
    over = Extremes(np.array([1.0, 1.0]), np.array([1.0, 0.0]))
    unit = 1 - 0.5**0.5
    got = scaled_distances([[5.0, 0.0]], [[0.0, 2.0], [3.0, 3.0], [9.0, 0.0], [0.0, 0.0]], over, "cosine")
    np.testing.assert_allclose(got, [[1 / unit, 1, 0, 1 / unit]], rtol=1e-14)


@pytest.mark.parametrize("phi", PHIS)
def test_points_that_agree_on_a_constant_column_have_distance_0(phi):
    S = np.array([[0.1, 0.1], [0.1, 0.1]])
    np.testing.assert_array_equal(scaled_distances(S, S, extremes(S), phi), np.zeros((2, 2)))
    zero = np.zeros((2, 3))
    np.testing.assert_array_equal(scaled_distances(zero, zero, extremes(zero), phi), np.zeros((2, 2)))


def test_rounding_of_a_constant_column_is_no_distance():
    S = [[0.3], [0.1 + 0.2]]
    assert S[0] != S[1]
    assert scaled_distances(S[:1], S[1:], extremes(S))[0, 0] < 1e-3


def test_extremes_ignore_what_is_unknown():
    high, low = extremes([[1.0, NAN, NAN], [NAN, 2.0, NAN], [3.0, -4.0, NAN]])
    np.testing.assert_array_equal(high, [3.0, 2.0, NAN])
    np.testing.assert_array_equal(low, [1.0, -4.0, NAN])


def test_blocks_keep_memory_bounded_and_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(3000, 200)), rng.normal(size=(10, 200))
    A[rng.random(A.shape) < 0.3] = NAN
    A[:500] = A[0]
    over, want = extremes(A), scaled_distances(A, B, extremes(A))
    monkeypatch.setattr(masked_distances, "_BLOCK", 1 << 14)
    tracemalloc.start()
    got = scaled_distances(A, B, over)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert peak < A.nbytes / 2


# ---- by hand: nearest ----


def test_where_all_is_known_nearest_is_plain_assignment():
    rng = np.random.default_rng(1)
    X, centroids = rng.normal(size=(50, 3)), rng.normal(size=(4, 3))
    np.testing.assert_array_equal(nearest(X, centroids), assign(X, centroids)[0])
    unknown = np.column_stack([centroids, np.full(4, NAN)])
    np.testing.assert_array_equal(nearest(np.column_stack([X, X[:, 0]]), unknown), assign(X, centroids)[0])


def test_nearest_scales_each_subspace_before_it_compares():
    # 2 of the first column's range of 10 is nearer than 1 of the second's range of 2, though 1 < 2.
    centroids = [[0.0, NAN], [10.0, NAN], [NAN, 0.0], [NAN, 2.0]]
    assert nearest([[2.0, 1.0], [NAN, 0.1], [5.0, NAN]], centroids).tolist() == [0, 2, 0]


@pytest.mark.parametrize("phi", PHIS)
def test_rows_without_an_entry_that_a_centroid_knows_get_no_label(phi):
    assert nearest([[NAN, 3.0], [1.0, 3.0]], [[1.0, NAN], [4.0, NAN]], phi).tolist() == [-1, 0]
    assert nearest([[1.0, 3.0]], [[NAN, NAN]], phi).tolist() == [-1]
    assert nearest(np.empty((0, 2)), [[1.0, NAN], [NAN, 2.0]], phi).tolist() == []


def test_nearest_takes_the_lower_index_of_equals():
    assert nearest([[1.0, 5.0]], [[0.0, NAN], [2.0, NAN], [1.0, NAN], [1.0, NAN]]).tolist() == [2]
    assert nearest([[1.0, 5.0]], [[NAN, 0.0], [0.0, NAN], [2.0, NAN], [NAN, 10.0]]).tolist() == [0]


# ---- by hand: method A ----


def test_method_a_follows_a_chain_of_overlaps():
    # Site 2 sees the last column only: comparable with no seed, but with the groups once site 1 has joined them.
    centroids = [[0.0, 0.0, NAN], [9.0, 9.0, NAN], [NAN, 1.0, 1.0], [NAN, 8.0, 8.0], [NAN, NAN, 7.0], [NAN, NAN, 2.0]]
    found = method_a(centroids, [1, 1, 1, 3, 1, 1], [0, 0, 1, 1, 2, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 1, 1, 0]
    np.testing.assert_array_equal(found.centroids, [[0.0, 0.5, 1.5], [9.0, 8.25, 7.75]])
    np.testing.assert_array_equal(found.counts, [[1, 2, 2], [1, 4, 4]])


def test_method_a_leaves_what_it_never_can_compare_without_a_group():
    found = method_a([[0.0, NAN], [9.0, NAN], [1.0, NAN], [NAN, 5.0], [NAN, NAN]], [1] * 5, [0, 0, 1, 2, 3], 2)
    assert found.group.tolist() == [0, 1, 0, -1, -1]
    np.testing.assert_array_equal(found.centroids, [[0.5, NAN], [9.0, NAN]])


def test_method_a_moves_a_sites_second_centroid_to_the_next_group():
    # Both of site 1 are nearest to 0; 0.5 is nearer and takes the place.
    assert method_a([[0.0], [10.0], [1.0], [0.5]], [1] * 4, [0, 0, 1, 1], 2).group.tolist() == [0, 1, 1, 0]


def test_method_a_leaves_out_a_centroid_where_every_group_has_its_site():
    # Site 1 has three clusters and there are two groups. At the end 6 is farthest from both.
    found = method_a([[0.0], [10.0], [1.0], [6.0], [10.0]], [1] * 5, [0, 0, 1, 1, 1], 2)
    assert found.group.tolist() == [0, 1, 0, -1, 1]
    np.testing.assert_array_equal(found.centroids, [[0.5], [10.0]])


def test_method_a_merges_all_members_with_the_rows_behind_each_entry():
    # Entry 1: 10 rows at 0 and 1 at 11 make 1; a mean with one count for the whole centroid would weigh site 0 too.
    found = method_a([[5.0, NAN], [5.0, 0.0], [5.0, 11.0]], [1000, 10, 1], [0, 1, 2], 1)
    np.testing.assert_array_equal(found.centroids, [[5.0, 1.0]])
    np.testing.assert_array_equal(found.counts, [[1011, 11]])


def test_method_a_starts_from_the_first_site_with_k_clusters():
    found = method_a([[9.0], [0.2], [9.1], [0.0], [0.1], [9.2]], [1] * 6, [0, 1, 1, 2, 3, 3], 2)
    assert found.group.tolist() == [1, 0, 1, 0, 0, 1]


def test_where_nobody_has_k_clusters_method_a_adds_the_farthest_to_the_largest_sites():
    # Seeds 0 and 10 (site 1); 4 is farther from both than 12, and becomes the third group.
    found = method_a([[12.0], [0.0], [10.0], [4.0], [3.0]], [1] * 5, [0, 1, 1, 2, 3], 3)
    assert found.group.tolist() == [1, 0, 1, 2, 2]


def test_added_seeds_are_comparable_with_all_seeds_where_any_centroid_is():
    # Centroid 2 shares a column with seed 0 only, at the largest distance; centroid 3 shares one with both seeds.
    centroids = [[0.0, 0.0, NAN], [NAN, 1.0, 1.0], [9.0, NAN, NAN], [NAN, 5.0, NAN]]
    found = method_a(centroids, [1] * 4, [0, 0, 1, 2], 3)
    assert found.group.tolist() == [0, 1, 0, 2]


def test_where_all_sites_have_more_than_k_clusters_k_of_the_smallest_site_are_taken():
    # Site 1 has the fewest, and its farthest two are 10 and 0; 3 finds both groups taken by its own site.
    found = method_a([[1.0], [9.0], [5.5], [5.2], [10.0], [0.0], [3.0]], [1] * 7, [0, 0, 0, 0, 1, 1, 1], 2)
    assert found.group.tolist() == [1, 0, -1, -1, 0, 1, -1]


# ---- by hand: method B ----


def test_method_b_groups_biased_clusters_that_overlap():
    # Farthest: 0 and 20. Both of site 1 are nearer to 0, and may share a group here.
    found = method_b([[0.0], [20.0], [7.0], [8.0], [15.0]], [1] * 5, [0, 0, 1, 1, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(found.centroids, [[5.0], [17.5]])
    np.testing.assert_array_equal(found.counts, [[3], [2]])


def test_method_b_weighs_rows_and_reassigns():
    # Seeds 0 and 10. 5.5 joins 10; the heavy 10 keeps its mean near 10 (9.95...), so that 4 stays with 0 and 5.5 goes.
    found = method_b([[0.0], [10.0], [4.0], [5.5]], [1, 99, 1, 1], [0, 0, 1, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(found.centroids, [[9.5 / 3], [10.0]], rtol=1e-15)


def test_method_b_joins_what_its_seeds_cannot_be_compared_with_through_the_groups():
    found = method_b([[0.0, NAN], [9.0, NAN], [1.0, 1.0], [8.0, 8.0], [NAN, 2.0]], [1] * 5, [0, 0, 1, 1, 2], 2)
    assert found.group.tolist() == [0, 1, 0, 1, 0]


def test_a_group_of_method_b_that_loses_its_members_keeps_its_centroid():
    # Three times the same point: the second and third seed are equal to the first, which takes all.
    found = method_b([[3.0, NAN], [3.0, NAN], [3.0, NAN]], [2, 3, 4], [0, 1, 2], 3)
    assert found.group.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(found.centroids, [[3.0, NAN]] * 3)
    np.testing.assert_array_equal(found.counts, [[9, 0], [0, 0], [0, 0]])


# ---- both, and what cannot be ----


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("method", [method_a, method_b])
def test_one_group_takes_all_that_can_be_compared(method, phi):
    found = method([[1.0, 2.0], [3.0, NAN], [NAN, 4.0]], [1, 1, 2], [0, 1, 2], 1, phi)
    assert found.group.tolist() == [0, 0, 0]
    np.testing.assert_allclose(found.centroids, [[2.0, 10 / 3]], rtol=1e-15)


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("method", [method_a, method_b])
def test_equal_centroids_and_a_constant_column_raise_no_nan(method, phi):
    equal = method(np.full((4, 2), 0.1), [1] * 4, [0, 0, 1, 1], 2, phi)
    assert set(equal.group.tolist()) <= {0, 1}
    np.testing.assert_allclose(equal.centroids, np.full((2, 2), 0.1), rtol=1e-15)
    constant = method([[7.0, 0.0], [7.0, 9.0], [7.0, 1.0], [7.0, 8.0]], [1] * 4, [0, 0, 1, 1], 2, phi)
    np.testing.assert_array_equal(constant.centroids[:, 0], [7.0, 7.0])
    assert (constant.group >= 0).all()


@pytest.mark.parametrize("method", [method_a, method_b])
def test_as_many_groups_as_centroids_leave_each_alone(method):
    centroids = np.array([[0.0], [5.0], [9.0]])
    found = method(centroids, [1, 2, 3], [0, 1, 1], 3)
    np.testing.assert_array_equal(found.centroids[found.group], centroids)


@pytest.mark.parametrize("method", [method_a, method_b])
def test_more_groups_than_centroids_end_the_job_with_advice(method):
    with pytest.raises(JobFailed, match=r"found 2 clusters in all.*k=3.*ask for fewer clusters"):
        method([[0.0], [1.0]], [1, 1], [0, 1], 3)


def test_a_perfect_grouping_has_objective_0_and_centroids_without_a_group_do_not_count():
    centroids = [[0.0, NAN], [0.0, 4.0], [9.0, 1.0], [5.0, 5.0]]
    assert objective(centroids, [1] * 4, [0, 0, 1, -1], 2) == 0
    # Group of 0 and 9 (merged 4.5, of a range of 9): 2 * 0.5^2 in the first column.
    assert objective([[0.0], [9.0]], [1, 1], [0, 0], 1) == pytest.approx(0.5, rel=1e-15)
    assert objective(centroids, [1] * 4, [-1] * 4, 2) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"centroids": [[0.0], [np.inf]]}, "infinite"),
        ({"centroids": [0.0, 1.0]}, "two axes"),
        ({"centroids": [["a"], ["b"]]}, "table of numbers"),
        ({"counts": [1]}, "counts must be 2 integers"),
        ({"counts": [1, 0]}, "counts must be integers of at least 1"),
        ({"counts": [1.0, NAN]}, "counts must be integers"),
        ({"site": [0, -1]}, "site must be integers of at least 0"),
        ({"k": 0}, "k must be at least 1"),
        ({"phi": "cosin"}, "did you mean 'cosine'"),
    ],
)
@pytest.mark.parametrize("method", [method_a, method_b])
def test_input_that_does_not_fit_is_refused_with_words(method, change, message):
    fitting = {"centroids": [[0.0], [1.0]], "counts": [1, 1], "site": [0, 1], "k": 2, "phi": "euclidean"}
    assert method(**fitting).group.tolist() in ([0, 1], [1, 0])
    with pytest.raises(UserError, match=message):
        method(**{**fitting, **change})


def test_distances_refuse_columns_that_differ_and_the_objective_groups_that_are_not():
    with pytest.raises(UserError, match="same columns"):
        scaled_distances([[0.0]], [[0.0, 1.0]], extremes([[0.0]]))
    with pytest.raises(UserError, match="same columns"):
        nearest([[0.0]], [[0.0, 1.0]])
    with pytest.raises(UserError, match="at least one row"):
        nearest([[0.0]], np.empty((0, 1)))
    with pytest.raises(UserError, match="below k=1"):
        objective([[0.0], [1.0]], [1, 1], [0, 1], 1)
