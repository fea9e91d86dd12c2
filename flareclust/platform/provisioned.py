"""A provisioned federation: the job goes to its server through an admin's kit, as NVFlare's users submit jobs.

NVFlare reports how a job ended in one word. `flareclust.platform.job_monitor` finds out the rest: how far the job is, from the
statistics that the controller offers; why it failed, from the logs of the server; whether it is still there after a crash.

Success is a complete result.json, as in the simulator. NVFlare's status can say otherwise where a site was lost after the
result was complete (docs/adr/0010-lost-sites.md).
"""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from nvflare.job_config.api import FedJob

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.engines.options import ExpectedSites, JobOptions
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import check_resumable
from flareclust.platform import job_monitor
from flareclust.platform.job import build_job, export_job
from flareclust.platform.scratch import scratch_folder
from flareclust.platform.session import admin_of, connected_sites, quiet
from flareclust.protocol.outcome import SUMMARY, Outcome
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
    expected: ExpectedSites | None = None,
) -> Outcome:
    """Run a federation's job on its own sites.

    Args:
        algorithm: a federated algorithm, with `params` as its settings.
        options: settings every job has.
        kit: of the admin who submits it.
        on_round: gets a record per exchange while the job runs.
        token: with the same one, a job that was submitted before and is running or complete is taken up again.
        resume: id of an interrupted job to go on from, with the same settings.
        expected: sites that should have part in it, and how long it waits for them; where it names none, those of earlier jobs. The
            outcome names the absent ones as left out. None for a job of the sites that are connected.

    Raises:
        UserError: a setting or the kit is wrong, or the server does not permit the job.
        JobFailed: the job ended without a result; the text says why. Transient where another try may help.
    """
    sides = executor, aggregator = algorithm.build(options.k, options.seed, params)
    check_resumable(algorithm.name, private=executor.private and resume is not None)
    job = build_job(algorithm, params, options, sides=sides, resume=resume)

    def check(sites: list[str], missing: list[str]) -> None:
        if len(sites) < options.needed():
            found = f"only {', '.join(sites)} {'is' if len(sites) == 1 else 'are'}" if sites else "none is"
            raise JobFailed(
                f"at least {options.needed()} sites are needed, and {found} connected to the server {admin_of(kit)['host']}; start "
                f"{', '.join(missing) or 'the others'} (startup/start.sh in their kits), and see their log.txt if they do not connect",
                transient=True,
            )
        executor.check_sites(sites)
        aggregator.check_sites(sites)

    return run_job(job, kit, options.deadline, on_round, token=token, resume=resume, expected=expected, check=check)


def run_job(
    job: FedJob,
    kit: Path,
    deadline: float,
    on_round: OnRound = lambda record: None,
    *,
    token: str | None = None,
    resume: str | None = None,
    expected: ExpectedSites | None = None,
    check: Callable[[list[str], list[str]], None] = lambda sites, missing: None,
    amend: Callable[[Path], None] = lambda folder: None,
) -> Outcome:
    """Submit a job whose server part is a controller of ours, follow it, and fetch its result; see `run_production`.

    Args:
        deadline: seconds after which the job is aborted.
        check: gets the names of the connected and of the missing sites before the job is submitted, and raises where they will not do;
            after a transient JobFailed it is asked again for `_CONNECT_SECONDS`.
        amend: gets the job's folder before it is submitted, to add files.

    Raises:
        UserError, JobFailed: as `run_production`.
    """
    with scratch_folder() as scratch, closing(job_monitor.Server(kit)) as server:
        with quiet():
            folder = export_job(job, Path(scratch) / str(job.name))
        amend(folder)
        whys = {} if expected is None else server.find_expected(str(job.name), expected.expect_sites)
        _wait_for_sites(server, check, whys, expected)
        watched = job_monitor.JobMonitor(server, on_round, deadline, whys)
        try:
            if resume is not None:
                watched.await_sites_of(resume)
            watched.submit(folder, token)
            watched.follow()
            return watched.fetch(Path(scratch) / "fetched")
        finally:
            watched.abort_unless_ended()


def fetch_job(
    job: str, kit: Path, deadline: float = 3600.0, expect_sites: Sequence[str] | None = None
) -> tuple[Outcome, dict[str, Any], str]:
    """Return the outcome of a job that somebody has submitted, what its result.json says of it, and the date of its submission.

    Args:
        job: its id; one that runs is waited for.
        kit: of an admin who may see it.
        deadline: seconds after which nobody waits any more; the job goes on.
        expect_sites: those that should have part in it; by default those of earlier jobs of its name.

    Raises:
        UserError: there is no such job, or the kit is wrong.
        JobFailed: it ended without a result, or still runs.
    """
    with scratch_folder() as scratch, closing(job_monitor.Server(kit)) as server:
        meta = job_monitor.meta_of(server, job)
        expected = server.find_expected(str(meta.get("name")), expect_sites, meta=meta)
        watched = job_monitor.JobMonitor(server, lambda record: None, deadline, expected)
        watched.id = job
        watched.follow()
        outcome = watched.fetch(Path(scratch) / "fetched")
        (summary,) = Path(scratch, "fetched").rglob(SUMMARY)
        about = json.loads(summary.read_text(encoding="utf-8"))
    return outcome, about, datetime.fromtimestamp(float(meta["submit_time"])).astimezone().date().isoformat()


def _wait_for_sites(
    server: job_monitor.Server,
    check: Callable[[list[str], list[str]], None],
    names: Collection[str],
    expected: ExpectedSites | None,
) -> None:
    """Return when the connected sites will do; those of a server that was just started need some seconds."""
    if expected is not None and expected.wait_seconds is not None:
        if not names and expected.wait_for is None:
            raise UserError(
                "no earlier job says which sites to wait for; name them (--expect-sites, or expect_sites=), or say how many "
                "(--wait-for, or wait_for=)"
            )
        server.await_sites(names, expected.wait_seconds, expected.wait_for)
    end = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            connected = connected_sites(server.session)
            return check(connected, sorted(set(names) - set(connected)))
        except JobFailed as error:
            if not error.transient or time.monotonic() > end:
                raise
        time.sleep(job_monitor.POLL_SECONDS)
