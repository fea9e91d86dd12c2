"""How much of a sweep's CPU time goes into kernels, and how much into Python and the rest.

    python -m benchmarks.speed.sweep [--seeds 3] [--only ALGORITHM ...] [--record]

The trials of benchmarks/s1_sweep.toml run one after the other in the main thread, without tracking, and a sample is taken after
every few milliseconds of CPU time (samples.py). A trial of each algorithm runs before, so that kernels are loaded. It needs S1
under `FLARECLUST_DATA`. `--record` writes benchmarks/records/speed_sweep.json and the table in docs/performance.md.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.speed import page
from benchmarks.speed.samples import PARTS, sampled
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials

BENCHMARKS = Path(__file__).resolve().parent.parent
STUDY, RECORD = BENCHMARKS / "s1_sweep.toml", BENCHMARKS / "records" / "speed_sweep.json"

#: At most so much outside of the first three of PARTS is wanted.
GOAL = 0.2
INSIDE = tuple(PARTS)[:3]


def measured(algorithm: str, todo: Sequence[study_trials.Trial]) -> dict[str, Any]:
    """Run trials; return CPU seconds of one, and the samples by part."""
    study_trials.attempt(todo[0])
    started = time.process_time()
    with sampled() as found:
        failed = [done.error for done in map(study_trials.attempt, todo) if done.error]
    seconds = time.process_time() - started
    if failed:
        raise SystemExit(f"{algorithm}: {failed[0]}")
    return {"algorithm": algorithm, "trials": len(todo), "cpu": seconds / len(todo), "samples": dict(found)}


def outside(samples: Counter[str]) -> float:
    """Return the share of samples in Python and the rest."""
    return 1 - sum(samples[part] for part in INSIDE) / samples.total()


def rows_of(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row of the table for each line, and one for all of them."""
    together: Counter[str] = Counter()
    for line in lines:
        together.update(line["samples"])
    n = sum(line["trials"] for line in lines)
    cpu = sum(line["trials"] * line["cpu"] for line in lines) / n
    total = {"algorithm": "all", "trials": n, "cpu": cpu, "samples": together}
    rows = []
    for line in (*lines, total):
        counted = Counter(line["samples"])
        shares = [f"{counted[part] / counted.total():.0%}" for part in PARTS]
        rows.append(
            f"| {line['algorithm']} | {page.duration(line['cpu'])} | {' | '.join(shares)} | {outside(counted):.0%} |"
        )
    return rows


def table(record: dict[str, Any]) -> str:
    """Return what stands on the page."""
    lines = record["lines"]
    share = outside(sum((Counter(line["samples"]) for line in lines), Counter()))
    verdict = "met" if share <= GOAL else "**missed**"
    about = (
        f"{page.measured_on(record, 'one thread')}. Of the sweep's CPU time "
        f"{share:.0%} are outside kernels and libraries (goal: at most {GOAL:.0%}, {verdict})."
    )
    rows = [
        about,
        "",
        f"| algorithm | CPU time of a trial | {' | '.join(PARTS)} | outside |",
        f"| --- | ---: |{' ---: |' * (len(PARTS) + 1)}",
    ]
    return "\n".join([*rows, *rows_of(lines)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="of each algorithm and partition")
    parser.add_argument("--only", nargs="+", metavar="ALGORITHM", help="only these")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    todo = [trial for trial in sweep_settings.trials(sweep_settings.read_sweep(STUDY)) if trial.seed < options.seeds]
    lines, load = [], os.getloadavg()[0]
    with threadpool_limits(1):
        for algorithm in options.only or dict.fromkeys(trial.cell["algorithm"] for trial in todo):
            lines.append(measured(algorithm, [trial for trial in todo if trial.cell["algorithm"] == algorithm]))
            print(rows_of(lines)[-2], flush=True)
    print(rows_of(lines)[-1])
    if options.record:
        record = {"date": date.today().isoformat(), "load": load, "lines": lines}
        page.recorded(RECORD, record, "sweep", table(record))


if __name__ == "__main__":
    main()
