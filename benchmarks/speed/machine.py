"""What the machine can do, measured in the same run: multiply-adds, matrix products and reading memory."""

import os
import platform
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

#: Multiply-adds in turns on so many numbers: enough that none waits for the one before, and all stay in vector registers.
_LANES, _TURNS = 64, 1_000_000

#: What is compared, and what computes it.
_PACKAGES = ("numpy", "numba", "scikit-learn", "scikit-learn-intelex", "faiss-cpu")


def limits(threads: int = 1) -> dict[str, Any]:
    """Return GF/s of multiply-adds and of a 2048^3 product, and GB/s of summing 800 MB, each the best of five.

    On one thread they are rates of CPU time, on more of wall time. The caller limits the threads of BLAS.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {
        "processor": _processor(),
        "python": platform.python_version(),
        "packages": _versions(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
    }
    A = rng.normal(size=(2048, 2048))
    for name, M in (("gemm_float64", A), ("gemm_float32", A.astype(np.float32))):
        found[name] = round(2 * 2048**3 / 1e9 / _best(lambda M=M: M @ M, clock), 1)
    with ThreadPoolExecutor(threads) as pool:

        def together(action: Callable[[Any], Any], given: list[Any]) -> Callable[[], Any]:
            return lambda: list(pool.map(action, given))

        _multiply_adds(1.0)  # compiles
        work = together(_multiply_adds, [1.0 + i for i in range(threads)])
        found["fma_float64"] = round(2 * threads * _LANES * _TURNS / 1e9 / _best(work, clock), 1)
        memory = np.ones(100_000_000)
        read = together(np.sum, np.array_split(memory, threads))
        found["read_gb"] = round(memory.nbytes / 1e9 / _best(read, clock), 1)
    return found


@njit(nogil=True, fastmath={"contract"})  # type: ignore[untyped-decorator]
def _multiply_adds(start: float) -> float:
    sums = np.full(_LANES, start)
    for _ in range(_TURNS):
        for lane in range(_LANES):
            sums[lane] = sums[lane] * 0.999 + 0.001
    return float(sums.sum())


def _versions() -> dict[str, str]:
    """Return the version of each package that is installed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _best(action: Callable[[], Any], clock: Callable[[], float]) -> float:
    times = []
    for _ in range(5):
        started = clock()
        action()
        times.append(clock() - started)
    return min(times)


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", file.read_text()) if file.exists() else None
    flags = "with AVX-512" if file.exists() and "avx512f" in file.read_text() else ""
    return f"{found[1] if found else platform.processor()} {flags}".strip()
