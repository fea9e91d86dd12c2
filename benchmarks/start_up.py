"""Where the time of a simulator run goes: `python -m benchmarks.start_up [TURNS]`.

`flareclust run lloyd` with three sites of digits, once with one update and once with up to 21, each TURNS times (3),
as a new process in an empty folder. The stages are read from NVFlare's log (`-v`); medians in seconds, on a machine that is
otherwise idle.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

#: A stage ends where the log first says this; the last one ends with the process.
STAGES = {
    "command: imports, data, kernels; simulator: imports, server": "Start the clients run simulation",
    "simulator: registers the sites, starts their processes": "ClientTaskWorker started to run",
    "sites: imports, connect": "Initialize ClientRunner",
    "first exchange, local starts": "cluster 0:",
    "updates": "assess",
}
LAST = "assessment, result, report, MLflow"
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - \w+ - (.*)")
SITES, DATA, K = 3, "digits", 10


def run(rounds: int, folder: Path) -> tuple[dict[str, float], float, int]:
    """Return the seconds of each stage, of the job as its result says, and its number of exchanges."""
    settings = {"rounds": rounds, "tol": 0, "split_merge": 0}
    command = [str(Path(sys.executable).with_name("flareclust")), "-v", "run", "lloyd", "--engine", "simulator"]
    command += ["--data", DATA, "--k", str(K), "--n-sites", str(SITES), "--out", str(folder / "result")]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    began = datetime.now()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    ended = datetime.now()
    lines = [(datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f"), found[2]) for found in STAMP.finditer(done.stderr)]
    ends = [next(at for at, text in lines if text.startswith(words)) for words in STAGES.values()]
    stages = {
        name: (end - start).total_seconds()
        for name, start, end in zip([*STAGES, LAST], [began, *ends], [*ends, ended], strict=True)
    }
    result = json.loads(next((folder / "result").rglob("result.json")).read_text())
    return stages, float(result["seconds"]["total"]), int(result["rounds"])


def measure(rounds: int) -> tuple[dict[str, float], float, int]:
    """Return what `run` does, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        return run(rounds, Path(folder))


def main(turns: int) -> None:
    measure(1)  # what is compiled once and kept
    runs = [(measure(1), measure(21)) for _ in range(turns)]
    print("| stage | seconds |\n| --- | --- |")
    for name in [*STAGES, LAST]:
        print(f"| {name} | {statistics.median(short[0][name] for short, _ in runs):.1f} |")
    whole = statistics.median(sum(short[0].values()) for short, _ in runs)
    job = statistics.median(short[1] for short, _ in runs)
    further = statistics.median((long[1] - short[1]) / (long[2] - short[2]) for short, long in runs)
    print(f"\nThe command {whole:.1f} s, its job {job:.1f} s (`seconds total`), a further round {further:.2f} s.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
