"""Rows by cluster and outcome: hand-worked counts, and what remains of small numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust.core.outcomes import (
    OutcomeForm,
    as_multiples,
    chances_of,
    counts_by_outcome,
    sums_by_cluster,
)

TIMES = OutcomeForm("time", every=10.0, until=40.0)


def test_times_count_at_the_end_of_their_interval() -> None:
    outcomes = np.array([[0, 1], [0.5, 1], [10, 1], [10.1, 0], [40, 1], [41, 1], [400, 0], [np.nan, 1], [5, np.nan]])
    counts = counts_by_outcome(outcomes, np.array([0, 0, 0, 0, 1, 1, 1, 0, 0]), 2, TIMES)
    assert TIMES.times.tolist() == [0, 10, 20, 30, 40]
    assert counts[1].tolist() == [[1, 2, 0, 0, 0], [0, 0, 0, 0, 1]]  # events
    assert counts[0].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 2]]  # the event at 41 came too late


def test_an_interval_that_is_no_integer_puts_its_own_multiples_where_they_belong() -> None:
    form = OutcomeForm("time", every=0.1, until=1.0)
    times = np.arange(11) * 0.1
    counts = counts_by_outcome(np.column_stack([times, np.ones(11)]), np.zeros(11, dtype=np.int64), 1, form)
    assert counts[1, 0].tolist() == [1] * 11


def test_rows_of_no_cluster_and_unknown_values_do_not_count() -> None:
    form = OutcomeForm("category", values=3)
    counts = counts_by_outcome(np.array([[0.0], [2.0], [2.0], [np.nan]]), np.array([0, 1, -1, 1]), 2, form)
    assert counts.tolist() == [[[1, 0, 0], [0, 0, 1]]]


def test_sums_are_about_the_origin() -> None:
    rows, total, squares = sums_by_cluster(np.array([[11.0], [13.0], [9.0], [np.nan]]), np.array([0, 0, 1, 1]), 2, 10.0)
    assert (rows.tolist(), total.tolist(), squares.tolist()) == ([2, 1], [4.0, -1.0], [10.0, 1.0])


@pytest.mark.parametrize(
    "form",
    [
        {"kind": "time", "every": 0.0},
        {"kind": "time", "every": 2.0, "until": 1.0},
        {"kind": "time", "every": 1.0, "until": 1e6},
        {"kind": "time", "until": np.inf},
        {"kind": "time", "until": np.nan},
        {"kind": "category", "values": 1},
        {"kind": "ordered", "values": 101},
    ],
)
def test_impossible_forms_are_refused(form: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="outcome: "):
        OutcomeForm(**form)  # type: ignore[arg-type]


def test_a_form_survives_its_numbers() -> None:
    for form in (TIMES, OutcomeForm("ordered", values=4), OutcomeForm("number")):
        assert OutcomeForm.of(form.numbers) == form
    for numbers in ([4, 0, 1, 1], [0.5, 0, 1, 1], [1, np.nan, 1, 1], [np.nan, 0, 1, 1]):
        with pytest.raises(ValueError, match="outcome: "):
            OutcomeForm.of(np.array(numbers, dtype=np.float64))


@given(st.lists(st.integers(0, 12), min_size=5, max_size=5), st.integers(2, 20), st.floats(0, 1, exclude_max=True))
def test_no_small_number_of_times_remains_and_no_row_is_lost_but_by_chance(
    counts: list[int], floor: int, chance: float
) -> None:
    given_ = np.array([[counts], [counts[::-1]]])
    kept = as_multiples(given_, floor, np.array([chance]), TIMES)
    assert not (kept % floor).any()
    total, rest = sum(counts), sum(counts) % floor
    expected = total - rest + (floor if chance < rest / floor else 0)
    assert kept.sum(axis=(1, 2)).tolist() == [expected, expected]


def test_times_are_added_up_to_the_middle_one() -> None:
    counts = np.array([[[0, 0, 0, 0, 0]], [[2, 1, 0, 2, 1]]])
    kept = as_multiples(counts, 3, np.zeros(1), TIMES)
    assert kept[1, 0].tolist() == [3, 0, 0, 3, 0]  # of 0, 0, 10 the middle is 0; of 30, 30, 40 it is 30


def test_small_numbers_of_categories_are_right_on_average() -> None:
    counts, form = np.array([[[3, 24], [0, 10]]]), OutcomeForm("category", values=2)
    chances = (np.arange(1000) + 0.5) / 1000
    kept = [as_multiples(counts, 10, np.array([one, one]), form) for one in chances]
    np.testing.assert_allclose(np.mean(kept, axis=0), [[[3.0, 24.0], [0.0, 10.0]]])
    assert not (np.array(kept) % 10).any()


def test_the_same_rows_have_the_same_chance_in_any_order() -> None:
    rng = np.random.default_rng(0)
    X, outcomes, labels = rng.normal(size=(40, 2)), rng.normal(size=(40, 2)), rng.integers(-1, 3, size=40)
    order = rng.permutation(40)
    chances = chances_of(X, outcomes, labels, 3)
    assert chances.tolist() == chances_of(X[order], outcomes[order], labels[order], 3).tolist()
    assert ((chances >= 0) & (chances < 1)).all()
    assert len(set(chances.tolist())) == 3
    outcomes[np.flatnonzero(labels == 1)[0], 0] += 1e-9
    assert (chances_of(X, outcomes, labels, 3) != chances).tolist() == [False, True, False]
