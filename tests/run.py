"""`python -m tests.run ...`: pytest with these arguments, in a run that leaves nothing behind, however it ends.

Tests start daemons in sessions of their own. All of them inherit a variable of the environment from here, and their
temporary files are in a folder that is made here. When pytest is over, or somebody stops it (Ctrl-C, SIGTERM, SIGHUP),
whatever has the variable is killed and the folder is removed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from types import FrameType

import psutil

MARK = "FLARECLUST_TEST_RUN"
PATIENCE = 20.0


def main(arguments: list[str]) -> int:
    """Run pytest and return its exit code, or that of a shell for a signal."""
    mark = uuid.uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="f", dir="/tmp"))  # short: NVFlare makes sockets in it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    code = 1
    try:
        env = {**os.environ, MARK: mark, "TMPDIR": str(folder)}
        code = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], env=env).wait()
    except _Stopped as stopped:
        code = 128 + stopped.number
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        left = _kill(mark)
        _remove_networks()
        shutil.rmtree(folder, ignore_errors=True)
    if left and code == 0:
        print(f"the tests left {len(left)} processes:", *left, sep="\n  ", file=sys.stderr)
        code = 1
    return code


class _Stopped(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped(number)


def _kill(mark: str) -> list[str]:
    """Kill what the run has started, again until there is nothing more of it; return the command lines."""
    left: list[str] = []
    while found := _of_run(mark):
        for process in found:
            with contextlib.suppress(psutil.Error):
                left.append(" ".join(process.cmdline()))
                process.kill()
        psutil.wait_procs(found, timeout=PATIENCE)
    return left


def _of_run(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def _remove_networks() -> None:
    """Remove the network namespaces of a run that was stopped, as the next run would do."""
    sys.path.insert(0, str(Path(__file__).parent / "integration" / "federation"))
    import network

    with contextlib.suppress(OSError, RuntimeError, subprocess.SubprocessError):
        network.remove_stale()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
