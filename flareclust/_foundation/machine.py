"""What this process may use of its machine: processor cores and memory, less where its container or service is limited."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def machine_memory() -> int:
    """Return the bytes of memory that this process may have: the machine's, or less where its container or service is limited."""
    return min(int(psutil.virtual_memory().total), *_group_limits(), sys.maxsize)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _group_limits(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Give the limits of this process's control groups, which only Linux has, from its own up to the topmost that is seen here."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)  # none are named in version 2
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        group = top.joinpath(path.lstrip("/"))
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # a folder outside the container, or no limit
                yield int(folder.joinpath("memory.limit_in_bytes" if controllers else "memory.max").read_text())
