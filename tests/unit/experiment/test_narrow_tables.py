"""Tables of outcomes on a terminal of 80 columns: no cell is cut, and what has no room stands below, after the names of the clusters."""

import numpy as np
import pytest
from rich.console import Console

from flareclust.core.outcomes import OutcomeForm
from flareclust.experiment.reports.outcomes import outcome_lines, view_of_outcomes
from flareclust.experiment.reports.table import Table
from flareclust.experiment.reports.terminal import _fitting
from flareclust.protocol import cluster_arrays as keys

FORMS = {
    "time": OutcomeForm("time", every=30.0, until=1800.0),
    "ordered": OutcomeForm("ordered", values=4),
    "number": OutcomeForm("number"),
}


def arrays(kind: str, *, left_out: bool) -> dict[str, np.ndarray]:
    rng, form = np.random.default_rng(0), FORMS[kind]
    found = {keys.OUTCOME_FORM: form.numbers}
    if kind == "number":
        found[keys.OUTCOME_MOMENTS] = np.array([[120.0, 80.0, 60.0], [1234.5, 2.5, 3.5], [9e4, 80.0, 60.0]])
        names = ["score", "mg/l"]
    else:
        o, t = form.shape
        found[keys.OUTCOME_COUNTS] = rng.integers(1, 40, size=(o, 3, t))
        names = ["died=yes", "d"] if kind == "time" else ["grade", "", "none", "mild", "moderate", "severe"]
    found[keys.OUTCOME_NAMES] = np.array(names)
    found[keys.OUTCOME_NOT_COUNTED] = np.array([0, 12, 0]) * left_out
    return found


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("width", [50, 80, 200])
def test_no_cell_is_cut_and_every_part_names_the_clusters(kind, left_out, width):
    (table,) = (part for part in outcome_lines(arrays(kind, left_out=left_out), "patients") if isinstance(part, Table))
    console = Console(width=width, record=True)
    parts = list(_fitting(table, width))
    console.print(*parts, sep="")
    text = console.export_text()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    cells = [str(getattr(cell, "text", cell)) for row in table.rows for cell in row]
    assert all(cell in text for cell in cells)
    assert all(str(head.text) in text for head in table.heads)
    for c in range(3):
        assert text.count(f"cluster {c}") == len(parts)
    assert width < 200 or len(parts) == 1


def test_rows_that_no_outcome_counts_come_last_and_first_go_below():
    view = view_of_outcomes(arrays("time", left_out=True), "patients")
    assert [head.text for head in view.table.heads][-1] == "not counted"
    first, second = _fitting(view.table, 80)
    assert [column.header for column in second.columns] == ["cluster", "not counted"]
    assert "95 % interval" in [column.header for column in first.columns]
