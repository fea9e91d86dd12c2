"""The processes of a POC: started through the kits' own scripts, found by any process of the user, ended in any state.

A kit's script is a daemon that starts NVFlare again when it dies, and NVFlare puts the processes of jobs into sessions of
their own. So a POC's processes are known by a mark in their environment, which they all inherit. Those that somebody
started by hand from the same kits are known by their command lines. The server gets a free port of this machine.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

import psutil

from flareclust._foundation.errors import UserError
from flareclust.platform.process_tree import end_all, ended

#: Ports that systems do not hand out by themselves; NVFlare's own connections get those.
_PORTS = range(20000, 30000)


#: In the environment of every process of a POC: its folder.
_MARK = "FLARECLUST_POC"
_CONSOLE = "console.txt"
_SCRIPT = Path("startup") / "sub_start.sh"

#: NVFlare's own switches that would send several kits to one place.
_MISLEADING = ("NVFL_WORKSPACE", "NVFL_JOB_STORE_ROOT")
#: What the script and NVFlare leave in a kit about the processes of the day.
_PID_FILES = ("daemon_pid.fl", "pid.fl", "shutdown.fl", "restart.fl")
#: How the script's own lines begin.
_ATTEMPTS = ("start fl ", "new pid ", "System is in trouble")
_LONGEST_END = 20.0


def start(folder: Path, kit: Path) -> psutil.Process:
    """Start the server or site whose kit this is, in a session of its own; its output goes to a file in the kit."""
    forget(kit)
    with (kit / _CONSOLE).open("ab") as console:
        process = subprocess.Popen(
            ["bash", str(kit / _SCRIPT)],
            cwd=kit,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this program, about which Popen would warn
    return psutil.Process(process.pid)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `python3` is this interpreter and temporary files stay in the POC's folder."""
    programs, temporary = folder / "bin", folder / "tmp"
    for one in (programs, temporary):
        one.mkdir(exist_ok=True)
    python = programs / "python3"
    # A link would lose the virtual environment, which an interpreter finds by its own place.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | {
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        "TMPDIR": str(temporary),
        "NVFLARE_DATUM_DIR": str(temporary / "datums"),
        _MARK: str(folder),
    }


def family(folder: Path) -> list[psutil.Process]:
    """Return all living processes of the POC in this folder."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs(process, folder)]


def _belongs(process: psutil.Process, folder: Path) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        words = process.cmdline()
    except psutil.Error:
        return False
    with suppress(psutil.Error, OSError):  # another account's environment cannot be read
        if process.environ().get(_MARK) == str(folder):
            return True
    inside = [word for word in words if word == str(folder) or word.startswith(f"{folder}{os.sep}")]
    # Somebody who looks at a log in there is none of them.
    return any(word.endswith(f"{os.sep}{_SCRIPT}") for word in inside) or (
        bool(inside) and any(word.startswith("nvflare.private.") for word in words)
    )


def running(processes: Iterable[psutil.Process], kit: Path) -> bool:
    """Return whether NVFlare itself, not only its daemon, runs from this kit."""
    for process in processes:
        with suppress(psutil.Error):
            words = process.cmdline()
            if str(kit) in words and any(word.endswith((".server_train", ".client_train")) for word in words):
                return True
    return False


def end(folder: Path, recorded: Mapping[str, Mapping[str, float]]) -> int:
    """End every process of the POC and return how many there were.

    Args:
        folder: the POC's.
        recorded: `pid` and `created` of the daemons; a process that has got an old one's number is left alone.

    Raises:
        JobFailed: some could not be ended.
    """

    def alive() -> list[psutil.Process]:
        found = family(folder)
        for record in recorded.values():
            with suppress(psutil.Error, KeyError, TypeError, ValueError):
                process = psutil.Process(int(record["pid"]))
                if process.create_time() == record["created"] and not ended(process):
                    found += [process, *process.children(recursive=True)]
        return found

    def is_no_daemon(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return not any(word.endswith(f"{os.sep}{_SCRIPT}") for word in process.cmdline())
        return True

    return end_all(alive, _LONGEST_END, order=is_no_daemon)  # daemons first, or they would start another process


def forget(kit: Path) -> None:
    """Remove what the kit says about earlier processes, whose numbers others may have got."""
    for name in _PID_FILES:
        (kit / name).unlink(missing_ok=True)


def last_line(kit: Path) -> str:
    """Return the last line that the server or site wrote, leaving out what the script says about its attempts."""
    file = kit / _CONSOLE
    lines = file.read_text(errors="replace").split("\n") if file.exists() else []
    stripped = (line.strip() for line in reversed(lines))
    return next((line for line in stripped if line and not line.startswith(_ATTEMPTS)), "it wrote nothing")


def free_port(wanted: int | None) -> int:
    """Return a port that nobody listens on.

    Raises:
        UserError: the wanted one is taken, or all are.
    """
    if wanted is not None:
        if not 1024 <= wanted < 2**16:
            raise UserError(f"expected a port between 1024 and 65535, got {wanted}")
        if not _is_free(wanted):
            raise UserError(f"port {wanted} is taken; give another one with --port, or none for a free one")
        return wanted
    # Two POCs that start at once should not try the same ones.
    if (port := next(filter(_is_free, SystemRandom().sample(_PORTS, 100)), None)) is None:
        raise UserError(f"no free port was found in {_PORTS.start}..{_PORTS.stop - 1}; give one with --port")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or connections of a server just ended would count
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
