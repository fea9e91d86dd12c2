"""The engine devices beside Flower's simulation, on the same rows with the same function at each device.

    python -m venv .venv-rival
    .venv-rival/bin/pip install "flwr[simulation]" numba scipy scikit-learn threadpoolctl psutil
    python -m benchmarks.devices.rivals --flower .venv-rival/bin/python [--most M] [--only NAME ...] [--record]

Flower has an environment of its own, as its versions of protobuf differ from NVFlare's. Each run has processes of its own.
The results must be equal within rounding, or the script ends with an error. `--record` writes
benchmarks/records/devices_rivals.json and the table in docs/performance.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.devices import mixture
from benchmarks.devices.rivals import page
from benchmarks.devices.rivals.work import WORK

ROOT = Path(__file__).resolve().parent.parent.parent.parent

CONTENDERS = ("devices", "in-process", "loop", "flower")
SIZES = (100, 1_000, 10_000)
WORKERS = 2

#: Turns of each work, of which the median counts.
TURNS = {100: 5, 1_000: 3, 10_000: 3}

#: Seconds for a run; starting Ray alone can take minutes on a busy machine.
PATIENCE = 900


def measured(contender: str, m: int, interpreter: str, folder: Path) -> dict[str, Any]:
    """Run a contender; return what it has written down."""
    rows, out, turns = folder / f"rows-{m}.npy", folder / f"{contender}-{m}.json", str(TURNS[m])
    name = "flower" if contender == "flower" else "own"
    arguments = [str(rows), str(m), str(WORKERS), turns] if name == "flower" else [contender, str(rows), str(m), turns]
    command = [interpreter, "-m", f"benchmarks.devices.rivals.{name}", *arguments, str(out)]
    # Ray looks for clusters in its folder, and would take any that it finds there for its own.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(folder)}
    with (folder / "errors").open(
        "w+"
    ) as errors:  # no pipe, which processes of Ray that outlive the run would keep open
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors, timeout=PATIENCE, check=False
        )
        if done.returncode:
            errors.seek(0)
            raise SystemExit(f"{contender} with {m} devices failed:\n{errors.read()[-4000:]}")
    return dict(json.loads(out.read_text()))


def largest_difference(contenders: list[str], m: int, folder: Path) -> float:
    """Return the largest difference of centroids from those of the plain loop; end the run where they are others."""
    found = {name: np.load(folder / f"{name}-{m}.npz") for name in contenders}
    worst = max(float(np.abs(found[name][work] - found["loop"][work]).max()) for name in contenders for work in WORK)
    if not worst <= 1e-9:
        raise SystemExit(f"{m} devices: centroids differ by {worst:.2g}")
    return worst


def lines_of(contender: str, m: int, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the median of the turns of each work."""
    lines = []
    for work in WORK:
        turns = [line for line in about["lines"] if line["work"] == work]
        medians = {what: statistics.median(turn[what] for turn in turns) for what in ("seconds", "cpu", "others")}
        lines.append(
            {"contender": contender, "devices": m, "work": work, "start_cpu": about["start"]["cpu"], **medians}
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices.rivals", description=__doc__.splitlines()[0])
    parser.add_argument("--flower", required=True, help="the Python interpreter of the environment with Flower")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of devices")
    parser.add_argument(
        "--least", type=int, default=SIZES[0], help="the smallest; the record keeps what it has of others"
    )
    parser.add_argument(
        "--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="only these and the plain loop"
    )
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    asked = [name for name in CONTENDERS if name == "loop" or name in options.only]
    lines, versions, differences = [], dict[str, str](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="rv", dir="/tmp") as name:  # short, as Ray's sockets lie below it
        folder = Path(name)
        for m in (size for size in SIZES if options.least <= size <= options.most):
            np.save(folder / f"rows-{m}.npy", mixture.plane(m).part_of(np.arange(m)).values)
            for contender in asked:
                about = measured(contender, m, options.flower if contender == "flower" else sys.executable, folder)
                versions.update(about["versions"])
                lines += lines_of(contender, m, about)
                for line in lines[-len(WORK) :]:
                    print(page.text_line(line), flush=True)
            differences[str(m)] = largest_difference(asked, m, folder)
            print(f"{m} devices: centroids differ by at most {differences[str(m)]:.1e}", flush=True)
            if options.record:
                page.RECORD.write_text(json.dumps(record_with(lines, versions, differences), indent=1) + "\n")
    if options.record:
        page.write(json.loads(page.RECORD.read_text()))


def record_with(lines: list[dict[str, Any]], versions: dict[str, str], differences: dict[str, float]) -> dict[str, Any]:
    """Return the record with these lines in the place of older ones of the same contender and as many devices."""
    kept: dict[str, Any] = json.loads(page.RECORD.read_text()) if page.RECORD.exists() else {}
    measured_now = {(line["contender"], line["devices"]) for line in lines}
    earlier: dict[str, float] = kept.get("differences", {})
    others = [line for line in kept.get("lines", []) if (line["contender"], line["devices"]) not in measured_now]
    return {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "workers": WORKERS,
        "versions": {**kept.get("versions", {}), **versions},
        "differences": {**earlier, **{m: max(worst, earlier.get(m, 0.0)) for m, worst in differences.items()}},
        "lines": others + lines,
    }


if __name__ == "__main__":
    main()
