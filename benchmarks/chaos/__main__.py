"""Seeded schedules of faults, with random jobs, in a provisioned federation; the exit code is 1 where a promise is broken.

    python -m benchmarks.chaos --seed 0 --schedules 10 --out chaos.jsonl

A record per schedule is appended to the file; seeds that are there already are not run again, so that it may be interrupted. Beside it
are the logs of all hosts of the seeds that broke a promise.
As root, on Linux: hosts have network namespaces and disks of their own, which are gone with this process.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.chaos.federation import LEAD, Shaken, wait_until
from benchmarks.chaos.oracle import options_of, wrong_in_failure, wrong_in_result, wrong_in_time
from benchmarks.chaos.schedule import JOBS, SITES, Schedule, commit
from flareclust._foundation.errors import JobFailed
from flareclust.engines.options import ExpectedSites
from flareclust.platform.provisioned import run_production
from flareclust.platform.session import open_session
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get

#: So many schedules one federation goes through.
_TOGETHER = 20

#: A job that failed for a reason that may pass is submitted again once, as tracked runs do.
_ATTEMPTS = 2

#: Seconds after the last job's end, with everything mended, by which no process of a job is left, and all sites are back.
_GONE = 120.0

#: Set in a process that has mounts of its own.
OWN_MOUNTS = "CHAOS_OWN_MOUNTS"


class Run(threading.Thread):
    """A job as a user runs it: submitted again once where that may help."""

    def __init__(self, federation: Shaken, name: str, token: str) -> None:
        super().__init__(daemon=True)
        self.job, self.attempts, self.seconds = name, 0, 0.0
        self.outcome: Outcome | None = None
        self.error: Exception | None = None
        self._federation, self._token = federation, token

    def run(self) -> None:
        """Follow the job to its end."""
        started = time.monotonic()
        name, params, _ = JOBS[self.job]
        kit, expected = self._federation.kit(LEAD), ExpectedSites(expect_sites=SITES)
        while self.outcome is None and self.attempts < _ATTEMPTS:
            self.attempts += 1
            try:
                asked = get(name), params, options_of(self.job), kit
                self.outcome = run_production(*asked, token=self._token, expected=expected)
            except Exception as error:  # noqa: BLE001 - it is looked at with all the others
                self.error = error
                if not (isinstance(error, JobFailed) and error.transient):
                    break
        self.seconds = time.monotonic() - started


def carry_out(federation: Shaken, schedule: Schedule) -> dict[str, Any]:
    """Run a schedule; return its record."""
    submitted = time.time()
    runs = [Run(federation, job, f"{schedule.seed}-{os.getpid()}-{i}") for i, job in enumerate(schedule.jobs)]
    for run in runs:
        run.start()
    started = time.monotonic()
    moments = [(fault.start, federation.begin, fault) for fault in schedule.faults]
    moments += [(fault.start + fault.seconds, federation.end, fault) for fault in schedule.faults]
    for at, act, fault in sorted(moments, key=lambda moment: moment[0]):
        time.sleep(max(0.0, started + at - time.monotonic()))
        act(fault)
    wrong = []
    for run in runs:
        run.join(20 * 60)
        wrong += _judged(federation, schedule, run)
    wrong += _left_over(federation, len(runs), submitted)
    jobs = [
        {
            "job": run.job,
            "attempts": run.attempts,
            "seconds": round(run.seconds, 1),
            "refused": {} if run.outcome is None else dict(run.outcome.refused),
            "failed": "" if run.outcome is not None else str(run.error),
        }
        for run in runs
    ]
    return {"seed": schedule.seed, "faults": [str(fault) for fault in schedule.faults], "jobs": jobs, "wrong": wrong}


def _judged(federation: Shaken, schedule: Schedule, run: Run) -> list[str]:
    """Return what is wrong with how a job ended."""
    if run.is_alive():
        return [f"{run.job}: did not end"]
    late = wrong_in_time(schedule, run.job, run.attempts, run.seconds)
    if run.outcome is not None:
        files = {site: federation.rows(site) for site in SITES}
        return late + wrong_in_result(schedule, run.job, run.outcome, files)
    assert run.error is not None
    return late + wrong_in_failure(schedule, run.job, run.error)


def _left_over(federation: Shaken, jobs: int, submitted: float) -> list[str]:
    """Return what is left that should not be, or does not come back, with everything mended."""
    wrong = []
    try:
        federation.wait_connected(patience=_GONE)
    except TimeoutError:
        wrong.append(f"after {_GONE:.0f} s only {federation.connected()} are connected")
    try:
        wait_until(lambda: not federation.jobs_running(), "no process of a job is left", _GONE)
    except TimeoutError:
        wrong.append(f"processes of jobs are left at {federation.jobs_running()}")
    with open_session(federation.kit(LEAD)) as session:
        listed = [meta for meta in session.list_jobs(detailed=True) if float(meta["submit_time"]) >= submitted]
        complete = [meta for meta in listed if str(meta["status"]).endswith("COMPLETED")]
        running = [meta["job_id"] for meta in listed if not str(meta["status"]).startswith("FINISHED")]
    if len(complete) > jobs:
        wrong.append(f"{len(complete)} complete jobs, where {jobs} were asked for")
    if running:
        wrong.append(f"jobs that are over are not listed as such: {', '.join(running)}")
    if damaged := federation.damaged_results():
        wrong.append(f"results of which only the file is there that is written last: {', '.join(map(str, damaged))}")
    if temporary := federation.temporary_files():
        wrong.append(f"temporary files are left: {', '.join(temporary)}")
    if own := [place for place in _open_here() if Path(place).name.startswith("fc-")]:
        wrong.append(f"the user's temporary files are left: {', '.join(own)}")
    return wrong


def _open_here() -> Iterator[str]:
    """Yield the places of the files and folders that this process has open; the folder of a run is locked until it is gone."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            yield os.readlink(link)


