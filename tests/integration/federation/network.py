"""A network for a federation on one machine: a namespace per host, all on one bridge; loopback where that may not be.

The machine itself is on the bridge, too: the test is the lead, who reaches the server as the sites do.
"""

import os
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import owner
import processes
import psutil

from tests.patience import PATIENCE

#: Bridges are called fct<n> and hosts' namespaces fct<n>-<host>; n also gives the address range 10.<200 + n / 256>.<n % 256>.0/24.
PREFIX = "fct"
MOST = 1024


class Loopback:
    """All hosts share this machine's loopback; links cannot be cut."""

    name = "loopback"
    server_address = "localhost"

    def __init__(self) -> None:
        self.port = _free_port()

    def address(self, host: str) -> str:
        """Return where others reach a host."""
        return self.server_address

    def relay_port(self, host: str) -> int:
        """Return a port for a relay to listen on."""
        return _free_port()

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` at a host."""
        return list(command)

    def add(self, host: str) -> None:
        """Add a host."""

    def cut(self, host: str) -> None:
        """Raise, as there is no link."""
        raise RuntimeError("links cannot be cut without network namespaces")

    def mend(self, host: str) -> None:
        """Do nothing: no link can be cut."""

    def is_cut(self, host: str) -> bool:
        """Return False: no link can be cut."""
        return False

    def remove(self) -> None:
        """Do nothing: nothing was made."""


class Namespaces:
    """A network namespace per host, each with one link to a bridge.

    The bridge's alias holds the process that made it, so that what a killed test left can be reported from what is in use.
    """

    name = "namespaces"
    port = 18302  # the server has all ports of its namespace for itself

    def __init__(self) -> None:
        self.number = _claim_bridge()
        self.bridge = f"{PREFIX}{self.number}"
        self._net = f"10.{200 + self.number // 256}.{self.number % 256}"
        self._hosts: list[str] = []
        try:
            _ip("addr", "add", f"{self._net}.1/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            self.add("server")
        except BaseException:
            self.remove()
            raise

    @property
    def server_address(self) -> str:
        """The server's address, which is known when the kits are made."""
        return self.address("server")

    def address(self, host: str) -> str:
        """Return where others reach a host."""
        return f"{self._net}.{10 + self._hosts.index(host)}"

    def relay_port(self, host: str) -> int:
        """Return a port for a relay to listen on; it has all of its namespace for itself."""
        return self.port

    def add(self, host: str) -> None:
        """Give a host its namespace and its link; nothing if it has them."""
        if host in self._hosts:
            return
        self._hosts.append(host)
        namespace, outside = self._namespace(host), self._outside(host)
        _ip("netns", "add", namespace)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", outside, "master", self.bridge, "up")
        _ip("-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "link", "set", "lo", "up")

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` at a host."""
        return ["ip", "netns", "exec", self._namespace(host), *command]

    def cut(self, host: str) -> None:
        """Take the host's link down: what it sends is lost, without a notice."""
        _ip("link", "set", self._outside(host), "down")

    def mend(self, host: str) -> None:
        """Take the host's link up again."""
        if host in self._hosts:
            _ip("link", "set", self._outside(host), "up")

    def is_cut(self, host: str) -> bool:
        """Return whether the host's link is down."""
        return "state UP" not in _ip("link", "show", self._outside(host))

    def remove(self) -> None:
        """Remove everything. Processes must have ended, for a namespace lives on with those in it."""
        _remove(self.bridge)

    def _namespace(self, host: str) -> str:
        return f"{self.bridge}-{host}"

    def _outside(self, host: str) -> str:
        return f"{self.bridge}v{self._hosts.index(host)}"


Network = Loopback | Namespaces


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
        return port


def make_network() -> Network:
    """Return namespaces where this machine and account permit them, which one try shows; else loopback."""
    try:
        remove_stale()
        return Namespaces()
    except (OSError, subprocess.CalledProcessError):
        return Loopback()


def remove_stale() -> None:
    """Remove the networks of tests that were killed before they could do it, and the processes in them."""
    for bridge, alias in _bridges().items():
        if not alias or owner.alive(alias):  # one without an alias is just being made
            continue
        for namespace in _namespaces(bridge):
            with suppress(
                subprocess.CalledProcessError
            ):  # a name that a killed process with mounts of its own has left
                processes.kill([psutil.Process(int(pid)) for pid in _ip("netns", "pids", namespace).split()])
        _remove(bridge)


def _claim_bridge() -> int:
    """Make a bridge under a free number and return this; only one process can make a name."""
    used = {int(name.removeprefix(PREFIX)) for name in _bridges()}
    taken = _ip("-4", "-o", "addr")
    start = os.getpid()
    for number in ((start + i) % MOST for i in range(MOST)):
        if number in used or f" 10.{200 + number // 256}.{number % 256}." in taken:
            continue
        try:
            _ip("link", "add", f"{PREFIX}{number}", "type", "bridge")
        except subprocess.CalledProcessError:
            if f"{PREFIX}{number}" in _bridges():
                continue  # another test was faster
            raise
        _ip("link", "set", f"{PREFIX}{number}", "alias", owner.me())
        return number
    raise OSError("no free number for a bridge")


def _bridges() -> dict[str, str]:
    """Return the alias of each bridge of ours."""
    folder = Path("/sys/class/net")
    ours = [p for p in folder.iterdir() if p.name.startswith(PREFIX) and p.name.removeprefix(PREFIX).isdigit()]
    return {path.name: (path / "ifalias").read_text().strip() for path in ours}


def _remove(bridge: str) -> None:
    for namespace in _namespaces(bridge):
        _ip("netns", "del", namespace)
    for path in Path("/sys/class/net").glob(f"{bridge}v*"):  # those of a namespace go with it, but not at once
        subprocess.run(["ip", "link", "del", path.name], capture_output=True, check=False)
    _ip("link", "del", bridge)


def _namespaces(bridge: str) -> list[str]:
    names = [line.split()[0] for line in _ip("netns", "list").splitlines()]
    return [name for name in names if name.startswith(f"{bridge}-")]


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
