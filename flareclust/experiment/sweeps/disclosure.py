"""The disclosure record of a sweep: whether its tables, page and file of trials may be released."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flareclust.evaluation.disclosure import REVIEW, Cells, Finding, Output, Rule, record_of_all
from flareclust.experiment.sweeps.trials import TrialRun

#: Trials differ in settings only, so what two of them let out of the same rows can be compared.
_SAME_ROWS = Finding(REVIEW, "several results of the same rows: their differences may disclose more than each of them")

#: Trials keep means of the rows only.
_OF_MEANS = Finding(REVIEW, "dominance (p % rule, (n, k) rule) needs the rows, of which trials keep means only")


def sweep_disclosure(done: Sequence[TrialRun], files: Sequence[str], clusters: Sequence[str]) -> dict[str, Any]:
    """Return the record of a sweep, plain JSON; docs/disclosure.md has its fields.

    Args:
        done: the trials that are over.
        files: names of those that show the numbers of the cells.
        clusters: names of those that show the clusters of trials.
    """
    return record_of_all(_outputs(done, files, clusters), Rule(), "", "")


def _outputs(done: Sequence[TrialRun], files: Sequence[str], clusters: Sequence[str]) -> Iterator[Output]:
    found = {one.trial.name: one.measured.clusters for one in done if one.measured is not None}
    known = {name: one for name, one in found.items() if one is not None}
    least = min((sum(one.rows) for one in known.values()), default=0)
    all_rows = Cells(np.array([[least]]), ["all"], ["rows"]) if least and len(known) == len(found) else None
    shown = (*files, *clusters)
    yield Output("cells", "table", "means of the measures over seeds", shown, all_rows, findings=(_SAME_ROWS,))
    if known:
        rows = np.array([[n] for one in known.values() for n in one.rows], dtype=np.int64)
        names = [f"{name}, cluster {c}" for name, one in known.items() for c in range(len(one.rows))]
        yield Output(
            *("clusters", "table", "rows and means of the clusters of trials", tuple(clusters)),
            cells=Cells(rows, names, ["rows"]),
            findings=(_SAME_ROWS, _OF_MEANS),
            noisy=False,
        )
