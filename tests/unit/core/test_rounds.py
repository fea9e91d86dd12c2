"""What iterative servers share: matching by brute force, movement by hand and its invariances, the history."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.core.rounds import check_start, check_tol, match, movement, remember
from tests.examples import examples


def distances(A, B):
    return np.linalg.norm(A[:, None] - B[None], axis=2)


@pytest.mark.parametrize("seed", range(10))
def test_the_match_has_the_smallest_total_of_all(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(4, 2)), rng.normal(size=(5, 2))
    rows, columns = match(A, B)
    assert rows.tolist() == [0, 1, 2, 3]
    assert len(set(columns)) == 4
    smallest = min(distances(A, B)[range(4), list(order)].sum() for order in permutations(range(5), 4))
    assert distances(A, B)[rows, columns].sum() == pytest.approx(smallest)


def test_distances_are_not_squared_in_the_match():
    """By distances 0-0 and 1-1 come to 0 + 10; by squares the other pairing would win with 2 * 36 < 100."""
    A, B = np.array([[0.0, 0.0], [6.0, 0.0]]), np.array([[0.0, 0.0], [-3.0, 4.5]])
    straight = distances(A, B)[[0, 1], [0, 1]]
    crossed = distances(A, B)[[0, 1], [1, 0]]
    assert straight.sum() < crossed.sum()
    assert (straight**2).sum() > (crossed**2).sum()
    assert match(A, B)[1].tolist() == [0, 1]


@pytest.mark.parametrize("offset", [0.0, -7.25, 1e9])
def test_of_matchings_with_equal_sums_the_one_with_least_squares_is_taken(offset):
    """Each of 0 and 1 to each of 2 and 3 comes to 4; so do all matchings of columns that say the same."""
    A, B = np.array([[1.0], [0.0]]) + offset, np.array([[2.0], [3.0]]) + offset
    for columns in (1, 2):
        assert match(np.tile(A, columns), np.tile(B, columns))[1].tolist() == [1, 0]


def test_movement_by_hand():
    """New centroids at 0 and 8: spread 4; the one that moved farthest went 2."""
    assert movement(np.array([[6.0], [1.0]]), np.array([[0.0], [8.0]])) == pytest.approx(2 / 4)


def test_one_centroid_moves_in_the_datas_own_unit():
    assert movement(np.array([[1.0, 1.0]]), np.array([[4.0, 5.0]])) == 5.0


def test_more_or_fewer_centroids_are_infinitely_far():
    assert movement(np.zeros((2, 2)), np.zeros((3, 2))) == float("inf")


@settings(max_examples=examples(50), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    order=st.permutations(range(4)),
    scale=st.sampled_from([1e-6, 2.0, 1e9]),
    shift=st.floats(-10, 10),
)
def test_movement_has_no_unit_no_origin_and_no_order(seed, order, scale, shift):
    old, new = np.random.default_rng(seed).normal(size=(2, 4, 2))
    here = movement(old, new)
    assert movement(scale * (old[order] + shift), scale * (new + shift)) == pytest.approx(here, rel=1e-6)
    assert movement(new, new[order]) == 0.0


def test_the_history_keeps_every_round_with_nan_for_missing_centroids():
    one = remember(None, np.array([[1.0, 2.0], [3.0, 4.0]]), 3)
    two = remember(one, np.array([[5.0, 6.0]]), 3)
    nan = [np.nan, np.nan]
    np.testing.assert_array_equal(one, [[[1, 2], [3, 4], nan]])
    np.testing.assert_array_equal(two, [[[1, 2], [3, 4], nan], [[5, 6], nan, nan]])


@pytest.mark.parametrize("tol", [0, 1, 1e-9])
def test_a_tolerance_is_a_number_from_zero_up(tol):
    found = check_tol(tol)
    assert found == tol
    assert isinstance(found, float)


@pytest.mark.parametrize("tol", [-1e-9, float("nan"), float("inf"), True, "1e-4", None])
def test_other_tolerances_are_refused(tol):
    with pytest.raises(UserError, match="tol must be a finite number of at least 0"):
        check_tol(tol)


@pytest.mark.parametrize(
    "start", [((0, 1.5), (2, 3)), np.array([[0, 1.5], [2, 3]]), list(np.array([[0, 1.5], [2, 3]]))]
)
def test_a_start_is_given_back_as_lists_of_floats(start):
    found = check_start(start, 2, ("name",))
    assert found == [[0.0, 1.5], [2.0, 3.0]]
    assert {type(x) for row in found for x in row} == {float}
    assert check_start("name", 2, ("name",)) == "name"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("nam", r"start must be one of name; got 'nam' \(did you mean 'name'\?\)"),
        (None, "start must be one of name, or k=2 different centroids as lists of as many numbers each; got None"),
        (np.array(5.0), "got array"),
        ([], r"got \[\]"),
        ([[], []], r"got \[\[\], \[\]\]"),
        ([1, 2], r"got \[1, 2\]"),
        ([[[1]], [[2]]], r"got \[\[\[1\]\]"),
        ([["1"], ["2"]], r"got \[\['1'\]"),
        ([[1.5, True], [2, 3]], r"got \[\[1.5, True\]"),
        ([[1.5, None], [2, 3]], "got "),
        ([[1 + 1j], [2]], "got "),
        ([[1, 2], [3]], "lists of different lengths"),
        ([[float("nan")], [2]], "NaN, infinite or huge"),
        ([[-float("inf")], [2]], "NaN, infinite or huge"),
        ([[2e140], [2]], "NaN, infinite or huge"),
        ([[10**400], [2]], "NaN, infinite or huge"),
        ([[1], [2], [3]], "got 3, 3 of them different"),
        ([[1, 0.0], [1, -0.0]], "got 2, 1 of them different"),
        ([list(range(100)), [1]], "got lists of different lengths"),
        ([list(range(100)), ["x"]], r"got \[\[0, 1, 2, .{49}\.\.\.$"),
    ],
    ids=str,
)
def test_a_start_that_is_neither_a_name_nor_centroids_is_refused(start, said):
    with pytest.raises(UserError, match=said):
        check_start(start, 2, ("name",))
