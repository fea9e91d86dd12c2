"""A federation on one machine, set up: rows are assigned, kits are made, processes started, all connected."""

import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.machine import answers
from flareclust.core import compiled
from flareclust.data.partition_specs import parse
from flareclust.data.tables import SUFFIXES
from flareclust.engines.options import MIN_SITES, RunSettings
from flareclust.experiment.config import RowsAsked
from flareclust.experiment.prepare import source_of
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.tables.site_rows import site_files
from flareclust.experiment.tables.typed_files import mapping_file
from flareclust.platform.poc import kits as poc_kits
from flareclust.platform.poc import processes as poc_processes
from flareclust.platform.poc import state as poc_state
from flareclust.platform.poc.processes import free_port
from flareclust.platform.process_tree import ended
from flareclust.platform.session import connected_sites, open_session

_CONNECT_SECONDS = 90.0
_POLL_SECONDS = 0.25


def up(
    folder: Path,
    data: str = "digits",
    partition: str = "iid",
    n_sites: int = 3,
    seed: int = 0,
    port: int | None = None,
    seconds: float = _CONNECT_SECONDS,
    schema: str | None = None,
) -> poc_state.Poc:
    """Provision a server and sites, give each site its rows, start them, and wait until all are connected.

    Args:
        folder: where everything goes; an older POC there that is down is replaced.
        data, partition, n_sites, seed, schema: as of a run; one in another engine with them gives each site the same rows.
        port: the server's; None for a free one.
        seconds: how long the sites may take to connect.

    Raises:
        UserError: the request cannot be carried out; nothing was started.
        JobFailed: they did not all connect; everything was stopped, the logs are kept.
    """
    folder = _usable(folder)
    if n_sites < MIN_SITES:
        raise UserError(f"expected at least {MIN_SITES} sites, as a job needs them, got {n_sites}")
    if parse(partition).name == "none" or Path(data).suffix in SUFFIXES:
        data = str(Path(data).absolute())
    prepared = _split_rows(data, partition, n_sites, seed, schema)
    if len(prepared.sites) < MIN_SITES:
        raise UserError(f"{data} gives the rows of one site only; a job needs at least {MIN_SITES} sites")
    port = free_port(port)
    state: dict[str, Any] = {"data": data, "partition": partition, "n_sites": n_sites, "seed": seed, "schema": schema}
    state |= {"port": port, "sites": dict.fromkeys(prepared.sites)}
    state |= {"processes": {"up": poc_state.record_of(psutil.Process())}}
    with poc_state.locked(folder):
        _ensure_free(folder)  # again: splitting takes a while, in which another one may have begun
        poc_state.clear(folder)
        poc_state.write(folder, state)
    try:
        poc_kits.provision(folder, list(prepared.sites), port)
        poc = poc_state.as_poc(folder, state)
        state["sites"] = place_rows(poc, prepared)
        daemons = {}
        for name in (poc_state.SERVER, *poc.sites):
            daemons[name] = poc_processes.start(folder, poc.kit(name))
            state["processes"][name] = poc_state.record_of(daemons[name])
            poc_state.write(folder, state)
        compiled.warm_up()  # once, while the daemons still sleep, or every site would compile for itself
        _wait(poc, daemons, seconds)
        del state["processes"]["up"]
        poc_state.write(folder, state)
    except BaseException as error:
        _give_up(folder, state, keep=isinstance(error, JobFailed))
        raise
    return poc_state.as_poc(folder, state)


def _split_rows(data: str, partition: str, n_sites: int, seed: int, schema: str | None = None) -> Prepared:
    """Return the rows of each site, with its columns, as a run with these settings would assign them.

    Raises:
        UserError: the data cannot be loaded or split as asked, or a site's name is one of ours.
    """
    asked = RowsAsked(data, partition, n_sites, RunSettings(seed=seed).seed, table_schema=schema, by_name=True)
    prepared = source_of(asked)(asked)
    if poc_state.SERVER in prepared.sites:
        raise UserError(f"a site cannot be called {poc_state.SERVER}, which is the server's name here; rename its file")
    return prepared


def place_rows(poc: poc_state.Poc, prepared: Prepared) -> dict[str, int | None]:
    """Put its rows into the kit of each site; return how many each has, None for a file that was not read.

    A site with a table of its own reads it by the schema itself, as a real site does.
    """
    counts: dict[str, int | None] = {}
    own = site_files(Path(poc.data)) if poc.own_tables else {}
    for site, rows in prepared.sites.items():
        if isinstance(file := own.get(site), Path):
            beside = mapping_file(file)
            poc_kits.place_typed(poc.kit(site), file, beside if beside.is_file() else None, Path(poc.schema or ""))
            counts[site] = None if isinstance(rows, Path) else len(rows)
        else:
            numbers = None if prepared.index is None else prepared.index[site].tolist()
            counts[site] = poc_kits.place(poc.kit(site), rows, numbers)
    return counts


def _give_up(folder: Path, state: dict[str, Any], *, keep: bool) -> None:
    """End what was started, and keep the folder, for its logs, or not."""
    state["processes"].pop("up", None)
    while True:
        try:
            poc_processes.end(folder, state["processes"])
        except KeyboardInterrupt:  # ignore repeated Ctrl-C; this takes a second
            continue
        break
    with suppress(OSError):  # somebody else may have removed it
        if keep:
            poc_state.write(folder, {**state, "processes": {}})
        else:
            poc_state.remove(folder)


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


def _wait(poc: poc_state.Poc, daemons: Mapping[str, psutil.Process], seconds: float) -> None:
    """Wait until the server can reach all sites."""
    deadline = time.monotonic() + seconds
    missing, what = {poc_state.SERVER, *poc.sites}, f"not connected after {seconds:g} s"
    while time.monotonic() < deadline and not _dead(daemons):
        if not answers(poc_state.SERVER, poc.port):
            time.sleep(_POLL_SECONDS)
            continue
        with suppress(JobFailed), open_session(poc.admin_kit, timeout=10) as session:
            while time.monotonic() < deadline and not _dead(daemons):
                missing = set(poc.sites) - set(connected_sites(session))
                if not missing:
                    return
                time.sleep(_POLL_SECONDS)
    if dead := _dead(daemons):
        missing, what = dead, "did not start"
    names, logs = [name for name in daemons if name in missing], poc.folder / poc_state.KITS
    words = "\n".join(f"  {name}: {poc_processes.last_line(poc.kit(name))}" for name in names)
    raise JobFailed(f"{', '.join(names)} {what}; everything was stopped, the logs are in {logs}. Last lines:\n{words}")


def _dead(daemons: Mapping[str, psutil.Process]) -> set[str]:
    """Return whose script has ended, which it does after a handful of attempts."""
    return {name for name, daemon in daemons.items() if ended(daemon)}
