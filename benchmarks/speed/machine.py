"""What the machine can do on one thread, measured in the same run: matrix products and reading memory."""

import platform
import re
import time
from pathlib import Path
from typing import Any

import numpy as np


def limits() -> dict[str, Any]:
    """Return GF/s of a 2048^3 product in both precisions and GB/s of summing 800 MB, each the best of five."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"processor": _processor(), "python": platform.python_version()}
    A = rng.normal(size=(2048, 2048))
    for name, M in (("gemm_float64", A), ("gemm_float32", A.astype(np.float32))):
        found[name] = round(2 * 2048**3 / 1e9 / _best(lambda M=M: M @ M), 1)
    memory = np.ones(100_000_000)
    found["read_gb"] = round(memory.nbytes / 1e9 / _best(memory.sum), 1)
    return found


def _best(action: Any) -> float:
    times = []
    for _ in range(5):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", file.read_text()) if file.exists() else None
    flags = "with AVX-512" if file.exists() and "avx512f" in file.read_text() else ""
    return f"{found[1] if found else platform.processor()} {flags}".strip()
