"""Following a job in NVFlare's simulator: its rounds, the sites that it loses, why it failed, and the end of its processes."""

import logging
import re
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.interrupts import deferred_signals
from flareclust.engines.options import JobOptions
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import CheckpointFile
from flareclust.platform import job_monitor
from flareclust.platform.controller import SIMULATED, checkpoint_at
from flareclust.platform.process_tree import end_all, working_in
from flareclust.privacy.job_folder import TRACEBACK_FILE
from flareclust.protocol.outcome import SUMMARY, read_rounds

#: The logger of NVFlare's own lines; `flareclust --verbose` shows them.
_console_log = logging.getLogger("nvflare.simulator")


#: What the simulator's log says when it lost a site's process, mostly while starting, in a race for a network port.
LOST_SITE = re.compile(
    r"Communication error with client (\S+?):|Failed to create connection to the child process|"
    r"Could not connect to the server cell"
)

_POLL_SECONDS = 0.1
#: Seconds in which killed processes must be gone.
_LONGEST_END = 30.0

_log = logging.getLogger(__name__)


class LostSite(Exception):
    """The simulator lost a site's process before the first round was over."""


@dataclass(frozen=True)
class Watch:
    """How a simulator's job is followed.

    Attributes:
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


class Console:
    """What a process writes to its console file, passed on line by line to a logger while it runs.

    Args:
        path: of the file, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, ""

    def pass_on(self) -> None:
        """Log the lines that are new and complete, where somebody wants to see them."""
        if not _console_log.isEnabledFor(logging.INFO) or not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            new = stream.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        for line in lines:
            _console_log.info("%s", line.rstrip())


def follow(process: subprocess.Popen[bytes], watch: Watch) -> None:
    """Follow the job until it ends and pass on its rounds.

    Unless this is the last attempt, a site lost before the first round ends it at once; in the last one, such a site
    is one that did not answer in time, and the quorum decides.
    """
    scratch, deadline = watch.scratch, watch.options.deadline
    root = scratch / "workspace" / "server"
    server, end = root / SIMULATED, time.monotonic() + deadline
    seen, console = 0, Console(scratch / "console.txt")
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
        ended = process.returncode is not None
        console.pass_on()
        records = read_rounds(server)
        for record in records[seen:]:
            watch.on_round(record)
        if watch.checkpoint is not None:
            watch.checkpoint.copy(checkpoint_at(root, SIMULATED))
        seen = max(seen, len(records))  # the file is written anew at the end, and may be caught half way
        if (server / SUMMARY).exists():
            return  # what the simulator still does is wind up
        early = not watch.last and len(records) <= watch.before
        if early and (lost := LOST_SITE.search(job_monitor.log_text(scratch / "console.txt"))):
            raise LostSite(lost.group(1) or "a site")
        if ended:
            raise _failure(scratch)
        if time.monotonic() > end:
            raise job_monitor.beyond(deadline)


def _failure(scratch: Path) -> JobFailed:
    """Return why the job ended without a result: the controller's own words, or the end of the console."""
    for traceback in sorted((scratch / "workspace").glob(f"*/*/{TRACEBACK_FILE}")):
        _log.error("traceback of %s:\n%s", traceback.parts[-3], job_monitor.log_text(traceback))
    console = job_monitor.log_text(scratch / "console.txt")
    if fatal := job_monitor.FATAL.search(console):
        return JobFailed(fatal.group("reason").strip())
    errors = [line for line in console.splitlines() if "ERROR" in line or "Error" in line]
    tail = "\n".join((errors or console.splitlines())[-5:])
    return JobFailed(f"the simulator ended without a result. Last log lines:\n{tail}", transient=True)


def end_simulator(process: subprocess.Popen[bytes], scratch: Path) -> None:
    """End the simulator and every process it started.

    Sites sit in sessions of their own and outlive a simulator that died first, so they are known by their command
    lines, which all name the scratch folder.
    """
    with deferred_signals():
        process.kill()
        end_all(lambda: working_in(str(scratch)), _LONGEST_END)
        process.wait()
