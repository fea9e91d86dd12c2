"""Where the time of a simulator run goes.

    python -m benchmarks.start_up [--turns 3] [--record]

`flareclust run lloyd` with three sites of digits, once with one update and once with up to 21, so many times each, as a new process
in an empty folder, where MLflow makes a new database. The stages are read from NVFlare's log (`-v`); medians in seconds, on a
machine that is otherwise idle. The CPU time of all processes, which other work changes less, is that of their last sample. MLflow
reads about every installed package, and numba imports coverage, so the record says what environment it is of. `--record` writes
benchmarks/records/start_up.json and the table in docs/performance.md.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import date, datetime
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.speed import page
from flareclust._foundation.machine import usable_cores

RECORD = Path(__file__).resolve().parent / "records" / "start_up.json"

#: A stage ends where the log first says this; the last one ends with the process.
STAGES = {
    "command: imports, data; simulator: imports, kernels, server": "Start the clients run simulation",
    "sites: processes, connect; first exchange, local starts": "cluster 0:",
    "updates": "assess",
}
LAST = "assessment, result, report, MLflow"
#: Up to this load a machine counts as idle.
IDLE = 1.0
#: Goals: seconds of the job with one update, and of a further round.
GOALS = {"job": 9.0, "further": 0.4}
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - \w+ - (.*)")
SITES, DATA, K = 3, "digits", 10


class Run(NamedTuple):
    """What one run took: seconds of each stage, of the job as its result says, its exchanges, and CPU seconds."""

    stages: dict[str, float]
    job: float
    exchanges: int
    cpu: float


def run(rounds: int, folder: Path) -> Run:
    """Return what a run with at most so many updates takes, in an empty folder."""
    settings = {"rounds": rounds, "tol": 0, "split_merge": 0}
    command = [str(Path(sys.executable).with_name("flareclust")), "-v", "run", "lloyd", "--engine", "simulator"]
    command += ["--data", DATA, "--k", str(K), "--n-sites", str(SITES), "--out", str(folder / "result")]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    log = folder / "log.txt"
    began = datetime.now()
    with log.open("wb") as stderr:
        process = psutil.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr)
        cpu = _cpu_until_end(process)
    ended = datetime.now()
    if process.returncode:
        raise SystemExit(f"the run failed:\n{log.read_text(encoding='utf-8')[-2000:]}")
    text = log.read_text(encoding="utf-8")
    lines = [(datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f"), found[2]) for found in STAMP.finditer(text)]
    ends = [next(at for at, line in lines if line.startswith(words)) for words in STAGES.values()]
    stages = {
        name: (end - start).total_seconds()
        for name, start, end in zip([*STAGES, LAST], [began, *ends], [*ends, ended], strict=True)
    }
    result = json.loads(next((folder / "result").rglob("result.json")).read_text())
    return Run(stages, float(result["seconds"]["total"]), int(result["rounds"]), cpu)


def _cpu_until_end(process: psutil.Popen) -> float:
    """Wait for a process; return the CPU seconds of it and all that it started, each as last seen."""
    seen: dict[tuple[int, float], float] = {}
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for one in [process, *process.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    times = one.cpu_times()
                    seen[one.pid, one.create_time()] = times.user + times.system
        time.sleep(0.1)
    return sum(seen.values())


def measure(rounds: int) -> Run:
    """Return what `run` does, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        return run(rounds, Path(folder))


def medians(runs: list[tuple[Run, Run]]) -> dict[str, Any]:
    """Return the medians of pairs of a short and a long run."""
    return {
        "stages": {name: statistics.median(short.stages[name] for short, _ in runs) for name in [*STAGES, LAST]},
        "whole": statistics.median(sum(short.stages.values()) for short, _ in runs),
        "cpu": statistics.median(short.cpu for short, _ in runs),
        "job": statistics.median(short.job for short, _ in runs),
        "further": statistics.median(
            (long.job - short.job) / (long.exchanges - short.exchanges) for short, long in runs
        ),
    }


def environment() -> str:
    """Return what the packages are that processes import, or read about, when they start."""
    coverage = "with" if find_spec("coverage") else "without"
    return f"Python {platform.python_version()}, NVFlare {version('nvflare')}, {len(list(distributions()))} packages, {coverage} coverage"


def table(record: dict[str, Any]) -> str:
    """Return the table of a record and what it says of the goals."""
    rows = [f"| {name} | {seconds:.1f} |" for name, seconds in record["stages"].items()]
    measured = f"{page.measured_on(record)}."
    if "environment" in record:
        measured += f" {record['environment']}."
    times = f"The command took {record['whole']:.1f} s, and {record['cpu']:.1f} s of CPU time in all processes."
    return "\n".join([measured, "", "| stage | seconds |", "| --- | ---: |", *rows, "", f"{times} {verdict(record)}"])


def verdict(record: dict[str, Any]) -> str:
    """Return what a record says of the goals."""
    job, further = (
        f"{record[name]:.2g} s (goal: at most {goal:g} s, {'met' if record[name] <= goal else '**missed**'})"
        for name, goal in GOALS.items()
    )
    busy = " The goals are for an idle machine, which this one was not." if record["load"] > IDLE else ""
    return f"Its job took {job}, a further round {further}.{busy}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_up", description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="runs of each length")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    measure(1)  # what is compiled once and kept
    found = medians([(measure(1), measure(21)) for _ in range(options.turns)])
    record = {"date": date.today().isoformat(), "cores": usable_cores(), "load": load}
    record |= {"environment": environment(), **found}
    print(table(record))
    if options.record:
        page.recorded(RECORD, record, "start-up", table(record))


if __name__ == "__main__":
    main()