def keep_logs(federation: Shaken, folder: Path) -> None:
    """Copy what all hosts logged."""
    for host in federation.hosts:
        for log in federation.kit(host).rglob("*log*.txt"):
            copy = folder / host / log.relative_to(federation.kit(host))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, copy)


def main() -> int:
    """Run the schedules that are asked for and not done yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--schedules", type=int, default=10, help="how many")
    parser.add_argument("--out", type=Path, default=Path("chaos.jsonl"), help="the records, a line each")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    done = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    known = {record["seed"] for record in done}
    tree = commit()
    left = [seed for seed in range(asked.seed, asked.seed + asked.schedules) if seed not in known]
    for first in range(0, len(left), _TOGETHER):
        with Shaken().running() as federation:
            for seed in left[first : first + _TOGETHER]:
                federation.start_afresh()
                record = carry_out(federation, Schedule.of(seed)) | {"tree": tree}
                with asked.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(
                    f"{seed}: {'; '.join(record['faults'])}: {'; '.join(record['wrong']) or 'as promised'}", flush=True
                )
                done.append(record)
                if record["wrong"]:
                    keep_logs(federation, asked.out.with_suffix("") / str(seed))
                    federation.heal()
    broken = sum(bool(record["wrong"]) for record in done)
    print(f"{len(done)} schedules, {sum(len(record['jobs']) for record in done)} jobs, {broken} with a broken promise")
    return min(1, broken)


def in_own_mounts(module: str) -> None:
    """Run a module in a process with mounts of its own, with the same arguments; SIGTERM lets that clean up, as Ctrl-C does."""
    if OWN_MOUNTS not in os.environ:
        os.environ[OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", module, *sys.argv[1:]])
    signal.signal(signal.SIGTERM, signal.default_int_handler)


if __name__ == "__main__":
    in_own_mounts("benchmarks.chaos")
    sys.exit(main())
