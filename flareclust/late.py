"""Sites that come when the federation is over: their rows get clusters without asking anybody else.

k-FED proves that this is right for its own case (Dennis et al. 2021, Theorem 3.2): a late device's local centers belong
to the clusters whose means are nearest to them.
"""

import json
from pathlib import Path

from flareclust import outcome as outcome_files
from flareclust import registry
from flareclust.core.lloyd import assign
from flareclust.errors import JobFailed, Refusal, UserError
from flareclust.executors.base import ASSESS, Task
from flareclust.typing import FloatArray, IntArray, never


def place(folder: Path, rows: FloatArray, site: str) -> IntArray:
    """Return the cluster (n,) of each of a late site's rows (n, d).

    Args:
        folder: holds a result.npz and result.json, as a run or a finished NVFlare job leaves them.
        rows: of the late site.
        site: its name, from which its random choices follow.

    Raises:
        UserError: the folder holds no result, or the rows do not fit it.
    """
    try:
        finished, about = outcome_files.read(folder)
    except JobFailed as error:
        raise UserError(f"expected a folder with result.npz and result.json: {error}") from None
    algorithm = registry.get(about["algorithm"])
    if not algorithm.federated:
        return assign(rows, finished.centroids)[0]
    if site in finished.sites and site not in finished.refused:
        raise UserError(f"{site} took part and has its labels; give a late site a name of its own (--site)")
    params = json.loads(json.dumps(about["params"]))
    executor, _ = algorithm.build(about["k"], about["seed"], params)
    task = Task(ASSESS, finished.n_rounds, finished.arrays, site)
    try:
        labels = executor.answer(task, rows, never).labels
    except Refusal as reason:
        raise UserError(f"{site} {reason}") from None
    assert labels is not None
    return labels
