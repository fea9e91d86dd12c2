"""NVFlare's simulator: the job runs as it would between sites, in processes on this machine.

The simulator is started in a process group of its own, inside a folder of its own, and both are gone afterwards,
whether the job succeeded, failed or was interrupted. What a killed run leaves, the next one removes (`platform.scratch`).
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.interrupts import deferred_signals
from flareclust._foundation.machine import usable_cores
from flareclust._foundation.typing import Reading
from flareclust.core.threads import THREADS, allowed_threads
from flareclust.data import file_formats
from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.data.memory import site_limit
from flareclust.data.tables import Rows, Table
from flareclust.engines.options import JobOptions
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import CHECKPOINT, CheckpointFile, about_job, check_resumable
from flareclust.platform.controller import SIMULATED
from flareclust.platform.job import build_job, export_job, installed_plugin
from flareclust.platform.kit import allow_classes
from flareclust.platform.scratch import scratch_folder
from flareclust.platform.simulator_watch import LostSite, Watch, end_simulator, follow
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.policy import Policy
from flareclust.protocol.outcome import Outcome, read
from flareclust.protocol.registry import Algorithm
from flareclust.sites.config import write_config
from flareclust.sites.policy_file import write_policy

#: The simulator's own limit.
_MAX_SITES = 100
#: Up to so many sites per core all get a process at the start; with more, some would not connect within the 10 s that
#: NVFlare gives them, and be lost.
_SITES_AT_ONCE_PER_CORE = 16
#: More sites take turns, and a process is started for each task of each site.
_TURNS_PER_CORE = 6

#: A site lost twice in a row was seen with ten sites on two busy cores; the last attempt waits for it until its task times out.
_ATTEMPTS = 4


#: What starts the simulator: ours, and what of NVFlare it stands for.
_OURS, _NVFLARES = "flareclust.platform.simulated", "nvflare.private.fed.app.simulator.simulator"

#: The array with the ids in the files of simulated sites.
_IDS = "flareclust_ids"

_log = logging.getLogger(__name__)


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
        algorithm, params, options, on_round: as of `run_production`.
        sites: rows (n_i, d_i), or the file with them, by site name.
        folder: an existing folder to work in; everything written there is removed again.
        reading: names of the columns that are read from the sites' files; None for all.
        policy: of every site; None for what the algorithm says.
        checkpoint: gets the server's state after each exchange, and the job may go on from there; None for none.

    Raises:
        UserError: a setting is wrong, or there are more sites than the simulator can hold.
        JobFailed: the job ended without a result; the text says why and holds all sites' refusals.
    """
    if len(sites) > _MAX_SITES:
        raise UserError(f"the simulator holds at most {_MAX_SITES} sites, got {len(sites)}; use the in-process engine")
    remembers = options.secure_sums or (policy is not None and policy.dp is None)
    if remembers and threads_for(len(sites)) < len(sites):
        raise UserError(
            f"{'secure_sums' if options.secure_sums else 'a policy'} needs a process of its own for each of the {len(sites)} sites, and this machine's simulator holds "
            f"{_SITES_AT_ONCE_PER_CORE} per core at a time; use the in-process engine"
        )
    sides = executor, aggregator = algorithm.build(options.k, options.seed, params)
    executor.check_sites(list(sites))
    aggregator.check_sites(list(sites))
    if any(character.isspace() for character in sys.executable):
        raise UserError(f"NVFlare's simulator cannot start {sys.executable}, whose path has a space; use another one")
    options = options.simulated(list(sites))
    extra: dict[str, Any] = {}
    before = 0
    if checkpoint is not None:
        check_resumable(algorithm.name, private=executor.private and checkpoint.resume)
        extra = {"about": checkpoint.about, "resume": SIMULATED if checkpoint.resume else None}
        checkpoint = checkpoint.of(about_job(algorithm.name, aggregator, params, secure_sums=options.secure_sums))
        if (state := checkpoint.begin(aggregator)) is not None:
            before = len(state.progress.records)
    job = build_job(algorithm, params, options, sides=sides, **extra)
    with_ids = isinstance(executor.params, PrivateParams) and executor.params.used_per_id is not None
    for attempt in range(1, _ATTEMPTS + 1):
        with _scratch(folder / f"simulator-{attempt}") as scratch:
            _place(scratch, sites, reading, policy, with_ids=with_ids)
            allow_classes(scratch / "workspace" / "local", installed_plugin(algorithm))
            export_job(job, scratch / "job")
            if checkpoint is not None and checkpoint.resume:
                shutil.copy2(checkpoint.path, scratch / "job" / "app" / "config" / CHECKPOINT)
            kept = None if executor.private else checkpoint
            watch = Watch(scratch, options, on_round, kept, before, last=attempt == _ATTEMPTS)
            try:
                _simulate(scratch, algorithm, list(sites), watch)
            except LostSite as lost:
                _log.warning("the simulator lost the process of %s; starting again", lost)
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
        elif isinstance(rows, Table) and (rows.columns is not None or with_ids or rows.outcomes is not None):
            paths[site] = str(data / f"{site}.npz")
            about = {} if rows.columns is None else {"columns": np.array(rows.columns)}
            if with_ids and rows.ids is not None:
                about[_IDS] = np.array(list(rows.ids))
            about[file_formats.REPEATS] = np.array(rows.repeats)
            np.savez(paths[site], allow_pickle=False, X=rows.X, **about, **rows.outcome_arrays)
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
    return m if m <= _SITES_AT_ONCE_PER_CORE * cores else _TURNS_PER_CORE * cores


@cache
def _starts_by_itself() -> bool:
    """Return whether NVFlare starts its simulator without us, since it lacks what our start changes; the warning is given once."""
    try:
        missing = import_module(_OURS).missing()
    except (ImportError, AttributeError) as error:
        missing = str(error)
    if missing is not None:
        _log.warning(
            "the simulator starts as NVFlare does it, whose version %s lacks what a faster start changes (%s): jobs take seconds "
            "longer, and on a busy machine a site can get the name and the rows of another one",
            version("nvflare"),
            missing,
        )
    return missing is not None


def _simulate(scratch: Path, algorithm: Algorithm, sites: list[str], watch: Watch) -> None:
    workspace, each = scratch / "workspace", max(1, allowed_threads() // threads_for(len(sites)))
    command = [sys.executable, "-m", _NVFLARES if _starts_by_itself() else _OURS, str(scratch / "job")]
    command += ["-w", str(workspace), "-c", ",".join(sites), "-t", str(threads_for(len(sites))), "-l", "concise"]
    if _OURS in command:
        command += ["--executor", str(algorithm.executor), "--aggregator", algorithm.aggregator]
    with (scratch / "console.txt").open("wb") as console, scratch_folder() as temporary:
        process = None
        try:
            with deferred_signals():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"TMPDIR": temporary, THREADS: str(each)},
                    start_new_session=True,
                )
            follow(process, watch)
        finally:
            if process is not None:
                end_simulator(process, scratch)


def _collect(workspace: Path, sites: list[str]) -> Outcome:
    outcome, _ = read(workspace / "server" / SIMULATED)
    for site in sites:
        run_dir = workspace / site / SIMULATED
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
