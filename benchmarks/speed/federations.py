"""Federations in-process with one and with two threads: wall time, in turns.

    python -m benchmarks.speed.federations [--turns 5] [--record]

`--record` writes benchmarks/records/speed_federations.json and the table in docs/performance.md. The machine should have two idle
cores; the CPU time of both is recorded, too. Nothing here runs in a test.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.speed import page
from flareclust._foundation.machine import usable_cores
from flareclust._foundation.typing import FloatArray
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome

RECORD = Path(__file__).resolve().parent.parent / "records" / "speed_federations.json"


class Federation(NamedTuple):
    """One line of the table: an algorithm, rows (n, d) at each of the sites, k, how many runs are one measure, and whether rows are assessed."""

    algorithm: str
    n: int
    d: int
    k: int
    sites: int = 4
    times: int = 1
    assess: bool = True

    @property
    def name(self) -> str:
        shape = f"{self.sites} sites of {self.n:,} rows, d = {self.d}, k = {self.k}"
        return f"{self.algorithm}, {shape}{'' if self.assess else ', without assessment'}"

    def rows(self) -> dict[str, FloatArray]:
        """Return overlapping normal clusters at each site."""
        rng = np.random.default_rng(self.n)
        centres = rng.uniform(-4, 4, (self.k, self.d))
        return {
            f"site-{i}": centres[rng.integers(self.k, size=self.n)] + rng.normal(size=(self.n, self.d))
            for i in range(self.sites)
        }


FEDERATIONS = (
    Federation("pooled", 100_000, 16, 15),
    Federation("lloyd", 100_000, 16, 15),
    Federation("pooled", 20_000, 2, 15, times=5),
    Federation("feca", 500, 2, 15, sites=10, times=20),
    Federation("feca", 500, 2, 15, sites=10, times=20, assess=False),
)


def measured(federation: Federation, turns: int) -> dict[str, Any]:
    """Return seconds of a run with one and with two threads, and the median of the turns' ratios."""
    sites = federation.rows()
    walls: dict[int, list[float]] = {1: [], 2: []}
    found: dict[int, Outcome] = {}
    cpu = {1: 0.0, 2: 0.0}
    for turn in range(turns + 1):  # turn 0 compiles
        for workers, taken in walls.items():
            wall, used = time.perf_counter(), time.process_time()
            for _ in range(federation.times):
                found[workers] = _run(federation, sites, workers)
            if turn:
                taken.append((time.perf_counter() - wall) / federation.times)
                cpu[workers] += (time.process_time() - used) / federation.times / turns
    same = all(np.array_equal(found[2].arrays[name], value) for name, value in found[1].arrays.items())
    return {
        "name": federation.name,
        "walls": {str(workers): statistics.median(taken) for workers, taken in walls.items()},
        "cpu": {str(workers): taken for workers, taken in cpu.items()},
        "ratio": statistics.median(one / two for one, two in zip(*walls.values(), strict=True)),
        "equal": same and found[1].metrics == found[2].metrics,
    }


def _run(federation: Federation, sites: Mapping[str, FloatArray], workers: int) -> Outcome:
    options = JobOptions(k=federation.k, assess=federation.assess)
    return run_inprocess(registry.get(federation.algorithm), {}, dict(sites), options, workers=workers)


def with_table(text: str, record: dict[str, Any]) -> str:
    """Return the text of the page with the table of a record."""
    rows = [
        f"{page.measured_on(record)}.",
        "",
        "| federation | one thread | two threads | times as fast | CPU time, one and two | equal |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for line in record["lines"]:
        walls, cpu = ([page.duration(seconds) for seconds in line[name].values()] for name in ("walls", "cpu"))
        equal = "bit for bit" if line["equal"] else "**no**"
        rows.append(
            f"| {line['name']} | {walls[0]} | {walls[1]} | {line['ratio']:.2f} | {cpu[0]}, {cpu[1]} | {equal} |"
        )
    return page.between(text, "federations", "\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.federations", description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="turns of both")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    lines, load = [], os.getloadavg()[0]
    for federation in FEDERATIONS:
        lines.append(measured(federation, options.turns))
        print(json.dumps(lines[-1]), flush=True)
    if options.record:
        record = {"date": date.today().isoformat(), "cores": usable_cores(), "load": load, "lines": lines}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        page.PAGE.write_text(with_table(page.PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
