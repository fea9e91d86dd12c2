"""What a provisioned federation of many sites takes: memory and CPU time of its processes, without a job and in one.

    python -m benchmarks.many_sites [--sites 10 20 40] [--jobs 3] [--record]

A server and so many sites with certificates, all on this machine, each in processes of its own, as their kits start them; then jobs
of `lloyd` one after the other. Memory is what only the process has, and for the whole machine each page once (PSS). CPU time is
that of the last look at a process, about half a second before its end. `--record` writes benchmarks/records/many_sites.json
and the table in docs/performance.md.
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.attacks.federation import from_tests
from benchmarks.speed import page
from flareclust._foundation.machine import usable_cores
from flareclust.engines.options import JobOptions
from flareclust.platform.provisioned import run_production
from flareclust.protocol.registry import get
from flareclust.testing import iid_sites

from_tests()

from harness import LEAD, SERVER, Federation

RECORD = Path(__file__).resolve().parent / "records" / "many_sites.json"
_MB = 1 << 20
_EVERY = 0.5


class Watch(threading.Thread):
    """Looks at all processes of a federation until it is stopped: the most memory, and CPU seconds as last seen."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(daemon=True)
        self.own: dict[psutil.Process, float] = {}
        self.cpu: dict[psutil.Process, float] = {}
        self.hosts: dict[psutil.Process, str] = {}
        self.whole = 0.0
        self.kits = {str(federation.kit(host)): host for host in federation.hosts}
        self.over = threading.Event()

    def run(self) -> None:
        while True:
            self.look()
            if self.over.wait(_EVERY):
                return

    def look(self) -> None:
        """Look once."""
        whole = 0.0
        for process in psutil.process_iter(["cmdline"]):
            host = next((self.kits[word] for word in process.info["cmdline"] or () if word in self.kits), None)
            if host is not None and "-m" in process.info["cmdline"]:
                with suppress(psutil.NoSuchProcess):
                    memory, times = process.memory_full_info(), process.cpu_times()
                    self.hosts[process] = host
                    self.own[process] = max(self.own.get(process, 0.0), memory.uss / _MB)
                    self.cpu[process] = times.user + times.system
                    whole += memory.pss / _MB
        self.whole = max(self.whole, whole)


def measure(sites: int, jobs: int) -> dict[str, float]:
    """Return what a federation of so many sites takes; medians over sites and jobs."""
    names = [f"site{number:02}" for number in range(1, sites + 1)]
    with Federation(names).running() as federation:
        for name, rows in zip(names, iid_sites(m=sites, k=5)[0].values(), strict=True):
            np.save(federation.kit(name) / "rows.npy", rows)
            federation.configure(name, path=str(federation.kit(name) / "rows.npy"))
        federation.wait_connected()
        idle = Watch(federation)
        idle.look()
        found = [_job(federation, idle) for _ in range(jobs)]
    parents = [memory for process, memory in idle.own.items() if idle.hosts[process] != SERVER]
    return {
        "sites": sites,
        "idle": statistics.median(parents),
        "whole idle": idle.whole,
        **{name: statistics.median(one[name] for one in found) for name in found[0]},
    }


def _job(federation: Federation, idle: Watch) -> dict[str, float]:
    before = {process: process.cpu_times() for process in idle.own}
    watch = Watch(federation)
    watch.start()
    options = JobOptions(k=5, seed=3, min_sites=len(federation.sites))
    began = time.monotonic()
    run_production(get("lloyd"), {}, options, federation.kit(LEAD))
    seconds = time.monotonic() - began
    watch.over.set()
    watch.join()
    new = [process for process in watch.own if process not in idle.own]
    at_sites = [process for process in new if watch.hosts[process] != SERVER]
    used = {
        process: watch.cpu[process] - sum(before[process][:2]) if process in before else watch.cpu[process]
        for process in watch.cpu
    }
    return {
        "job": statistics.median(watch.own[process] for process in at_sites),
        "site CPU": statistics.median(watch.cpu[process] for process in at_sites),
        "server CPU": sum(seconds for process, seconds in used.items() if watch.hosts[process] == SERVER),
        "whole": watch.whole,
        "seconds": seconds,
    }


def table(record: Mapping[str, Any]) -> str:
    """Return the table of a record."""
    head = "| sites | a site without a job | its job's process | CPU of it | CPU of the server, a job | all processes without a job | in a job | seconds of the job |"
    lines = [
        f"| {one['sites']:.0f} | {one['idle']:.0f} MB | {one['job']:.0f} MB | {one['site CPU']:.1f} s | {one['server CPU']:.1f} s | "
        f"{one['whole idle'] / 1024:.1f} GB | {one['whole'] / 1024:.1f} GB | {one['seconds']:.1f} |"
        for one in record["federations"]
    ]
    return "\n".join([f"{page.measured_on(dict(record))}.", "", head, "|" + " ---: |" * 8, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.many_sites", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 20, 40], help="sizes of the federation")
    parser.add_argument("--jobs", type=int, default=3, help="jobs in each")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    asked = parser.parse_args()
    found, load = [], os.getloadavg()[0]
    for sites in asked.sites:
        found.append(measure(sites, asked.jobs))
        print(found[-1], flush=True)
    record = {"date": date.today().isoformat(), "cores": usable_cores(), "load": load, "federations": found}
    print(table(record))
    if asked.record:
        page.recorded(RECORD, record, "many-sites", table(record))


if __name__ == "__main__":
    main()
