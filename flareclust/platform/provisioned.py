"""A provisioned federation: the job goes to its server through an admin's kit, as NVFlare's users submit jobs.

NVFlare reports how a job ended in one word. `flareclust.platform.job_monitor` finds out the rest: how far the job is, from the
statistics that the controller offers; why it failed, from the logs of the server; whether it is still there after a crash.

Success is a complete result.json, as in the simulator. NVFlare's status can say otherwise where a site was lost after the
result was complete (docs/adr/0010-lost-sites.md).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.fuel.flare_api.flare_api import Session
from nvflare.job_config.api import FedJob

from flareclust._foundation.errors import JobFailed
from flareclust.engines.options import JobOptions
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import check_resumable
from flareclust.platform import job_monitor
from flareclust.platform.job import build_job, export_job
from flareclust.platform.session import admin_of, connected_sites, quiet
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm

#: How long a job is kept back for sites that are not connected. After a restart of the server they need about 10 s.
_CONNECT_SECONDS = 25


def run_production(
    algorithm: Algorithm,
    params: Mapping[str, object],
    options: JobOptions,
    kit: Path,
    on_round: OnRound = lambda record: None,
    *,
    token: str | None = None,
    resume: str | None = None,
) -> Outcome:
    """Run a federation's job on its own sites.

    Args:
        algorithm: a federated algorithm, with `params` as its settings.
        options: settings every job has.
        kit: of the admin who submits it.
        on_round: gets a record per exchange while the job runs.
        token: with the same one, a job that was submitted before and is running or complete is taken up again.
        resume: id of an interrupted job to go on from, with the same settings.

    Raises:
        UserError: a setting or the kit is wrong, or the server does not permit the job.
        JobFailed: the job ended without a result; the text says why. Transient where another try may help.
    """
    sides = executor, aggregator = algorithm.build(options.k, options.seed, params)
    check_resumable(algorithm.name, private=executor.private and resume is not None)
    job = build_job(algorithm, params, options, sides=sides, resume=resume)

    def check(sites: list[str]) -> None:
        if len(sites) < options.needed():
            found = f"only {', '.join(sites)} {'is' if len(sites) == 1 else 'are'}" if sites else "none is"
            raise JobFailed(
                f"at least {options.needed()} sites are needed, and {found} connected to the server {admin_of(kit)['host']}; start "
                "the others (startup/start.sh in their kits), and see their log.txt if they do not connect",
                transient=True,
            )
        executor.check_sites(sites)
        aggregator.check_sites(sites)

    return run_job(job, kit, options.deadline, on_round, token=token, check=check)


def run_job(
    job: FedJob,
    kit: Path,
    deadline: float,
    on_round: OnRound = lambda record: None,
    *,
    token: str | None = None,
    check: Callable[[list[str]], None] = lambda sites: None,
    amend: Callable[[Path], None] = lambda folder: None,
) -> Outcome:
    """Submit a job whose server part is a controller of ours, follow it, and fetch its result; see `run_production`.

    Args:
        deadline: seconds after which the job is aborted.
        check: gets the names of the connected sites before the job is submitted, and raises where they will not do;
            after a transient JobFailed it is asked again for `_CONNECT_SECONDS`.
        amend: gets the job's folder before it is submitted, to add files.

    Raises:
        UserError, JobFailed: as `run_production`.
    """
    with TemporaryDirectory(prefix="flareclust-") as scratch, closing(job_monitor.Server(kit)) as server:
        with quiet():
            folder = export_job(job, Path(scratch) / str(job.name))
        amend(folder)
        _wait_for_sites(server.session, check)
        watched = job_monitor.JobMonitor(server, on_round, deadline)
        try:
            watched.submit(folder, token)
            watched.follow()
            return watched.fetch(Path(scratch) / "fetched")
        finally:
            watched.abort_unless_ended()


def _wait_for_sites(session: Session, check: Callable[[list[str]], None]) -> None:
    """Return when the connected sites will do; those of a server that was just started need some seconds."""
    end = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return check(connected_sites(session))
        except JobFailed as error:
            if not error.transient or time.monotonic() > end:
                raise
        time.sleep(job_monitor.POLL_SECONDS)
