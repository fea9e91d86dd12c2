"""A whole federation on one machine: a server and sites as separate processes with certificates, as between institutions.

Everything lies in one folder: kits, rows, logs, temporary files, and `poc.json`, which says what it is.
"""

import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from flareclust import poc_kits, poc_processes, poc_state
from flareclust.core import kernels
from flareclust.engines.job import MIN_SITES
from flareclust.engines.session import connected_sites, open_session
from flareclust.errors import JobFailed, UserError
from flareclust.flows.config import Experiment
from flareclust.partition import parse
from flareclust.poc_ports import answers, free_port
from flareclust.poc_state import DEFAULT, SERVER, Poc, record_of
from flareclust.prepare import Prepared, names_of, prepare
from flareclust.tables import SUFFIXES
from flareclust.typing import Agreement

__all__ = ["DEFAULT", "Participant", "Poc", "down", "find", "prepared_for", "status", "up"]

CONNECT_SECONDS = 90.0
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Participant:
    """How the server or a site of a POC is.

    Attributes:
        name: the participant's.
        running: whether its process runs.
        connected: whether the server reaches it; for the server, whether it answers.
        rows: how many it has, None if that is not known.
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


def up(
    folder: Path,
    data: str = "digits",
    partition: str = "iid",
    clients: int = 3,
    seed: int = 0,
    port: int | None = None,
    seconds: float = CONNECT_SECONDS,
) -> Poc:
    """Provision a server and sites, give each site its rows, start them, and wait until all are connected.

    Args:
        folder: where everything goes; an older POC there that is down is replaced.
        data: as for a run: a data set's name, a file, or a folder with one file per site.
        partition: how the rows are dealt.
        clients: number of sites, where neither data nor partition decide it.
        seed: of the partition; a run in another engine with the same settings gives each site the same rows.
        port: the server's; None for a free one.
        seconds: how long the sites may take to connect.

    Raises:
        UserError: the request cannot be carried out; nothing was started.
        JobFailed: they did not all connect; everything was stopped, the logs are kept.
    """
    folder = _usable(folder)
    if clients < MIN_SITES:
        raise UserError(f"expected at least {MIN_SITES} sites, as a job needs them, got {clients}")
    if parse(partition).name == "none" or Path(data).suffix in SUFFIXES:
        data = str(Path(data).absolute())
    prepared = poc_kits.deal(data, partition, clients, seed)
    if len(prepared.sites) < MIN_SITES:
        raise UserError(f"{data} gives the rows of one site only; a job needs at least {MIN_SITES} sites")
    port = free_port(port)
    state: dict[str, Any] = {
        "data": data,
        "partition": partition,
        "clients": clients,
        "seed": seed,
        "port": port,
        "sites": dict.fromkeys(prepared.sites),
        "processes": {"up": record_of(psutil.Process())},
    }
    with poc_state.locked(folder):
        _ensure_free(folder)  # again: dealing takes a while, in which another one may have begun
        poc_state.clear(folder)
        poc_state.write(folder, state)
    try:
        poc_kits.provision(folder, list(prepared.sites), port)
        poc = poc_state.as_poc(folder, state)
        for site, rows in prepared.sites.items():
            numbers = None if prepared.index is None else prepared.index[site].tolist()
            state["sites"][site] = poc_kits.place(poc.kit(site), rows, numbers)
        daemons = {}
        for name in (SERVER, *poc.sites):
            daemons[name] = poc_processes.start(folder, poc.kit(name))
            state["processes"][name] = record_of(daemons[name])
            poc_state.write(folder, state)
        kernels.warm_up()  # once, while the daemons still sleep, or every site would compile for itself
        _wait(poc, daemons, seconds)
        del state["processes"]["up"]
        poc_state.write(folder, state)
    except BaseException as error:
        _give_up(folder, state, keep=isinstance(error, JobFailed))
        raise
    return poc_state.as_poc(folder, state)


def _give_up(folder: Path, state: dict[str, Any], *, keep: bool) -> None:
    """End what was started, and keep the folder, for its logs, or not."""
    state["processes"].pop("up", None)
    while True:
        try:
            poc_processes.end(folder, state["processes"])
        except KeyboardInterrupt:  # somebody is in a hurry; this is a matter of a second
            continue
        break
    with suppress(OSError):  # somebody else may have removed it
        if keep:
            poc_state.write(folder, {**state, "processes": {}})
        else:
            poc_state.remove(folder)


def find(folder: Path = DEFAULT) -> Poc:
    """Return the POC that is up in a folder.

    Raises:
        UserError: none is.
    """
    poc = poc_state.known(folder)
    if not poc_processes.family(poc.folder):
        raise UserError(f"the POC in {poc.folder} is down; start one: flareclust poc up --dir {poc.folder}")
    return poc


def status(folder: Path = DEFAULT) -> list[Participant]:
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
    return [
        Participant(
            name,
            runs,
            runs and name in connected,  # the server takes a while to see that a site is gone
            poc.rows.get(name),
            poc.kit(name) / "log.txt",
        )
        for name, runs in alive.items()
    ]


def down(folder: Path = DEFAULT, *, remove: bool = False) -> int:
    """End all processes of the POC in a folder, whatever their state, and return how many there were.

    Args:
        folder: the POC's.
        remove: whether to delete the folder, too.

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


