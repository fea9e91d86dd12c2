"""Most memory that a site takes for each row beside a mapped table.

    python -m benchmarks.site_memory [ALGORITHM ...] [--rows 6000000]

Each algorithm has a process of its own and runs on one site, with 8 columns and k = 5. Memory is what the process has for itself,
looked at every few milliseconds, above what it had after a run on few rows.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get

ALGORITHMS = ("dkmpp", "fkm", "lloyd", "pooled", "mavg", "feca", "portfolio", "minibatch", "kfed", "ffcm")
COLUMNS, K = 8, 5


def own_memory() -> int:
    """Return the bytes that this process has for itself."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


def measure(algorithm: str, file: Path) -> float:
    """Return the most bytes for each row while the algorithm runs on the rows of a file."""
    X = np.load(file, mmap_mode="r")
    few = np.array(X[:5_000])
    run_inprocess(get(algorithm), {}, {"a": Table(few)}, JobOptions(k=K))  # everything is imported and compiled
    before, most, over = own_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.002):
            most = max(most, own_memory())

    watching = threading.Thread(target=watch)
    watching.start()
    run_inprocess(get(algorithm), {}, {"a": Table(X)}, JobOptions(k=K, seed=1))
    over.set()
    watching.join()
    return (most - before) / len(X)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.site_memory", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--file", type=Path, help="measure on this file, in this process")
    given = parser.parse_args()
    if given.file:
        print(f"{given.algorithms[0]}: {measure(given.algorithms[0], given.file):.0f} bytes a row", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        file = Path(folder) / "rows.npy"
        np.save(file, rng.normal(size=(given.rows, COLUMNS)) + 3 * rng.integers(K, size=(given.rows, 1)))
        for algorithm in given.algorithms:
            subprocess.run([sys.executable, "-m", "benchmarks.site_memory", algorithm, "--file", str(file)], check=True)


if __name__ == "__main__":
    main()
