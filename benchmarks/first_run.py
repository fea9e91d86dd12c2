"""What the first run of an installation takes, in which the kernels are compiled, beside a later one.

    python -m benchmarks.first_run [--engine inprocess] [--turns 3] [--other FOLDER]

`flareclust run feca --data s1 --k 15 --n-sites 10` on a terminal, with an empty folder of compiled kernels, and once more. Seconds
by the clock and CPU seconds of all processes, medians. `--other` names another checkout, whose runs take turns with those of this
one, so that both have the same load: only the ratios are worth something on a machine with other work.
"""

import argparse
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

HERE = Path(__file__).resolve().parents[1]


def run(source: Path, engine: str, kernels: Path, folder: Path) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of one run of a checkout; raise SystemExit where it fails."""
    command = [sys.executable, "-m", "flareclust", "run", "feca", "--data", "s1", "--k", "15", "--n-sites", "10"]
    command += ["--engine", engine, "--out", str(folder / "result")]
    places = {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPATH": str(source)}
    leader, terminal = pty.openpty()  # only on a terminal a command compiles in two processes
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | places,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    shown: list[bytes] = []
    reader = Thread(target=_read, args=(leader, shown))
    reader.start()
    code = process.wait()
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    reader.join()
    os.close(leader)
    if code:
        raise SystemExit(f"the run failed:\n{b''.join(shown)[-2000:].decode(errors='replace')}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _read(leader: int, shown: list[bytes]) -> None:
    """Read what a process writes to its terminal until it ends."""
    try:
        while part := os.read(leader, 65536):
            shown.append(part)
    except OSError:  # Linux says so where the last process has closed it
        pass


def measure(source: Path, engine: str) -> list[float]:
    """Return the seconds and CPU seconds of a first and of a second run."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "kernels"
        found: list[float] = []
        for name in ("first", "second"):
            (Path(folder) / name).mkdir()
            found += run(source, engine, kernels, Path(folder) / name)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_run", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="inprocess", help="inprocess or simulator")
    parser.add_argument("--turns", type=int, default=3, help="runs of each kind")
    parser.add_argument("--other", type=Path, help="another checkout to compare with")
    options = parser.parse_args()
    sources = [HERE, *([options.other.resolve()] if options.other else [])]
    found = [[measure(source, options.engine) for source in sources] for _ in range(options.turns)]
    print("| checkout | first run, s | CPU s | second run, s | CPU s |\n| --- | ---: | ---: | ---: | ---: |")
    for name, runs in zip(("this", "other"), zip(*found, strict=True), strict=False):
        print(f"| {name} | {' | '.join(f'{statistics.median(column):.1f}' for column in zip(*runs, strict=True))} |")


if __name__ == "__main__":
    main()
