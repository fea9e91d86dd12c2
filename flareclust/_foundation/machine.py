"""What this process may use of its machine: cores and memory, less where its container or service is limited; and whether a port answers."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

#: Where Linux lists the control groups of a process, and where their files are.
_OWN, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def machine_memory() -> int:
    """Return the bytes of memory that this process may have: the machine's, or less where its container or service is limited."""
    return min(int(psutil.virtual_memory().total), *(limit for limit, _ in _group_memory()), sys.maxsize)


def free_memory() -> int:
    """Return how many of these bytes are free: nobody holds them but for pages of files, which the system takes back."""
    return min(int(psutil.virtual_memory().available), *(limit - held for limit, held in _group_memory()), sys.maxsize)


def usable_cores() -> int:
    """Return how many cores this process may use: those that it may run on, or less where its container or service has a quota."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(own, *map(int, _group_quotas()), sys.maxsize))


def answers(host: str, port: int, timeout: float = 1) -> bool:
    """Return whether somebody takes connections at a port within so many seconds."""
    with suppress(OSError), socket.create_connection((host, port), timeout=timeout):
        return True
    return False


def _group_memory(own: Path = _OWN, root: Path = _ROOT) -> Iterator[tuple[int, int]]:
    """Give the limits of memory of this process's control groups, and the bytes that all their processes hold beside pages of files."""
    for folder, version in _groups("memory", own, root):
        with suppress(OSError, ValueError):  # a folder outside the container, or no limit
            limit = int(folder.joinpath("memory.limit_in_bytes" if version == 1 else "memory.max").read_text())
            kinds = ("total_rss ", "total_shmem ") if version == 1 else ("anon ", "shmem ")
            held = 0
            with suppress(OSError):  # some sandboxes have limits only
                lines = folder.joinpath("memory.stat").read_text().splitlines()
                held = sum(int(line.split()[1]) for line in lines if line.startswith(kinds))
            yield limit, held


def _group_quotas(own: Path = _OWN, root: Path = _ROOT) -> Iterator[float]:
    """Give the numbers of cores whose time this process's control groups may take."""
    for folder, version in _groups("cpu", own, root):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if version == 1 else ("cpu.max",)
        with suppress(OSError, ValueError):  # "max" where there is no quota in version 2
            time, period = (float(text) for name in names for text in folder.joinpath(name).read_text().split())
            if time > 0:  # -1 is none in version 1
                yield time / period


def _groups(controller: str, own: Path, root: Path) -> Iterator[tuple[Path, int]]:
    """Give the control groups of this process, which only Linux has, from its own up to the topmost that is seen here, and their version."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)  # none are named in version 2
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        group = top.joinpath(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield folder, 1 if controllers else 2
