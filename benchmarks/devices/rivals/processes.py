"""Wall time, and CPU time of a process with all that it has started and that still run."""

import time
from contextlib import suppress

import psutil


def cpu_of_descendants() -> float:
    """Return the CPU seconds of what this process has started and that still runs."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times())
    return total


class Clock:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._wall, self._own, self._others = time.perf_counter(), time.process_time(), cpu_of_descendants()

    def since(self) -> dict[str, float]:
        """Return the `seconds` since then, the `cpu` of all processes, and the `others` of it: those that this one has started."""
        others = cpu_of_descendants() - self._others
        cpu = time.process_time() - self._own + others
        return {"seconds": time.perf_counter() - self._wall, "cpu": cpu, "others": others}