def prepared_for(poc: Poc, experiment: Experiment) -> Prepared:
    """Return the federation of a POC for an experiment: the sites' own files, and which rows of the data set they have.

    Args:
        poc: decides data, partition, number of sites and the partition's seed, whatever the experiment says of them.
        experiment: decides the algorithm and k.

    Raises:
        UserError: the experiment chooses columns, which is the sites' business here, or its k is not known.
    """
    if experiment.columns is not None:
        raise UserError("the sites of a POC say which columns they use, in local/flareclust.yaml; leave out --columns")
    like = {
        "engine": "inprocess",
        "data": poc.data,
        "partition": poc.partition,
        "clients": poc.clients,
        "seed": poc.seed,
    }
    prepared = prepare(experiment.model_copy(update=like))
    files = {site: poc_kits.file_of(kit) for site, kit in poc.kits.items()}
    if prepared.dataset is None:
        return replace(prepared, sites=files)
    agreement: Agreement = "may-lack" if parse(poc.partition).splits_columns else "has"
    return replace(prepared, sites=files, columns=names_of(prepared.dataset), agreement=agreement)


def _usable(folder: Path) -> Path:
    """Return the folder's full path, where a POC may be set up in it."""
    folder = folder.resolve()
    for path in (str(folder), sys.executable):
        if any(character.isspace() for character in path):
            raise UserError(f"NVFlare cannot start processes with a space in their paths: {path}")
    if shutil.which("bash") is None:
        raise UserError("NVFlare's kits are started by bash, which is not here")
    _ensure_free(folder)
    return folder


def _ensure_free(folder: Path) -> None:
    """Raise unless nothing but an older POC that is down is in the folder."""
    if poc_processes.family(folder) or poc_state.being_set_up(folder):
        raise UserError(f"a POC is up in {folder}; end it first: flareclust poc down --dir {folder}")
    if not poc_state.may_be_used(folder):
        raise UserError(f"{folder} is there and holds other things than a POC; say --dir FOLDER")


def _wait(poc: Poc, daemons: Mapping[str, psutil.Process], seconds: float) -> None:
    """Wait until the server can reach all sites."""
    deadline = time.monotonic() + seconds
    missing, what = {SERVER, *poc.sites}, f"not connected after {seconds:g} s"
    while time.monotonic() < deadline and not _dead(daemons):
        if not answers(SERVER, poc.port):
            time.sleep(POLL_SECONDS)
            continue
        with suppress(JobFailed), open_session(poc.admin_kit, timeout=10) as session:
            while time.monotonic() < deadline and not _dead(daemons):
                missing = set(poc.sites) - set(connected_sites(session))
                if not missing:
                    return
                time.sleep(POLL_SECONDS)
    if dead := _dead(daemons):
        missing, what = dead, "did not start"
    names = [name for name in daemons if name in missing]
    words = "\n".join(f"  {name}: {poc_processes.last_line(poc.kit(name))}" for name in names)
    raise JobFailed(
        f"{', '.join(names)} {what}; everything was stopped, the logs are in {poc.folder / poc_state.KITS}. Last lines:\n{words}"
    )


def _dead(daemons: Mapping[str, psutil.Process]) -> set[str]:
    """Return whose script has ended, which it does after a handful of attempts."""
    return {name for name, daemon in daemons.items() if poc_processes.ended(daemon)}
