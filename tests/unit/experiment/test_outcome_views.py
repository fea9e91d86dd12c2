"""What a view says of outcomes where curves end early, and of what it leaves out."""

import numpy as np
import pytest

from flareclust._foundation.typing import FloatArray
from flareclust.core.outcomes import OutcomeForm, counts_by_outcome
from flareclust.experiment.reports.outcomes import view_of_outcomes
from flareclust.protocol import cluster_arrays as keys
from tests.unit.evaluation.test_outcomes import counted


@pytest.mark.parametrize(
    ("last", "shown", "said"),
    [((20.0, 1.0), "0 %", False), ((20.0, 0.0), "–", True), ((30.0, 0.0), "50 %", False)],  # noqa: RUF001
    ids=["with the event", "leaves before the end", "is there at the end"],
)
def test_a_share_is_shown_for_times_at_which_somebody_is_left(last, shown, said):
    """Of two rows the first has the event at 10; the last time is 30."""
    form = OutcomeForm("time", every=1.0, until=30.0)
    outcomes, labels = np.array([(10.0, 1.0), last] * 2), np.array([0, 0, 1, 1])
    outcomes[3] = (30.0, 0.0)  # cluster 1 has a row at the end, whatever cluster 0 has
    arrays = {keys.OUTCOME_FORM: form.numbers, keys.OUTCOME_ADJUSTED: np.array(0)}
    arrays |= {keys.OUTCOME_COUNTS: counts_by_outcome(outcomes, labels, 2, form)}
    view = view_of_outcomes(arrays | {keys.OUTCOME_NAMES: np.array(["died", "d"])}, "patients")
    assert view is not None
    first, second = ([str(getattr(cell, "text", cell)) for cell in row] for row in view.table.rows)
    assert (first[4], second[4]) == (shown, "50 %")
    text = "cluster 0: nobody is there until 30 d, so the share without the event is not known then"
    assert (text in view.notes) == said
    assert any(note.startswith("a small p says") for note in view.notes)


@pytest.mark.parametrize(
    ("outcomes", "form", "why"),
    [
        (np.tile([5.0, 0.0], (30, 1)), OutcomeForm("time", every=1.0, until=10.0), "no event in any cluster"),
        (
            np.column_stack([np.repeat([1.0, 2.0, 5.0], 10), np.repeat([0.0, 0.0, 1.0], 10)]),
            OutcomeForm("time", every=1.0, until=10.0),
            "no event while rows of two clusters are there",
        ),
        (np.ones((30, 1)), OutcomeForm("category", values=3), "all values are alike"),
        (np.ones((30, 1)), OutcomeForm("ordered", values=3), "all values are alike"),
        (np.ones((30, 1)), OutcomeForm("number"), "fewer than two clusters have values that differ"),
    ],
)
def test_where_nothing_can_be_compared_there_is_no_test_and_the_reason_is_right(
    outcomes: FloatArray, form: OutcomeForm, why: str
) -> None:
    found = counted(outcomes, np.repeat(np.arange(3), 10), 3, form)
    assert found.tests() == []
    view = view_of_outcomes(found.arrays)
    assert view is not None
    assert list(view.tests) == [f"no test: {why}"]
    assert not any("where the test" in note for note in view.notes)


def test_a_share_that_nobody_is_left_to_show_and_an_interval_without_events_are_not_known() -> None:
    early = np.column_stack([np.arange(1.0, 21), np.arange(20) % 3 == 0])  # the last one leaves at 20, of 50
    calm = np.tile([60.0, 0.0], (20, 1))
    whole = np.column_stack([np.arange(1.0, 21), np.arange(20) >= 0])
    outcomes = np.concatenate([early, calm, whole]).astype(np.float64)
    found = counted(outcomes, np.repeat([0, 1, 2], 20), 3, OutcomeForm("time", every=1.0, until=50.0))
    table = found.table()
    np.testing.assert_array_equal(table["survival"], [np.nan, 1.0, 0.0])
    assert np.isnan([*table["lower"], *table["upper"]]).all()
    view = view_of_outcomes(found.arrays)
    assert view is not None
    assert [row[-2:] for row in view.table.rows] == [["–", "–"], ["100 %", "–"], ["0 %", "–"]]  # noqa: RUF001
    assert "cluster 0: nobody is there until 50, so the share without the event is not known then" in view.notes
    assert "cluster 1: no event, so the share without it has no interval" in view.notes
