"""A site whose file is several times as large as the memory that its process may take: a job, and the labels of the rows.

    python -m benchmarks.large_file [--rows 12000000] [--limit 1024] [--folder FOLDER] [--record]

Rows in 64 columns (512 bytes each) are written to an npy file in FOLDER, by default a temporary one; a process of its own then runs
two updates of `lloyd` with k = 8 from given centroids, the assessment, and writes labels.csv. The process may take `--limit` MiB
in all, libraries included: `RLIMIT_DATA` counts its own memory and no pages of mapped files, which the system takes back when it
needs them, and refuses what would be more. `--record` writes benchmarks/records/large_file.json and the table in docs/performance.md.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import status
from benchmarks.speed.page import measured_on, recorded
from benchmarks.streams import COLUMNS, K, forget, write_file
from flareclust.core.chunks import is_mapped
from flareclust.data.labels import write_labels
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol import registry
from flareclust.sites.rows import SiteData

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "large_file.json"

UPDATES = 2


def limited(file: Path, limit: int) -> dict[str, Any]:
    """Run the job in this process, which may take `limit` bytes of its own, and write the labels beside the file."""
    with tempfile.TemporaryDirectory() as small:
        write_file(Path(small) / "rows.npy", 2000)
        _job(Path(small) / "rows.npy", limit)  # loads all that the job needs
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    loaded = status("RssAnon")
    forget(file)
    labels, job = watched(lambda: _job(file, limit))
    kept = status("RssAnon")
    written, writing = watched(lambda: write_labels(file.parent / "labels", labels))
    about = {"rows": len(labels), "limit": limit, "loaded_mb": loaded / 1024, "kept_mb": kept / 1024}
    return {**about, "job": job, "writing": writing, "labels_mb": written.stat().st_size / 1e6}


def _job(file: Path, limit: int) -> Any:
    table = SiteData(file, memory=limit // 8).table(scratch=file.parent)
    assert len(table) <= 2000 or is_mapped(table.X)
    settings = {"start": np.array(table.X[:K]).tolist(), "rounds": UPDATES, "tol": 0.0}
    return run_inprocess(registry.get("lloyd"), settings, {"site-1": table}, JobOptions(k=K)).labels["site-1"]


def watched(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what an action returns, its times, and the most memory of the process's own that was seen meanwhile, in MB."""
    over, seen = threading.Event(), [status("RssAnon")]

    def watch() -> None:
        while not over.wait(0.02):
            seen.append(status("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        found = action()
    finally:
        over.set()
        watcher.join()
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return found, {**taken, "peak_mb": max(*seen, status("RssAnon")) / 1024}


def table(record: dict[str, Any]) -> str:
    """Return what stands on the page."""
    size = record["rows"] * COLUMNS * 8 / 1e9
    about = (
        f"{measured_on(record)}: a mapped npy "
        f"file of {record['rows']:,} rows in {COLUMNS} columns ({size:.1f} GB), read from the disk at first, by a process that may take "
        f"{record['limit'] >> 20:,} MiB, libraries included. With all loaded it had {record['loaded_mb']:,.0f} MiB."
    )
    rows = [
        about,
        "",
        "| work | wall time | CPU time | most memory of its own |",
        "| --- | ---: | ---: | ---: |",
    ]
    titles = {
        "job": f"`lloyd`, k = {K}, {UPDATES} updates, the assessment, labels",
        "writing": f"labels.csv ({record['labels_mb']:,.0f} MB), after a job that kept {record['kept_mb']:,.0f} MiB",
    }
    for name, title in titles.items():
        line = record[name]
        rows.append(f"| {title} | {line['wall']:.0f} s | {line['cpu']:.0f} s | {line['peak_mb']:,.0f} MiB |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_file", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000_000, help="of 512 bytes each")
    parser.add_argument("--limit", type=int, default=1024, help="MiB that the process may take")
    parser.add_argument("--folder", type=Path, help="for the file; removed afterwards")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    parser.add_argument("--limited", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.limited:
        print(json.dumps(limited(options.limited, options.limit << 20)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder) / "rows.npy"
        write_file(file, options.rows)
        command = [sys.executable, "-m", "benchmarks.large_file", "--limited", str(file), "--limit", str(options.limit)]
        load = os.getloadavg()[0]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    about = {"date": date.today().isoformat(), "cores": os.cpu_count(), "load": load}
    record = {**about, **json.loads(done.stdout)}
    print(table(record))
    if options.record:
        recorded(RECORD, record, "large-file", table(record))


if __name__ == "__main__":
    main()
