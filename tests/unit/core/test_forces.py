"""Attraction of clusters against loops that follow the equations word by word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.core import forces as module
from flareclust.core.forces import pair_forces, point_sums
from flareclust.core.missing import distances as masked_distances
from flareclust.core.missing.distances import extremes, scaled_distances
from tests.examples import examples
from tests.unit.core.forces_cases import plain_distance, problems


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
        found = point_sums(points, cluster, phi=phi)
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
