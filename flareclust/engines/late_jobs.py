"""Late sites of a provisioned federation: a small job of their own places their rows in the clusters found before."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust.aggregators import placed
from flareclust.engines.late_sites import check_late, read_finished, row_name_of
from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job
from flareclust.platform.provisioned import run_job
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.task import StepName

#: Where NVFlare's job has the server's configuration; what lies beside it travels to the server only.
_SERVER_APP = "app_server"


def place_at(
    folder: Path, kit: Path, sites: Sequence[str], *, new_rows: bool = False, task_timeout: int = 600
) -> Outcome:
    """Let late sites of a federation place their own rows; each keeps its labels.

    Args:
        folder: holds a result.npz and result.json.
        kit: of the admin who submits the job.
        sites: the late sites, all connected.
        new_rows: whether they may have taken part, and have other rows now.
        task_timeout: seconds they have.

    Returns:
        an outcome whose only round has the number of rows placed (`placed_rows`), and whose `refused` says which site
        could not take part. The centroids are those of the finished federation.

    Raises:
        UserError: the folder holds no result, or a site is not connected or took part.
        JobFailed: no site could place its rows, or the job failed.
    """
    finished, about = read_finished(folder)
    if not sites:
        raise UserError("name the late site (--site)")
    for site in () if new_rows else sites:
        check_late(finished, site, row_name_of(about))
    algorithm = registry.get(about["algorithm"])
    if not algorithm.federated:
        raise UserError(f"{algorithm.name} is not federated; place the late site's file with --data")
    k, seed, params = about["k"], about["seed"], about["params"]
    executor, _ = algorithm.build(k, seed, params)
    options = JobOptions.of_any_site(k=k, seed=seed, task_timeout=task_timeout)
    sides = executor, placed.PlacedAggregator(k, seed)
    job = build_job(
        algorithm, params, options, job_name=f"place-{algorithm.name}", sides=sides, sites=sites, tasks=[StepName.PLACE]
    )

    def add_arrays(exported: Path) -> None:
        np.savez(
            exported / _SERVER_APP / "config" / placed.FILE, allow_pickle=False, **executor.placing(finished.arrays)
        )

    return run_job(
        job, kit, 3 * task_timeout, check=lambda known, missing: _check_connected(known, sites), amend=add_arrays
    )


def placed_rows(outcome: Outcome) -> int:
    """Return how many rows the late sites have placed."""
    diagnostics = outcome.rounds[-1]["diagnostics"]
    assert isinstance(diagnostics, dict)
    return int(diagnostics[placed.ROWS])


def _check_connected(connected: Sequence[str], sites: Sequence[str]) -> None:
    if missing := sorted(set(sites) - set(connected)):
        raise UserError(
            f"{', '.join(missing)}: not connected to the server, which has {', '.join(connected) or 'no site'}; start it "
            "(startup/start.sh in its kit), or correct the name"
        )
