"""A program of NVFlare whose messages hold no files: `python -m flareclust.guarded nvflare.private.fed.app.relay.relay ...`.

Servers and sites install the guard when they read `local/resources.json`. Relays and NVFlare's console for users read no such
file, so the start scripts in their kits begin here. NVFlare's other commands can be started in the same way.
"""

import runpy
import sys
from pathlib import Path

from flareclust.platform.session import guard
from flareclust.sites.running import RELAY, note_protection


def _main() -> None:
    """Run the module that the first argument names, with the arguments after it, as `python -m` would."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m flareclust.guarded MODULE [ARGUMENT ...]; MODULE is a program of NVFlare")
    if (problem := guard()) is not None:
        sys.exit(f"{sys.argv[1]} {problem}")
    del sys.argv[0]
    if sys.argv[0] == RELAY and "-m" in sys.argv[:-1]:
        note_protection(Path(sys.argv[sys.argv.index("-m") + 1]), None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
