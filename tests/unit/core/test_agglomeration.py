"""Agglomeration by attraction and the choice of k against loops, SciPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_score

from flareclust._foundation.errors import UserError
from flareclust.core.agglomeration import Tree, _silhouette, agglomerate, choose_k, cut
from flareclust.core.forces import pair_forces, point_sums
from tests.examples import examples
from tests.unit.core.forces_cases import plain_distance, problems


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
    seen = point_sums(points, cluster)
    expected = [silhouette_score(points, cut(tree, k)[cluster]) for k in range(2, 22)]
    np.testing.assert_allclose([_silhouette(seen, cluster, cut(tree, k)) for k in range(2, 22)], expected, rtol=1e-9)
    assert choose_k(tree, points, cluster, 99) == 2 + int(np.argmax(expected))


@settings(deadline=None, max_examples=examples(100))
@given(problems(), st.data())
def test_silhouettes_count_comparable_points_alone(problem, data):
    points, cluster = problem
    c = int(cluster.max()) + 1
    group = cut(agglomerate(*pair_forces(points, cluster)), data.draw(st.integers(1, c)))
    seen = point_sums(points, cluster)
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
