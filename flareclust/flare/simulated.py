"""NVFlare's simulator, in which each site's process gets its own name: `python -m flareclust.flare.simulated JOB ...`.

In NVFlare 2.9.0 all threads that start sites write their site's name into one mapping and send it a moment later. On a busy
machine a site's process can so get the name of another one, and with it that site's rows.

On Linux it also starts sites without importing everything for each of them (see `flareclust.flare.simulated_sites`), and it
looks for them more often.
"""

import sys
import threading
from argparse import ArgumentParser
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from nvflare.private.fed.app.simulator import simulator, simulator_runner

from flareclust.flare.simulated_sites import SiteProcess, SiteProcesses, shorten_waits

#: Seconds between two looks whether the server or a site has started, where NVFlare waits a second.
_LOOKS = 0.05


class OwnNames(simulator_runner.SimulatorClientRunner):
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

    def _cleanup_process(self, process: SiteProcess, timeout: float = 0.0) -> None:
        """End the process of a site whose turn is over, as far as it can be; NVFlare expects no error."""
        with suppress(OSError, EOFError):
            process.kill()


def main() -> int:
    """Run the simulator with the arguments of the command line; return its exit code."""
    parser = ArgumentParser()
    simulator.define_simulator_parser(parser)
    parser.add_argument("--executor", help="import path of the sites' side")
    parser.add_argument("--aggregator", help="import path of the server's side")
    arguments = parser.parse_args()
    import_module(arguments.aggregator.rpartition(".")[0])
    module, _, name = arguments.executor.rpartition(".")
    getattr(import_module(module), name).warm_up()  # once here, or every process would load the kernels for itself
    simulator_runner.SimulatorClientRunner = OwnNames
    if sys.platform == "linux":  # libraries of macOS must not be used in a copy of a process
        processes = SiteProcesses(len(arguments.clients.split(",")))
        simulator_runner.subprocess = SimpleNamespace(Popen=processes.start)
    shorten_waits(simulator_runner, _LOOKS)
    return int(simulator.run_simulator(arguments))


if __name__ == "__main__":
    sys.exit(main())
