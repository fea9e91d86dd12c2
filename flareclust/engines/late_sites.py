"""Sites that come when the federation is over: their rows get clusters without asking anybody else.

k-FED proves that this is right for its own case (Dennis et al. 2021, Theorem 3.2): a late device's local centers belong
where the nearest of the centers that the server had chosen belongs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.display import in_unit
from flareclust._foundation.errors import BadMessage, JobFailed, Refusal, UserError
from flareclust._foundation.typing import FloatArray, IntArray, never_abort
from flareclust.core.lloyd import labels_of
from flareclust.data.tables import Table
from flareclust.preparation import alignment
from flareclust.preparation import result as different_result
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.task import StepName, Task


def place(folder: Path, rows: FloatArray | Table, site: str, *, new_rows: bool = False) -> IntArray:
    """Return the labels of `placed`, whose arguments and errors it has."""
    return placed(folder, rows, site, new_rows=new_rows)[0]


def placed(
    folder: Path, rows: FloatArray | Table, site: str, *, new_rows: bool = False
) -> tuple[IntArray, Mapping[str, FloatArray]]:
    """Return the cluster (n,) of each of a late site's rows (n, d), and what the algorithm says of each beside it.

    The cluster is -1 where nothing known can be compared with a row.

    Args:
        folder: holds a result.npz and result.json, as a run or a finished NVFlare job leaves them.
        rows: of the late site.
        site: its name, from which its random choices follow.
        new_rows: whether it may have taken part, and these are other rows.

    Raises:
        UserError: the folder holds no result, or the rows do not fit it.
    """
    finished, about = read_finished(folder)
    algorithm, row_name = registry.get(about["algorithm"]), row_name_of(about)
    if not new_rows:
        check_late(finished, site, row_name)
    if not algorithm.federated and not algorithm.partial:
        return labels_of(rows.X if isinstance(rows, Table) else rows, finished.centroids), {}
    if not algorithm.federated:
        table = rows if isinstance(rows, Table) else Table(rows)
        try:
            own, has = alignment.own_view(table, {"columns": finished.arrays["columns"]})
        except Refusal as reason:
            raise UserError(f"{site} {in_unit(str(reason), row_name)}") from None
        known = np.full((len(own), len(finished.arrays["columns"])), np.nan)
        known[:, has] = own
        return different_result.place_rows(algorithm.name, about["params"], finished.arrays, known), {}
    executor, _ = algorithm.build(about["k"], about["seed"], about["params"])
    try:
        task = Task(StepName.PLACE, finished.n_rounds, executor.placing(finished.arrays), site)
        answer = executor.answer(task, rows, never_abort)
    except Refusal as reason:
        raise UserError(f"{site} {in_unit(str(reason), row_name)}") from None
    except (BadMessage, KeyError) as reason:
        raise UserError(f"{folder / outcome_files.ARRAYS} is no result of {algorithm.name}: {reason}") from None
    assert answer.labels is not None
    return answer.labels, answer.details


def row_name_of(about: Mapping[str, Any]) -> str:
    """Return what a finished run calls its rows, by its summary."""
    experiment = about.get("experiment")
    named = experiment.get("row_name") if isinstance(experiment, Mapping) else None
    return named if isinstance(named, str) else "rows"


def check_late(finished: Outcome, site: str, row_name: str = "rows") -> None:
    """Raise UserError where a site is none that came late; `row_name` is what the run calls its rows."""
    if site in finished.sites and site not in finished.refused:
        raise UserError(
            f"{site} took part and has its labels; for {row_name} that came later say --new-rows, and give a late site a name of its own (--site)"
        )


def read_finished(folder: Path) -> tuple[Outcome, dict[str, Any]]:
    """Return what `flareclust.protocol.outcome.read` does; raise UserError where there is no result."""
    try:
        finished, about = outcome_files.read(folder)
    except JobFailed as error:
        raise UserError(f"expected a folder with result.npz and result.json: {error}") from None
    if missing := [name for name in ("algorithm", "k", "seed", "params") if name not in about]:
        raise UserError(f"{folder / outcome_files.SUMMARY} does not say {', '.join(missing)}; was it edited?")
    if odd := [name for name in ("params", "metrics", "assessed") if not isinstance(about.get(name) or {}, dict)]:
        raise UserError(f"{folder / outcome_files.SUMMARY} has no names and values in {', '.join(odd)}; was it edited?")
    return finished, about
