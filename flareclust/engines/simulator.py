"""NVFlare's simulator: the job runs as it would between sites, in processes on this machine.

The simulator is started in a process group of its own, inside a folder of its own, and both are gone afterwards,
whether the job succeeded, failed or was interrupted. What a killed run leaves, the next one removes (`engines.scratch`).
"""

import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.cores import usable_cores
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.interrupts import deferred_signals
from flareclust._foundation.typing import Reading
from flareclust.data.file_formats import REPEATS
from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.data.memory import site_limit
from flareclust.data.tables import Rows, Table
from flareclust.engines.console import Console
from flareclust.engines.job import build_job, export_job, installed_plugin
from flareclust.engines.options import JobOptions
from flareclust.engines.process_tree import end_all, working_in
from flareclust.engines.scratch import scratch_folder
from flareclust.executors.nvflare_executor import TRACEBACK_FILE
from flareclust.federation import OnRound, quorum
from flareclust.federation.checkpoint import CHECKPOINT, CheckpointFile, about_job, check_resumable
from flareclust.flare.controller import SIMULATED, checkpoint_at
from flareclust.flare.diagnostics import beyond
from flareclust.privacy.policy import Policy
from flareclust.protocol.outcome import SUMMARY, Outcome, read, read_rounds
from flareclust.protocol.registry import Algorithm
from flareclust.sites.config import write_config
from flareclust.sites.kit import allow_classes
from flareclust.sites.policy_file import write_policy

#: The simulator's own limit.
MAX_SITES = 100
#: Up to so many sites per core all get a process at the start; with more, some would not connect within the 10 s that
#: NVFlare gives them, and be lost.
SITES_AT_ONCE_PER_CORE = 16
#: More sites take turns, and a process is started for each task of each site.
TURNS_PER_CORE = 6

#: What the simulator's log says when it lost a site's process, mostly while starting, in a race for a network port.
LOST_SITE = re.compile(
    r"Communication error with client (\S+?):|Failed to create connection to the child process|"
    r"Could not connect to the server cell"
)
FATAL = re.compile(r"FATAL_SYSTEM_ERROR received: (?P<reason>.*)")

POLL_SECONDS = 0.1
#: Seconds in which killed processes must be gone.
LONGEST_END = 30.0
#: A site lost twice in a row was seen with ten sites on two busy cores; the last attempt waits for it until its task times out.
ATTEMPTS = 4


#: The array with the ids in the files of simulated sites.
_IDS = "flareclust_ids"

log = logging.getLogger(__name__)


class _LostSite(Exception):
    """The simulator lost a site's process before the first round was over."""


