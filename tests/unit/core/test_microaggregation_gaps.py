"""Tables with gaps: what stands for missing cells follows from what the groups show, and from no other cell."""

import numpy as np
import pytest

from flareclust.core import microaggregation
from flareclust.core.microaggregation import microaggregate, released, without_dominant

FLOOR, GAP = 10, np.nan


def made(X):
    return np.concatenate(list(microaggregate(X, FLOOR)))


@pytest.fixture
def blocks(rng):
    """Two groups of 15 and 12 rows, of which the second lacks the last column, and a row far away that knows all."""
    rows = np.concatenate([rng.normal(c, 1, (n, 3)) for c, n in ((-20, 15), (20, 12))])
    rows[15:, 2] = GAP
    return np.concatenate([rows, [[1e5, 1e5, 1e5]]])


@pytest.mark.parametrize("few", [1, 6])  # six known cells are so many as a group would show
def test_rows_of_no_group_move_nothing(blocks, few):
    expected = made(blocks)
    assert len(expected) == 27
    for far in ([1e5, 1e5, -7e5], [3e5, 2e5, 1e7], [1e5, 1e5, GAP]):
        np.testing.assert_array_equal(made(np.concatenate([blocks[:-1], [far] * few])), expected)


def test_neither_do_cells_of_a_column_that_a_group_does_not_show(blocks):
    expected = made(blocks)
    for few in ([-20.1], [-19.8, -20.1, -20.3, -19.6]):  # below half the floor
        own = blocks.copy()
        own[20 : 20 + len(few), 2] = few
        np.testing.assert_array_equal(made(own), expected)


def test_neither_do_values_that_the_p_rule_moves(blocks):
    own = blocks.copy()
    own[:15, 2] = -20.0
    found = []
    for value in (-19.5, -19.0):
        own[4, 2] = value
        found.append(made(own))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0][:, 2], -20, atol=1e-12)


def test_a_group_without_a_column_shows_the_mean_of_what_the_others_show_by_their_rows(rng):
    labels = np.repeat([0, 1, 2], [12, 16, 14])
    rows = rng.normal(labels[:, None], 0.1, (42, 2))
    rows[28:, 1] = GAP
    rows[:6, 1] = GAP  # six known cells of twelve rows: the group shows their mean
    shown, groups = released(rows, labels)
    np.testing.assert_array_equal(groups, labels)
    first, second = rows[6:12, 1].mean(), rows[12:28, 1].mean()
    expected = np.repeat([first, second, (12 * first + 16 * second) / 28], [12, 16, 14])
    np.testing.assert_allclose(np.where(np.isnan(rows[:, 1]), shown[:, 1], expected), expected)
    np.testing.assert_array_equal(shown[6:28], rows[6:28])


def test_a_column_that_no_group_shows_is_missing_and_so_is_a_table_of_nothing_else(blocks):
    blocks[:12, 2] = GAP
    found = made(blocks)
    assert np.isnan(found[:, 2]).all()
    assert np.isfinite(found[:, :2]).all()
    assert len(made(np.full((40, 2), GAP))) == 0


def test_rows_that_agree_in_what_both_know_are_no_different_rows(rng):
    """Two kinds of rows, each with gaps of its own: mean and spread would disclose both."""
    rows = np.repeat([[1.0, 5.0], [2.0, 7.0]], [7, 5], axis=0)
    rows[[0, 1, 9], 0] = rows[[2, 3, 10], 1] = GAP
    others = np.column_stack([rng.normal(60, 1, 30), rng.normal(60, 1, 30)])
    found = made(np.concatenate([rows, others]))
    assert len(found) == 30
    assert found.min() > 40


@pytest.mark.parametrize("n", [300, 3000])
def test_the_groups_follow_from_the_values_alone(rng, n):
    X = np.round(rng.normal(size=(n, 4)), 1)
    X[rng.random(X.shape) < 0.3] = GAP
    np.testing.assert_array_equal(made(X), made(X[rng.permutation(n)]))


def test_chunks_are_filled_by_themselves(rng, monkeypatch):
    X = rng.normal(size=(2000, 3)) + np.repeat([[0.0], [50.0]], 1000, axis=0)
    X[rng.random(X.shape) < 0.1] = GAP
    parts = [made(part) for part in (X[:1000], X[1000:])]
    monkeypatch.setattr(microaggregation, "CHUNK", 8 * 3 * 1000)
    np.testing.assert_array_equal(made(X), np.concatenate(parts))


# ---- the p % rule beside gaps ----


@pytest.mark.parametrize(
    "values", [[0, 0, 0, 0, 0, 3.7], [0, 0.1, -0.1, 0, 100, -50], [0, 0, 0, 1, 1, 1, 50, 600], [1, 2, 3, 4, 5, 6]]
)
def test_the_p_rule_is_about_the_known_values_alone(values, rng):
    alone = without_dominant(np.array(values, dtype=float)[:, None], np.zeros(len(values), dtype=int))[0]
    places = np.sort(rng.permutation(len(values) + 7)[: len(values)])
    column = np.full((len(values) + 7, 1), GAP)
    column[places, 0] = values
    moved, labels = without_dominant(column, np.zeros(len(column), dtype=int))
    np.testing.assert_array_equal(moved[places], alone)
    assert np.isnan(np.delete(moved, places)).all()
    assert (labels == 0).all()


def test_where_the_p_rule_leaves_too_few_known_values_the_group_shows_none(rng):
    column = [0, 1e-4, -1e-2, 1, -100, 1e4, -1e6]  # as many rows and no gaps: the group is left out
    X = np.column_stack([rng.normal(size=8), [*column, GAP]])
    moved, labels = without_dominant(X, np.zeros(8, dtype=int))
    assert np.isnan(moved[:, 1]).all()
    np.testing.assert_array_equal(moved[:, 0], X[:, 0])
    assert (labels == 0).all()
    assert (without_dominant(X[:7], np.zeros(7, dtype=int))[1] == -1).all()
