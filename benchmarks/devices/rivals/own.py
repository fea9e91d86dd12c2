"""The work in this project's engines, and in a plain loop: `python -m benchmarks.devices.rivals.own CONTENDER FILE M TURNS OUT`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.devices.rivals.processes import Clock
from benchmarks.devices.rivals.work import ROWS, START, WORK, K, rows_in, rows_of, versions
from flareclust._foundation.typing import FloatArray
from flareclust.data.devices import Devices
from flareclust.devices.engine import run_devices
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol import registry

#: What each kind of work is called here, with its settings.
_JOBS: dict[str, tuple[str, dict[str, object]]] = {
    "one-shot": ("pooled", {"restarts": 1}),
    "lloyd": ("lloyd", {"rounds": 1, "start": START.tolist()}),
}


def devices_engine(file: Path, m: int, work: str) -> FloatArray:
    algorithm, params = _JOBS[work]
    devices = Devices(rows_in(file)[: m * ROWS], ROWS * np.arange(m + 1))
    return run_devices(registry.get(algorithm), params, devices, JobOptions(k=K, assess=False)).centroids


def inprocess_engine(file: Path, m: int, work: str) -> FloatArray:
    algorithm, params = _JOBS[work]
    devices = Devices(rows_in(file)[: m * ROWS], ROWS * np.arange(m + 1))
    return run_inprocess(registry.get(algorithm), params, dict(devices), JobOptions(k=K, assess=False)).centroids


def loop(file: Path, m: int, work: str) -> FloatArray:
    local, merge = WORK[work]
    return merge([local(rows_of(file, i), i, START) for i in range(m)])


CONTENDERS: dict[str, Callable[[Path, int, str], FloatArray]] = {
    "devices": devices_engine,
    "in-process": inprocess_engine,
    "loop": loop,
}


def main(contender: str, file: Path, m: int, turns: int, out: Path) -> None:
    run, clock = CONTENDERS[contender], Clock()
    for work in WORK:
        run(file, min(m, 100), work)
    start, lines, found = clock.since(), [], {}
    for work in WORK:
        for _ in range(turns):
            before = Clock()
            found[work] = run(file, m, work)
            lines.append({"work": work, **before.since()})
    np.savez(out.with_suffix(".npz"), **found)
    out.write_text(json.dumps({"start": start, "lines": lines, "versions": versions("numpy", "numba")}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