def run_simulator(
    algorithm: Algorithm,
    params: Mapping[str, object],
    sites: Mapping[str, Rows],
    options: JobOptions,
    folder: Path,
    on_round: OnRound = lambda record: None,
    reading: Reading = None,
    policy: Policy | None = None,
    checkpoint: CheckpointFile | None = None,
) -> Outcome:
    """Run a federation as an NVFlare simulator job.

    Args:
        algorithm: a federated algorithm.
        params: its settings.
        sites: rows (n_i, d_i), or the file with them, by site name.
        options: settings every job has.
        folder: an existing folder to work in; everything written there is removed again.
        on_round: gets a record per exchange while the job runs.
        reading: names of the columns that are read from the sites' files; None for all.
        policy: of every site; None for what the algorithm says.
        checkpoint: gets the server's state after each exchange, and the job may go on from there; None for none.

    Raises:
        UserError: a setting is wrong, or there are more sites than the simulator can hold.
        JobFailed: the job ended without a result; the text says why and holds all sites' refusals.
    """
    if len(sites) > MAX_SITES:
        raise UserError(f"the simulator holds at most {MAX_SITES} sites, got {len(sites)}; use the in-process engine")
    remembers = options.secure_sums or (policy is not None and policy.dp is None)
    if remembers and threads_for(len(sites)) < len(sites):
        raise UserError(
            f"{'secure_sums' if options.secure_sums else 'a policy'} needs a process of its own for each of the {len(sites)} sites, and this machine's simulator holds "
            f"{SITES_AT_ONCE_PER_CORE} per core at a time; use the in-process engine"
        )
    sides = executor, aggregator = algorithm.build(options.k, options.seed, params)
    executor.check_sites(list(sites))
    aggregator.check_sites(list(sites))
    if any(character.isspace() for character in sys.executable):
        raise UserError(f"NVFlare's simulator cannot start {sys.executable}, whose path has a space; use another one")
    options = options.among(list(sites)).model_copy(update={"min_sites": quorum(len(sites), options.min_sites)})
    extra: dict[str, Any] = {}
    before = 0
    if checkpoint is not None:
        check_resumable(algorithm.name, private=executor.private and checkpoint.resume)
        extra = {"about": checkpoint.about, "resume": SIMULATED if checkpoint.resume else None}
        checkpoint = checkpoint.of(about_job(algorithm.name, aggregator, params, secure_sums=options.secure_sums))
        if (state := checkpoint.begin()) is not None:
            before = len(state.progress.records)
    job = build_job(algorithm, params, options, sides=sides, **extra)
    algorithm.executor_class().warm_up()  # once here, or every site's process would compile the kernels for itself
    for attempt in range(1, ATTEMPTS + 1):
        with _scratch(folder / f"simulator-{attempt}") as scratch:
            _place(scratch, sites, reading, policy, with_ids=executor.used_per_id is not None)
            allow_classes(scratch / "workspace" / "local", installed_plugin(algorithm))
            export_job(job, scratch / "job")
            if checkpoint is not None and checkpoint.resume:
                shutil.copy2(checkpoint.path, scratch / "job" / "app" / "config" / CHECKPOINT)
            kept = None if executor.private else checkpoint
            watch = _Watch(scratch, options, on_round, kept, before, last=attempt == ATTEMPTS)
            try:
                _simulate(scratch, list(sites), watch)
            except _LostSite as lost:
                log.warning("the simulator lost the process of %s; starting again", lost)
                continue
            return _collect(scratch / "workspace", list(sites))
    raise AssertionError("the last attempt returns or raises")


def _place(
    scratch: Path, sites: Mapping[str, Rows], reading: Reading, policy: Policy | None, *, with_ids: bool = False
) -> None:
    """Write the sites' rows and the site configuration that names them; the simulator copies `local` to every site."""
    data = scratch / "data"
    data.mkdir(parents=True)
    paths = {}
    for site, rows in sites.items():
        if isinstance(rows, Path):
            paths[site] = str(rows.absolute())
        elif isinstance(rows, Table) and (rows.columns is not None or with_ids):
            paths[site] = str(data / f"{site}.npz")
            about = {} if rows.columns is None else {"columns": np.array(rows.columns)}
            if with_ids and rows.ids is not None:
                about[_IDS] = np.array(list(rows.ids))
            np.savez(paths[site], allow_pickle=False, X=rows.X, **about, **{REPEATS: np.array(rows.repeats)})
        else:
            paths[site] = str(data / f"{site}.npy")
            np.save(paths[site], rows.X if isinstance(rows, Table) else rows, allow_pickle=False)
    local = scratch / "workspace" / "local"
    write_config(local, paths, reading, memory=site_limit(len(sites)), id_name=_IDS if with_ids else None)
    if policy is not None:
        write_policy(local, policy.among(list(sites)))


def threads_for(m: int) -> int:
    """Return how many of m sites the simulator runs at once on this machine."""
    cores = usable_cores()
    return m if m <= SITES_AT_ONCE_PER_CORE * cores else TURNS_PER_CORE * cores


