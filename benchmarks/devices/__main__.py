"""Time and memory of the engine devices, up to a million of them.

    python -m benchmarks.devices [--only NAME ...] [--most M] [--record]

Each run has a process of its own. Rows are made on the fly, which is part of the time; where a cohort is drawn they are in memory.
`--record` writes benchmarks/records/devices.json, docs/images/devices.png and the table in docs/performance.md; lines that were not
measured stay.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.devices import mixture, page
from flareclust.data.devices import Devices
from flareclust.devices.engine import run_devices
from flareclust.engines.options import JobOptions
from flareclust.federation.exchanges import Sampling
from flareclust.protocol import registry

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "benchmarks" / "records" / "devices.json"

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)


class Case(NamedTuple):
    """What is measured: the work in words, the devices, the algorithm with its k and settings, and the goal in seconds."""

    title: str
    devices: Callable[[int], Devices]
    algorithm: str
    k: int
    params: dict[str, Any]
    assess: bool = True
    cohort: int | None = None
    sizes: Sequence[int] = SIZES
    goal: float | None = None


_START = (mixture.GRID + 0.5).tolist()
CASES = {
    "pooled": Case("pooled, 50 rows, d = 2, k = 16", mixture.plane, "pooled", 16, {"restarts": 1}, goal=120),
    "pooled, all starts": Case(
        "pooled with its 20 starts of the server's k-means", mixture.plane, "pooled", 16, {}, sizes=SIZES[-1:]
    ),
    "kfed": Case("k-FED, 50 rows, d = 2, k = 16", mixture.plane, "kfed", 16, {}, goal=120),
    "lloyd": Case(
        "one round of Lloyd, 50 rows, d = 2, k = 16",
        mixture.plane,
        "lloyd",
        16,
        {"rounds": 1, "start": _START},
        assess=False,
        goal=15,
    ),
    "mixture": Case("k-FED, 30 rows, d = 16, k = 100", mixture.kfed, "kfed", 100, {"k_local": 4}, goal=180),
    "lloyd, cohort": Case(
        "one round of Lloyd with 10,000 of the devices, 50 rows, d = 2, k = 16",
        mixture.plane_in_memory,
        "lloyd",
        16,
        {"rounds": 1, "start": _START},
        assess=False,
        cohort=10_000,
        sizes=SIZES[-1:],
    ),
    "fkm": Case(
        "FKM, start and 10 rounds of 10,000 devices each, 50 rows, d = 2, k = 16",
        mixture.plane_in_memory,
        "fkm",
        16,
        {"rounds": 10, "tol": 0.0},
        assess=False,
        cohort=10_000,
        sizes=SIZES[-1:],
    ),
}


def measured(name: str, m: int) -> dict[str, Any]:
    """Run a case in this process, once with few devices for the kernels to be loaded, and then with m."""
    case = CASES[name]
    algorithm, options = registry.get(case.algorithm), JobOptions(k=case.k, assess=case.assess)
    run_devices(algorithm, case.params, case.devices(300), options)
    devices, sampling = case.devices(m), None if case.cohort is None else Sampling(case.cohort)
    started, cpu = time.perf_counter(), time.process_time()
    outcome = run_devices(algorithm, case.params, devices, options, sampling=sampling)
    return {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "name": name,
        "title": case.title,
        "goal": case.goal,
        "devices": m,
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "merge": outcome.seconds_merge,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "inertia_per_row": (outcome.metrics.get("inertia") or 0.0) / devices.n,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="only these")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of devices")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "M"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one[0], int(options.one[1]))))
        return
    lines = []
    for name in options.only:
        for m in (size for size in CASES[name].sizes if size <= options.most):
            command = [sys.executable, "-m", "benchmarks.devices", "--one", name, str(m)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            lines.append(json.loads(done.stdout))
            print(page.text_line(lines[-1]), flush=True)
    for name in options.only:
        print(f"{name}: slope {page.slope([line for line in lines if line['name'] == name]):.3f}")
    if options.record:
        record = together(json.loads(RECORD.read_text()), lines)
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        page.write(record)


def together(before: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines measured now, and of the others those of the record, in order."""
    known = {(line["name"], line["devices"]): line for line in [*before, *found]}
    return [known[name, m] for name, case in CASES.items() for m in case.sizes if (name, m) in known]


if __name__ == "__main__":
    main()
