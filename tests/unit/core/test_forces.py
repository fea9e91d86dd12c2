"""Attraction of clusters, their agglomeration, and the choice of k: against loops that follow the equations word by word.

Expected values come from these loops, from SciPy, from scikit-learn, or are worked out by hand.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_score

from flareclust._foundation.errors import UserError
from flareclust.core import forces as module
from flareclust.core.agglomeration import Tree, _silhouette, agglomerate, choose_k, cut
from flareclust.core.forces import pair_forces, point_sums
from flareclust.core.missing import distances as masked_distances
from flareclust.core.missing.distances import extremes, scaled_distances
from tests.examples import examples


def phi_of(x, y, phi):
    if phi == "euclidean":
        return np.linalg.norm(x - y)
    lengths = np.linalg.norm(x), np.linalg.norm(y)
    if 0 in lengths:
        return float(lengths != (0, 0))
    return ((x / lengths[0] - y / lengths[1]) ** 2).sum() / 2  # 1 - cos without cancellation


def plain_distance(points, i, j, phi):
    """Equations 2 and 3 for one pair; None where the points are not comparable."""
    high, low = np.fmax.reduce(points, axis=0), np.fmin.reduce(points, axis=0)
    common = ~np.isnan(points[i] + points[j])
    if not common.any() or (largest := phi_of(high[common], low[common], phi)) <= 1e-12 * (phi == "cosine"):
        return None
    return phi_of(points[i, common], points[j, common], phi) / largest


def plain_forces(points, cluster, w, phi):
    """f' of equation 10, and the number of comparable pairs."""
    c = max(cluster) + 1
    force, pairs = np.zeros((c, c)), np.zeros((c, c), int)
    for i in range(len(points)):
        for j in range(len(points)):
            if cluster[i] != cluster[j] and (distance := plain_distance(points, i, j, phi)) is not None:
                force[cluster[i], cluster[j]] += 1 / max(distance, 1e-12) ** w
                pairs[cluster[i], cluster[j]] += 1
    return force, pairs


def plain_agglomeration(force, pairs):
    """Algorithm 2, lines 6 to 10, with equation 11 computed anew for all pairs of sets in each step."""
    c = len(force)
    G, names, merges = [[i] for i in range(c)], list(range(c)), []
    for step in range(c - 1):
        best, at = -2.0, (0, 0)
        for r in range(len(G)):
            for s in range(r + 1, len(G)):
                above = sum(force[i][j] for i in G[r] for j in G[s])
                less_than = sum(pairs[i][j] for i in G[r] for j in G[s])
                f = above / less_than if less_than else -1.0
                if f > best:
                    best, at = f, (r, s)
        r, s = at
        G[r] = G[r] + G.pop(s)
        merges.append((*sorted((names[r], names.pop(s))), np.nan if best == -1 else best, len(G[r])))
        names[r] = c + step
    return merges


def plain_silhouette(points, labels, phi):
    values = []
    for i in range(len(points)):
        near = {}
        for j in range(len(points)):
            if i != j and (distance := plain_distance(points, i, j, phi)) is not None:
                near.setdefault(labels[j], []).append(distance)
        own = near.pop(labels[i], None)
        if not near:
            continue
        a, b = np.mean(own or [0]), min(np.mean(each) for each in near.values())
        values.append((b - a) / max(a, b) if own and max(a, b) > 0 else 0.0)
    return np.mean(values) if values else np.nan


@st.composite
def problems(draw):
    """Points of clusters of sites with few columns, on a grid (coinciding points, constant columns) or off it."""
    D, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    on_grid = draw(st.booleans())
    points, cluster = [], []
    for _ in range(m):
        mask = rng.random(D) < 0.5
        mask[rng.integers(D)] = True
        for _ in range(rng.integers(1, 4)):
            size = rng.integers(1, 4)
            x = rng.integers(0, 4, (size, D)).astype(float) if on_grid else 100 + rng.normal(size=(size, D))
            points.append(np.where(mask, x, np.nan))
            cluster += [len(points) - 1] * size
    points, cluster = np.concatenate(points), rng.permutation(len(points))[cluster]
    order = rng.permutation(len(points))
    return points[order], cluster[order]


@settings(deadline=None, max_examples=examples(100))
@given(problems(), st.sampled_from([1.5, 2.0, 3.0]), st.sampled_from(["euclidean", "cosine"]))
def test_forces_are_those_of_equation_10(problem, w, phi):
    points, cluster = problem
    if phi == "cosine":
        points = points + 0.5  # a direction may be rounded, so those that coincide would attract at random
        points[:, :1] *= np.arange(1, len(points) + 1)[:, None] ** 0.3
    found, expected = pair_forces(points, cluster, w, phi), plain_forces(points, cluster, w, phi)
    np.testing.assert_array_equal(found.pairs, expected[1])
    if phi == "euclidean":
        np.testing.assert_allclose(found.force, expected[0], rtol=1e-8)
    else:
        near = expected[0] > 1e12  # of distances near rounding no digit is left
        np.testing.assert_allclose(found.force[~near], expected[0][~near], rtol=1e-6)
        assert (found.force[near] > 1e9).all()


