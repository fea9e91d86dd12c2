"""The process of a flow run under a Prefect worker that may be stopped: `python -m flareclust.flows.guard`.

A worker that has to stop kills the processes of its flow runs at once, and what was killed cannot abort its job. So
the worker starts this one, which starts the flow run's process and only waits. When it is killed, the flow run's process
notices, and ends as it would after `prefect flow-run cancel`: it aborts the job and closes the MLflow run.

In a deployment: `work_pool: {job_variables: {command: python -m flareclust.flows.guard}}`.
"""

import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from types import FrameType

_RUN = "run"

#: How often a request to Prefect is tried again: 14 s, in the place of a minute for each of several requests.
_RETRIES = "3"

#: What is said last where Prefect is gone, after its own traceback.
_LOST = (
    "Prefect's server does not answer, so it does not know how this flow run ended; a line above says where the result is, "
    "unless the job failed"
)

#: Seconds in which all processes of a group get the same signal.
_SIGNAL_PAUSE = 0.5


def _main() -> int:
    """Start the flow run that the environment names, pass on that it is to end, return its exit code."""
    theirs, ours = os.pipe()
    command = [sys.executable, "-m", "flareclust.flows.guard", _RUN, str(theirs)]
    # A session of its own: Ctrl-C reaches all processes of a terminal, and one word to end is enough.
    process = subprocess.Popen(command, pass_fds=[theirs], start_new_session=True)
    os.close(theirs)

    def end(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        with suppress(BrokenPipeError):  # it has just ended by itself
            os.write(ours, b".")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    code = process.wait()
    return code if code >= 0 else 128 - code


def run(pipe: int) -> None:
    """Run the flow in this process, and end it when a byte comes through the pipe or its other end is gone."""
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(pipe, signals), daemon=True).start()
    sys.argv = ["prefect.engine"]
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", _RETRIES)
    try:
        runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if not ended.code or _prefect_answers():
            raise
        print(_LOST, file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)  # at once: Prefect's threads would try for minutes to send their events


def _prefect_answers() -> bool:
    url = os.environ.get("PREFECT_API_URL", "")
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except (OSError, ValueError):  # nobody listens, or there is no address
        return False


def _watch(pipe: int, signals: int) -> None:
    message = os.read(pipe, 1)
    if message:
        _end(signals)
        os.read(pipe, 1)
    # The other process is gone, and mostly the worker with it, which read what is written here: the next line of the
    # log would raise SystemExit in the midst of winding up.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if not message:
        _end(signals)


def _end(signals: int) -> None:
    """Send SIGTERM, for which Prefect raises TerminationSignal, unless somebody else has just done so.

    Who stops a whole group of processes, as systemd does, has stopped this one already; a second signal would break off
    the winding up.
    """
    while select.select([signals], [], [], _SIGNAL_PAUSE)[0]:
        if signal.SIGTERM in os.read(signals, 64):
            return
    # To the main thread, which then leaves off waiting at once.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


if __name__ == "__main__":
    if sys.argv[1:2] == [_RUN]:
        run(int(sys.argv[2]))
    else:
        sys.exit(_main())
