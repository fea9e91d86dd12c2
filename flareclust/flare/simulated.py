"""NVFlare's simulator, in which each site's process gets its own name: `python -m flareclust.flare.simulated JOB ...`.

In NVFlare 2.9.0 all threads that start sites write their site's name into one mapping and send it a moment later. On a busy
machine a site's process can so get the name of another one, and with it that site's rows.
"""

import sys
import threading
from argparse import ArgumentParser
from typing import Any

from nvflare.private.fed.app.simulator import simulator, simulator_runner


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


def main() -> int:
    """Run the simulator with the arguments of the command line; return its exit code."""
    simulator_runner.SimulatorClientRunner = OwnNames
    parser = ArgumentParser()
    simulator.define_simulator_parser(parser)
    return int(simulator.run_simulator(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
