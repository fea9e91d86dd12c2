"""Ports of this machine: a free one for a POC's server, and whether somebody answers at it."""

import socket
from contextlib import suppress
from random import SystemRandom

from flareclust._foundation.errors import UserError

#: Ports that systems do not hand out by themselves; NVFlare's own connections get those.
PORTS = range(20000, 30000)


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
    for port in SystemRandom().sample(PORTS, 100):  # two POCs that start at once should not try the same ones
        if _is_free(port):
            return port
    raise UserError(f"no free port was found in {PORTS.start}..{PORTS.stop - 1}; give one with --port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or connections of a server just ended would count
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def answers(host: str, port: int) -> bool:
    """Return whether somebody takes connections at a port."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