def test_a_force_worked_out_by_hand():
    # Columns a, b, c. Extremes: a 0..4, b 0..3, c 0..10. Site 0 knows a and b, site 1 b and c, site 2 a.
    nan = np.nan
    points = [[0, 0, nan], [4, 3, nan], [nan, 1, 0], [nan, 3, 10], [2, nan, nan]]
    force, pairs = pair_forces(points, [0, 0, 1, 1, 2], w=2)
    # 0-1 on b: (1, 3, 2, 0) / 3, of which the last counts as 1e-12. 0-2 on a: (2, 2) / 4. 1-2: nothing in common.
    assert pairs.tolist() == [[0, 4, 2], [4, 0, 0], [2, 0, 0]]
    assert force[0, 1] == pytest.approx(9 + 1 + 9 / 4 + 1e24)
    assert force[0, 2] == pytest.approx(8)
    assert force[1, 2] == 0
    np.testing.assert_array_equal(force, force.T)


def test_distances_are_those_of_the_other_masked_algorithms(rng):
    points = rng.normal(size=(24, 6))
    cluster, mask = np.repeat(np.arange(6), 4), rng.random((6, 6)) < 0.6
    points[~mask[cluster]] = np.nan
    for phi in ("euclidean", "cosine"):
        plain = np.nan_to_num(scaled_distances(points, points, extremes(points), phi))
        np.fill_diagonal(plain, 0)
        expected = np.stack([plain[:, cluster == q].sum(axis=1) for q in range(6)], axis=1)
        found = point_sums(points, cluster, lambda distance: distance, phi)
        np.testing.assert_allclose(found.sums, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(found.comparable, mask.astype(int) @ mask.T > 0)
        np.testing.assert_array_equal(found.size, 4)


def test_small_clusters_far_from_each_other_and_from_the_origin_keep_their_digits(rng, monkeypatch):
    centers = 1e3 + np.array([[0.0] * 5, [1e-5] * 5, [50.0] * 5])
    points = np.concatenate([center + 1e-6 * rng.normal(size=(20, 5)) for center in centers])
    cluster = np.repeat(np.arange(3), 20)
    expected = plain_forces(points, cluster, 2.0, "euclidean")[0]
    np.testing.assert_allclose(pair_forces(points, cluster).force, expected, rtol=1e-7)
    # So they do where no pair is computed again, which would take long for many such pairs.
    monkeypatch.setattr(module, "_CLOSE", 0.0)
    np.testing.assert_allclose(pair_forces(points, cluster).force, expected, rtol=1e-4)


def test_clusters_may_come_in_pieces_and_blocks(rng, monkeypatch):
    points, cluster = rng.normal(size=(60, 5)), rng.permutation(np.repeat(np.arange(12), 5))
    points[(cluster < 5)[:, None] & (np.arange(5) == 2)] = np.nan
    whole = pair_forces(points, cluster)
    monkeypatch.setattr(module, "_POINTS", 11)
    monkeypatch.setattr(masked_distances, "_BLOCK", 20)
    found = pair_forces(points, cluster)
    np.testing.assert_allclose(found.force, whole.force, rtol=1e-12)
    np.testing.assert_array_equal(found.pairs, whole.pairs)


def test_units_and_origins_of_columns_change_nothing(rng):
    points, cluster = rng.normal(size=(20, 1)), np.repeat(np.arange(4), 5)
    np.testing.assert_allclose(
        pair_forces(1e3 * points - 7, cluster).force, pair_forces(points, cluster).force, rtol=1e-8
    )


def test_a_column_in_which_no_two_points_differ_makes_no_clusters_comparable():
    # In the last column, all that the two sites have in common, everybody has the same value.
    nan = np.nan
    points = np.array([[1.0, nan, 0.1], [2.0, nan, 0.1], [nan, 5.0, 0.1], [nan, 9.0, 0.1]])
    force, pairs = pair_forces(points, [0, 1, 2, 3])
    assert pairs.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert force[0, 1] == force[2, 3] == 1
    force, pairs = pair_forces(np.ones((4, 2)), [0, 0, 1, 1])
    assert not force.any()
    assert not pairs.any()


def test_one_column_of_positive_numbers_has_no_directions_to_compare():
    points = np.array([[1.0, 5.0, np.nan], [2.0, 1.0, np.nan], [np.nan, 3.0, 1.0], [np.nan, 4.0, 9.0]])
    _, pairs = pair_forces(points, [0, 1, 2, 3], phi="cosine")
    assert pairs.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert pair_forces(points, [0, 1, 2, 3]).pairs.sum() == 12


def test_coinciding_points_attract_as_if_a_billionth_of_a_thousandth_apart():
    points = [[0.0, 0.0]] * 6 + [[3.0, 4.0]]
    force, _ = pair_forces(points, [0, 0, 0, 1, 1, 1, 2])
    assert force[0, 1] == pytest.approx(9e24)
    assert force[0, 2] == pytest.approx(3)


def test_the_cosine_distance_of_a_zero_vector_is_one_and_of_two_zero():
    # The extremes are (1, 2) and (0, 0), so all distances are divided by 1.
    force, _ = pair_forces([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], [0, 1, 2, 3], phi="cosine")
    np.testing.assert_allclose(force[0], [0, 1e24, 1, 1])
    assert force[2, 3] == pytest.approx(1)


def test_what_is_no_set_of_clusters_is_refused():
    points = np.arange(8.0).reshape(4, 2)
    with pytest.raises(UserError, match="w must be"):
        pair_forces(points, [0, 0, 1, 1], w=1)
    with pytest.raises(UserError, match="did you mean 'cosine'"):
        pair_forces(points, [0, 0, 1, 1], phi="cosin")
    with pytest.raises(UserError, match="1 has no point"):
        pair_forces(points, [0, 0, 2, 2])
    points[0, 0] = np.nan
    with pytest.raises(UserError, match="same columns"):
        pair_forces(points, [0, 0, 1, 1])


@st.composite
def attractions(draw):
    """Integers, so that sums are exact and ties are ties; some pairs are not comparable."""
    c = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    force, pairs = rng.integers(0, draw(st.sampled_from([3, 1000])), (c, c)), rng.integers(1, 4, (c, c))
    pairs *= rng.random((c, c)) < draw(st.sampled_from([1.0, 0.6, 0.2]))
    force, pairs = np.triu(force * (pairs > 0), 1), np.triu(pairs, 1)
    return force + force.T, pairs + pairs.T


@settings(deadline=None, max_examples=examples(200))
@given(attractions())
def test_the_tree_is_that_of_the_algorithm_followed_word_by_word(attraction):
    tree = agglomerate(*attraction)
    expected = plain_agglomeration(*attraction)
    assert [len(column) for column in tree] == [len(attraction[0]) - 1] * 4
    for found, merge in zip(zip(*tree, strict=True), expected, strict=True):
        np.testing.assert_equal(found, merge)


@settings(deadline=None, max_examples=examples(200))
@given(attractions())
def test_attraction_never_grows_and_what_is_not_comparable_comes_last(attraction):
    force = agglomerate(*attraction).force
    known = force[~np.isnan(force)]
    assert np.isnan(force[len(known) :]).all()
    assert (np.diff(known) <= 1e-9 * np.abs(known[1:])).all()


@pytest.mark.parametrize("c", [2, 40, 150])
def test_where_all_is_comparable_the_tree_is_scipys_average_linkage(rng, c):
    force = np.triu(rng.random((c, c)), 1)
    force += force.T
    tree = agglomerate(6 * force, np.full((c, c), 6))
    far = force.max() + 1
    expected = linkage(squareform(far - force, checks=False) if c > 2 else [far - force[0, 1]], "average")
    np.testing.assert_array_equal(np.sort(expected[:, :2], axis=1), np.stack([tree.left, tree.right], axis=1))
    np.testing.assert_allclose(far - expected[:, 2], tree.force, atol=1e-10)
    np.testing.assert_array_equal(expected[:, 3], tree.size)
    own = np.stack([tree.left, tree.right, far - tree.force, tree.size], axis=1).astype(float)
    assert is_valid_linkage(own)
    for k in (1, 2, c // 2, c):
        group = cut(tree, k)
        theirs = fcluster(own, k, "maxclust")
        assert len(set(zip(group.tolist(), theirs.tolist(), strict=True))) == k == len(set(group.tolist()))


def test_pairs_that_cannot_be_compared_do_not_weaken_the_others():
    # 0 and 1 are comparable with 2 alone, strongly; 3 attracts all, a little less. {0, 2} to 1 is (0 + 90) / 10 pairs,
    # not / 20: so 1 joins them, not 3.
    force = np.array([[0, 0, 100, 60], [0, 0, 90, 60], [100, 90, 0, 60], [60, 60, 60, 0]])
    pairs = np.array([[0, 0, 10, 10], [0, 0, 10, 10], [10, 10, 0, 10], [10, 10, 10, 0]])
    tree = agglomerate(force, pairs)
    assert tree.force.tolist() == [10, 9, 6]
    assert cut(tree, 2).tolist() == [0, 0, 0, 1]


def test_a_cut_numbers_its_sets_by_their_first_cluster():
    tree = Tree(*(np.array(x) for x in ([1, 0, 4], [3, 2, 5], [3.0, 2.0, 1.0], [2, 2, 4])))
    assert cut(tree, 4).tolist() == [0, 1, 2, 3]
    assert cut(tree, 3).tolist() == [0, 1, 2, 1]
    assert cut(tree, 2).tolist() == [0, 1, 0, 1]
    assert cut(tree, 1).tolist() == [0, 0, 0, 0]
    for k in (0, 5):
        with pytest.raises(UserError, match="k must be"):
            cut(tree, k)


def test_what_is_no_attraction_is_refused():
    with pytest.raises(UserError, match="shape"):
        agglomerate(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(UserError, match="same shape"):
        agglomerate(np.zeros((2, 2)), np.zeros((3, 3)))
    with pytest.raises(UserError, match="symmetric"):
        agglomerate([[0, 1], [2, 0]], np.ones((2, 2)))


def planted(rng, m, k, masks, size=40):
    """Clusters of m sites around the same k centers in len(masks[0]) columns, of which each site knows its own."""
    centers = 6 * rng.permutation(np.arange(k * masks.shape[1]) % k).reshape(k, -1) + rng.normal(
        size=(k, masks.shape[1])
    )
    points = np.concatenate([rng.normal(size=(size, masks.shape[1])) + center for _ in range(m) for center in centers])
    points[~np.repeat(masks, k * size, axis=0)] = np.nan
    return points, np.repeat(np.arange(m * k), size)


def chain(m, width, overlap):
    """Each site shares `overlap` columns with the next and none with the one after it."""
    step = width - overlap
    column = np.arange(step * m + overlap)
    return np.array([(column >= step * i) & (column < step * i + width) for i in range(m)])


@pytest.mark.parametrize("phi", ["euclidean", "cosine"])
def test_clusters_are_matched_along_a_chain_of_sites_that_share_few_columns(rng, phi):
    masks = chain(6, 12, 5)
    points, cluster = planted(rng, 6, 3, masks)
    group = cut(agglomerate(*pair_forces(points, cluster, phi=phi)), 3)
    assert group.reshape(6, 3).tolist() == [[0, 1, 2]] * 6


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_number_of_planted_clusters_is_found(rng, k):
    masks = chain(5, 20, 10)
    points, cluster = planted(rng, 5, k, masks)
    tree = agglomerate(*pair_forces(points, cluster))
    assert choose_k(tree, points, cluster, 10) == k
    assert choose_k(tree, points, cluster, k - 1) == max(k - 1, 1)


def test_on_complete_points_the_choice_is_that_of_scikit_learns_silhouette(rng):
    points, cluster = rng.normal(size=(60, 4)) + 3 * rng.normal(size=(60, 1)), np.repeat(np.arange(20), 3)
    cluster[-1] = 20  # a cluster with one point: 0 by convention
    tree = agglomerate(*pair_forces(points, cluster))
    seen = point_sums(points, cluster, lambda distance: distance)
    expected = [silhouette_score(points, cut(tree, k)[cluster]) for k in range(2, 22)]
    np.testing.assert_allclose([_silhouette(seen, cluster, cut(tree, k)) for k in range(2, 22)], expected, rtol=1e-9)
    assert choose_k(tree, points, cluster, 99) == 2 + int(np.argmax(expected))


@settings(deadline=None, max_examples=examples(100))
@given(problems(), st.data())
def test_silhouettes_count_comparable_points_alone(problem, data):
    points, cluster = problem
    c = int(cluster.max()) + 1
    group = cut(agglomerate(*pair_forces(points, cluster)), data.draw(st.integers(1, c)))
    seen = point_sums(points, cluster, lambda distance: distance)
    expected = plain_silhouette(points, group[cluster], "euclidean")
    np.testing.assert_allclose(_silhouette(seen, cluster, group), expected, rtol=1e-8, atol=1e-8)


def test_the_choice_of_k_has_an_answer_where_there_is_no_silhouette(rng):
    one = agglomerate([[0.0]], [[0]])
    assert choose_k(one, rng.normal(size=(5, 2)), np.zeros(5, int), 4) == 1
    # Two sites with one cluster each and nothing in common: nothing speaks for merging.
    points = np.full((6, 2), np.nan)
    points[:3, 0], points[3:, 1] = rng.normal(size=(2, 3))
    cluster = np.repeat([0, 1], 3)
    tree = agglomerate(*pair_forces(points, cluster))
    assert np.isnan(tree.force).all()
    assert choose_k(tree, points, cluster, 4) == 2
    assert choose_k(tree, points, cluster, 1) == 1
    with pytest.raises(UserError, match="2 clusters of the tree"):
        choose_k(tree, points[:3], cluster[:3], 2)