def _simulate(scratch: Path, sites: list[str], watch: "_Watch") -> None:
    workspace = scratch / "workspace"
    command = [sys.executable, "-m", "flareclust.flare.simulated", str(scratch / "job")]
    command += ["-w", str(workspace), "-c", ",".join(sites), "-t", str(threads_for(len(sites))), "-l", "concise"]
    with (scratch / "console.txt").open("wb") as console, scratch_folder() as temporary:
        process = None
        try:
            with deferred_signals():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"TMPDIR": temporary},
                    start_new_session=True,
                )
            _watch(process, watch)
        finally:
            if process is not None:
                _kill_tree(process, scratch)


@dataclass(frozen=True)
class _Watch:
    """How a simulator's job is followed.

    Attributes:
        scratch: its folder.
        options: of the job.
        on_round: gets a record per exchange.
        checkpoint: gets the server's state; None for nowhere.
        before: how many exchanges a resumed job had before.
        last: whether this is the last attempt.
    """

    scratch: Path
    options: JobOptions
    on_round: OnRound
    checkpoint: CheckpointFile | None
    before: int
    last: bool


def _watch(process: subprocess.Popen[bytes], watch: _Watch) -> None:
    """Follow the job until it ends and pass on its rounds.

    Unless this is the last attempt, a site lost before the first round ends it at once; in the last one, such a site
    is one that did not answer in time, and the quorum decides.
    """
    scratch, options = watch.scratch, watch.options
    root = scratch / "workspace" / "server"
    server = root / SIMULATED
    end = time.monotonic() + options.deadline
    seen, console = 0, Console(scratch / "console.txt")
    while True:
        ended = _wait(process)
        console.pass_on()
        records = read_rounds(server)
        for record in records[seen:]:
            watch.on_round(record)
        if watch.checkpoint is not None:
            watch.checkpoint.copy(checkpoint_at(root, SIMULATED))
        seen = max(seen, len(records))  # the file is written anew at the end, and may be caught half way
        if (server / SUMMARY).exists():
            return  # what the simulator still does is wind up
        if (
            not watch.last
            and len(records) <= watch.before
            and (lost := LOST_SITE.search(_text(scratch / "console.txt")))
        ):
            raise _LostSite(lost.group(1) or "a site")
        if ended:
            raise _failure(scratch)
        if time.monotonic() > end:
            raise beyond(options.deadline)


def _wait(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _failure(scratch: Path) -> JobFailed:
    """Return why the job ended without a result: the controller's own words, or the end of the console."""
    for traceback in sorted((scratch / "workspace").glob(f"*/*/{TRACEBACK_FILE}")):
        log.error("traceback of %s:\n%s", traceback.parts[-3], _text(traceback))
    console = _text(scratch / "console.txt")
    fatal = FATAL.search(console)
    if fatal:
        return JobFailed(fatal.group("reason").strip())
    errors = [line for line in console.splitlines() if "ERROR" in line or "Error" in line]
    tail = "\n".join((errors or console.splitlines())[-5:])
    return JobFailed(f"the simulator ended without a result. Last log lines:\n{tail}", transient=True)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _collect(workspace: Path, sites: list[str]) -> Outcome:
    outcome, _ = read(workspace / "server" / "simulate_job")
    for site in sites:
        run_dir = workspace / site / "simulate_job"
        if (run_dir / LABELS_FILE).exists():
            outcome.labels[site] = read_labels(run_dir)
    return outcome


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Give a new folder and remove it in the end."""
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        with deferred_signals():
            shutil.rmtree(folder, ignore_errors=True)


def _kill_tree(process: subprocess.Popen[bytes], scratch: Path) -> None:
    """End the simulator and every process it started.

    Sites sit in sessions of their own and outlive a simulator that died first, so they are known by their command
    lines, which all name the scratch folder.
    """
    with deferred_signals():
        process.kill()
        end_all(lambda: working_in(str(scratch)), LONGEST_END)
        process.wait()
