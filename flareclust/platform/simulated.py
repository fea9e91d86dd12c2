"""NVFlare's simulator, in which each site's process gets its own name: `python -m flareclust.platform.simulated JOB ...`.

In NVFlare 2.9.0 all threads that start sites write their site's name into one mapping and send it a moment later. On a busy
machine a site's process can so get the name of another one, and with it that site's rows.

On Linux it also starts sites without importing everything for each of them, and it looks for them more often. NVFlare's
simulator starts a Python for each site, or for each turn of a site, that imports all of it anew. A process with threads must not
be copied, and the simulator has many; so before it starts any, it copies itself once, after NVFlare and the job's classes are
imported and the kernels loaded, and this copy makes the others. The three keep the command line of the simulator, by which
`platform.simulator_watch` finds and ends them.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from flareclust.platform._private import (
    MainProcessMonitor,
    client_runner,
    simulator,
    simulator_runner,
    simulator_worker,
    stream_utils,
)

#: Waits of NVFlare up to so many seconds are shortened. Longer ones are there for something that has failed.
_SHORT = 1.0
#: Seconds between two questions of a site for its next task, for each site: NVFlare's half a second is longer than a round of
#: a few sites, but each question takes milliseconds of the server's process, which all sites share.
_ASKS_PER_SITE = 0.03


class _SiteProcess:
    """The process of a site, as far as the simulator uses that of `subprocess.Popen`."""

    def __init__(self, ask: Callable[..., Any], pid: int) -> None:
        self._ask, self.pid = ask, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        if self.returncode is None:
            self.returncode = self._ask("poll", self.pid)
        return self.returncode

    def kill(self) -> None:
        """End the process."""
        if self.returncode is None:
            self.returncode = self._ask("kill", self.pid)


class _SiteProcesses:
    """Starts the processes of m sites; to be made while this process has one thread."""

    def __init__(self, m: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._pipe, theirs = Pipe()
        self._lock = Lock()
        if os.fork() == 0:
            self._pipe.close()
            _to_the_end(partial(_serve, theirs, m))
        theirs.close()

    def start(self, command: Sequence[str], env: Mapping[str, str], **options: object) -> _SiteProcess:
        """Do what `subprocess.Popen` would with the command of a site, in a session of its own."""
        return _SiteProcess(self._ask, self._ask("start", list(command), dict(env)))

    def _ask(self, *request: object) -> Any:
        with self._lock:
            self._pipe.send_bytes(json.dumps(request).encode())
            answer, error = json.loads(self._pipe.recv_bytes())
        if error is not None:
            raise OSError(error)
        return answer


def _shorten_waits(module: ModuleType, longest: float) -> None:
    """Make a module of NVFlare wait so many seconds where it would wait up to a second."""

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, longest) if seconds <= _SHORT else seconds)

    module.time = SimpleNamespace(time=time.time, sleep=sleep)  # type: ignore[attr-defined]


def _serve(pipe: Connection, m: int) -> None:
    """Answer requests until the simulator is gone."""
    while True:
        try:
            what, *about = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        answer, problem = None, None
        try:
            answer = _start(pipe, m, *about) if what == "start" else _exit_code(*about, kill=what == "kill")
        except OSError as error:  # of this site only
            problem = str(error)
        pipe.send_bytes(json.dumps([answer, problem]).encode())


def _start(pipe: Connection, m: int, command: Sequence[str], env: Mapping[str, str]) -> int:
    """Return the number of the process of a site."""
    if (pid := os.fork()) == 0:
        pipe.close()
        _to_the_end(partial(_site, command, env, m))
    return pid


def _exit_code(pid: int, *, kill: bool) -> int | None:
    """Return the exit code of a copy, which is killed first where that is asked for; None while it runs."""
    if kill:
        os.kill(pid, signal.SIGKILL)
    ended, status = os.waitpid(pid, 0 if kill else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _site(command: Sequence[str], env: Mapping[str, str], m: int) -> None:
    """Do what `python -m nvflare.private.fed.app.simulator.simulator_worker` does."""
    os.setsid()
    np.random.seed()  # noqa: NPY002 - for plug-ins that use it: copies would draw the same
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    # Where NVFlare's numbers of streams begin, by its own rule; Python gives each copy a generator of its own.
    stream_utils.sid_base = int(time.time() * stream_utils.MILLION) + random.randint(0, stream_utils.MILLION)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = list(command[2:])
    for module in (simulator_worker, client_runner):
        _shorten_waits(module, _ASKS_PER_SITE * m)
    arguments = simulator_worker.parse_arguments()
    MainProcessMonitor.run(main_func=simulator_worker.main, run_dir=arguments.workspace, args=arguments)


def _to_the_end(work: Callable[[], None]) -> None:
    """Do the work of a copy and end it, so that it never goes on with what the original does."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not unwind into the original's work
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


#: Seconds between two looks whether the server or a site has started, where NVFlare waits a second.
_LOOKS = 0.05


class _OwnNames(simulator_runner.SimulatorClientRunner):
    """Starts the processes of sites; what is sent to them is one mapping for each thread."""

    @property
    def build_ctx(self) -> dict[str, Any]:
        """The mapping of this thread."""
        if not hasattr(self._own, "mapping"):
            self._own.mapping = dict(self._shared)
        own: dict[str, Any] = self._own.mapping
        return own

    @build_ctx.setter
    def build_ctx(self, shared: dict[str, Any]) -> None:
        self._shared, self._own = shared, threading.local()

    def _cleanup_process(self, process: _SiteProcess, timeout: float = 0.0) -> None:
        """End the process of a site whose turn is over, as far as it can be; NVFlare expects no error."""
        with suppress(OSError, EOFError):
            process.kill()


#: What is called or replaced here of NVFlare's modules and of its class.
_USED = (
    (simulator, ("define_simulator_parser", "run_simulator")),
    (simulator_runner, ("subprocess", "time")),
    (simulator_runner.SimulatorClientRunner, ("_cleanup_process",)),
    (simulator_worker, ("main", "parse_arguments", "time")),
    (client_runner, ("time",)),
    (stream_utils, ("MILLION", "sid_base")),
    (MainProcessMonitor, ("run",)),
)


def missing() -> str | None:
    """Return what NVFlare does not have of that, or None."""
    return next((f"{of.__name__}.{name}" for of, names in _USED for name in names if not hasattr(of, name)), None)


def _main() -> int:
    """Run the simulator with the arguments of the command line; return its exit code."""
    parser = ArgumentParser()
    simulator.define_simulator_parser(parser)
    parser.add_argument("--executor", help="import path of the sites' side")
    parser.add_argument("--aggregator", help="import path of the server's side")
    arguments = parser.parse_args()
    import_module(arguments.aggregator.rpartition(".")[0])
    module, _, name = arguments.executor.rpartition(".")
    getattr(import_module(module), name).warm_up()  # once here, or every process would load the kernels for itself
    simulator_runner.SimulatorClientRunner = _OwnNames
    if sys.platform == "linux":  # libraries of macOS must not be used in a copy of a process
        processes = _SiteProcesses(len(arguments.clients.split(",")))
        simulator_runner.subprocess = SimpleNamespace(Popen=processes.start)
    _shorten_waits(simulator_runner, _LOOKS)
    return int(simulator.run_simulator(arguments))


if __name__ == "__main__":
    sys.exit(_main())
