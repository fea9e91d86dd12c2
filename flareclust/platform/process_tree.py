"""Processes that NVFlare puts into sessions of their own: found by what they name, and ended until none is left."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from flareclust._foundation.errors import JobFailed

#: How the names of the modules begin that our processes run.
_MODULES = ("nvflare.", "flareclust.")
_POLL_SECONDS = 0.25


def ended(process: psutil.Process) -> bool:
    """Return whether a process is gone, or is a zombie that only its parent can remove."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def working_in(folder: str) -> list[psutil.Process]:
    """Return the living processes that run a module of NVFlare or of flareclust and name the folder in their command lines.

    Somebody who looks at a log in there is none of them.
    """
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if any(folder in word for word in words) and any(word.startswith(_MODULES) for word in words):
            found.append(process)
    return [process for process in found if not ended(process)]


def end_all(
    find: Callable[[], Sequence[psutil.Process]],
    seconds: float,
    order: Callable[[psutil.Process], int] = lambda process: 0,
) -> int:
    """Kill what `find` returns until it returns nothing; return how many processes there were.

    Asked again and again, since a process that was just being started at the first look is seen at the next one. Those with
    smaller numbers by `order` are killed first.

    Raises:
        JobFailed: some could not be ended in that time.
    """
    deadline = time.monotonic() + seconds
    seen: set[psutil.Process] = set()
    while alive := list(dict.fromkeys(find())):
        seen.update(alive)
        if time.monotonic() > deadline:
            raise JobFailed(f"processes {', '.join(str(one.pid) for one in alive)} could not be ended")
        for process in sorted(alive, key=order):
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=_POLL_SECONDS)
    return len(seen)
