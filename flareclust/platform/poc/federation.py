"""A whole federation on one machine: a server and sites as separate processes with certificates, as between institutions.

Everything lies in one folder: kits, rows, logs, temporary files, and `poc.json`, which says what it is.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flareclust._foundation.errors import JobFailed, Refusal, UserError
from flareclust.platform import job_monitor
from flareclust.platform.poc import processes as poc_processes
from flareclust.platform.poc import state as poc_state
from flareclust.platform.poc.state import DEFAULT, SERVER, Poc
from flareclust.platform.session import connected_sites, open_session
from flareclust.sites.rows import SiteData
from flareclust.sites.withdrawn import withdrawn_ids

__all__ = ["DEFAULT", "Poc", "down", "find", "lost", "status"]


@dataclass(frozen=True)
class _Participant:
    """How the server or a site of a POC is.

    Attributes:
        connected: whether the server reaches it; for the server, whether it answers.
        rows: how many take part, without those that it has withdrawn; None if that is not known.
        log: the file with its messages.
    """

    name: str
    running: bool
    connected: bool
    rows: int | None
    log: Path

    @property
    def well(self) -> bool:
        """Return whether it can take part in a job."""
        return self.running and self.connected


def find(folder: Path = DEFAULT) -> Poc:
    """Return the POC that is up in a folder.

    Raises:
        UserError: none is.
    """
    poc = poc_state.known(folder)
    if not poc_processes.family(poc.folder):
        raise UserError(f"the POC in {poc.folder} is down; start one: flareclust poc up --dir {poc.folder}")
    return poc


def status(folder: Path = DEFAULT) -> list[_Participant]:
    """Return how the server and the sites are.

    Raises:
        UserError: the folder holds no POC.
    """
    poc = poc_state.known(folder)
    processes = poc_processes.family(poc.folder)
    alive = {name: poc_processes.running(processes, poc.kit(name)) for name in (SERVER, *poc.sites)}
    connected: set[str] = set()
    if alive[SERVER]:
        with suppress(JobFailed), open_session(poc.admin_kit, timeout=5) as session:
            connected = {SERVER, *connected_sites(session)}
    return [  # the server takes a while to see that a site is gone
        _Participant(name, runs, runs and name in connected, _rows(poc, name), poc.kit(name) / "log.txt")
        for name, runs in alive.items()
    ]


def _rows(poc: Poc, name: str) -> int | None:
    """Return how many rows of a participant take part: those that it got, without those that it has withdrawn since."""
    placed, local = poc.rows.get(name), poc.kit(name) / "local"
    try:
        if placed is None or not withdrawn_ids(local):
            return placed
        return SiteData.of(local, name, reader_owns_them=True).table(reader_owns_them=True).rows_kept
    except (Refusal, UserError):  # which the site's own commands say
        return None


def lost(folder: Path = DEFAULT) -> list[str]:
    """Return the jobs that the server of a POC lost in a crash, which NVFlare lists as running; empty while it is down."""
    with suppress(JobFailed), open_session(poc_state.known(folder).admin_kit, timeout=5) as session:
        return job_monitor.lost_jobs(session)
    return []


def down(folder: Path = DEFAULT, *, remove: bool = False) -> int:
    """End all processes of the POC in a folder, whatever their state, and return how many there were.

    Raises:
        UserError: the folder holds no POC.
        JobFailed: processes could not be ended.
    """
    folder = folder.resolve()
    if not poc_state.is_ours(folder):
        raise UserError(f"there is no POC in {folder}")
    state = poc_state.read(folder)
    recorded = {name: one for name, one in state.get("processes", {}).items() if name != "up"}
    count = poc_processes.end(folder, recorded)
    if remove:
        poc_state.remove(folder)
        return count
    for kit in (folder / poc_state.KITS).glob("*"):
        poc_processes.forget(kit)
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    if state:
        poc_state.write(folder, {**state, "processes": {}})
    return count
