"""What a view says of outcomes where curves end early, and of what it leaves out."""

import numpy as np
import pytest

from flareclust.core.outcomes import OutcomeForm, counts_by_outcome
from flareclust.experiment.reports.outcomes import view_of_outcomes
from flareclust.protocol import cluster_arrays as keys


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
