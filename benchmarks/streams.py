"""How fast rows in a mapped npy file are read, beside plain reading.

    python -m benchmarks.streams [--rows 12000000] [--folder FOLDER] [--read-ahead KIB ...] [--record]

Rows in 64 columns (512 bytes each) are written to an npy file in FOLDER, by default a temporary one. Its parts are read in turns,
each way from the disk: the system's cache is emptied of the file before. `raw` is reading into one buffer of 16 MiB. Shares are
medians of the turns, as other work on the machine reads and computes too. `--read-ahead` sets how much the system reads ahead on
the disk, one amount after the other, and then what it was, which only root may; without it the present amount stays. `--record`
writes benchmarks/records/streams.json and the table in docs/performance.md.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.page import measured_on, recorded
from flareclust._foundation.typing import FloatArray
from flareclust.core.chunks import pieces
from flareclust.core.kernels import nearest_centroids

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "streams.json"

COLUMNS, K = 64, 8

TURNS, PART = 9, 256 << 20

#: Where Linux says how a disk is read.
DISKS = Path("/sys/class/bdi")


def write_file(file: Path, n: int) -> None:
    """Write rows of 8 clusters."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(K, COLUMNS))
    rows = np.lib.format.open_memmap(file, mode="w+", dtype=np.float64, shape=(n, COLUMNS))
    for part in pieces(n, COLUMNS):
        here = rows[part]
        rng.standard_normal(out=(drawn := np.empty(here.shape)))
        here[:] = centers[rng.integers(K, size=len(here))] + drawn
    rows.flush()


def forget(file: Path) -> None:
    """Empty the system's cache of a file, of which no part is mapped."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_raw(file: Path, start: int, size: int) -> None:
    """Read so many bytes into one buffer."""
    descriptor, buffer = os.open(file, os.O_RDONLY), memoryview(bytearray(16 << 20))
    at, end = start, start + size
    while at < end and (count := os.preadv(descriptor, [buffer[: end - at]], at)):
        at += count
    os.close(descriptor)


def add_up(X: FloatArray) -> None:
    """Sum the columns of mapped rows (n, d), piece by piece."""
    for part in pieces(*X.shape):
        X[part].sum(axis=0)


def assign_rows(X: FloatArray, centroids: FloatArray) -> None:
    """Label mapped rows (n, d) by the nearest of centroids (k, d), as a step of Lloyd's algorithm does."""
    nearest_centroids(X, centroids, np.zeros(len(X), np.int64), np.empty(len(X)))


def measured(file: Path, part: int = PART, turns: int = TURNS) -> list[dict[str, Any]]:
    """Read parts of so many bytes of a file in turns all ways."""
    n, step = len(np.load(file, mmap_mode="r")), part // (8 * COLUMNS)
    if n < step:
        raise SystemExit(f"{n:,} rows are less than {part:,} bytes; give more with --rows")
    seeds = np.array(np.load(file, mmap_mode="r")[:K])
    assign_rows(np.load(file, mmap_mode="r")[:300], seeds)  # compiles

    def rows(at: int) -> FloatArray:
        """Map the file anew: what is mapped stays in the system's cache."""
        mapped: FloatArray = np.load(file, mmap_mode="r")
        return mapped[at : at + step]

    ways: dict[str, Callable[[int], None]] = {
        "raw": lambda at: read_raw(file, file.stat().st_size - 8 * COLUMNS * (n - at), part),
        "column sums": lambda at: add_up(rows(at)),
        f"nearest of {K}": lambda at: assign_rows(rows(at), seeds),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns):
        for i, (name, read) in enumerate(ways.items()):
            at = (turn * len(ways) + i) * step % (n - step + 1)
            forget(file)
            started = time.perf_counter()
            read(at)
            seconds[name].append(time.perf_counter() - started)
    return [
        {
            "pass": name,
            "rate": part / statistics.median(taken),
            "of_raw": statistics.median(raw / own for raw, own in zip(seconds["raw"], taken, strict=True)),
        }
        for name, taken in seconds.items()
    ]


def read_ahead_of(folder: Path) -> Path | None:
    """Return the file with the KiB that the system reads ahead on the disk of a folder; None where there is none."""
    device = folder.stat().st_dev
    found = DISKS / f"{os.major(device)}:{os.minor(device)}" / "read_ahead_kb"
    return found if found.exists() else None


@contextmanager
def reading_ahead(setting: Path | None, kib: int | None) -> Iterator[int | None]:
    """Set how much is read ahead, and give it; None for what it is. It is set back afterwards."""
    before = None if setting is None else int(setting.read_text())
    if setting is None or kib is None:
        if kib is not None:
            raise SystemExit("the disk of --folder does not say how much it reads ahead; leave out --read-ahead")
        yield before
        return
    setting.write_text(str(kib))
    try:
        yield kib
    finally:
        setting.write_text(str(before))


def table(record: dict[str, Any]) -> str:
    """Return what stands on the page."""
    size = record["rows"] * COLUMNS * 8 / 1e9
    about = (
        f"{measured_on(record)}: rows in a mapped npy file, {record['rows']:,} in {COLUMNS} columns ({size:.1f} GB), read from the disk in parts of "
        f"{PART >> 20} MiB, beside reading into one buffer (`raw`)."
    )
    rows = [about, "", "| read-ahead | pass | rate | share of raw |", "| ---: | --- | ---: | ---: |"]
    for line in record["lines"]:
        ahead = "unknown" if line["read_ahead"] is None else f"{line['read_ahead']:,} KiB"
        rows.append(f"| {ahead} | {line['pass']} | {line['rate'] / 1e9:.2f} GB/s | {line['of_raw']:.2f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000_000, help="of 512 bytes each")
    parser.add_argument("--folder", type=Path, help="for the file; removed afterwards")
    parser.add_argument("--read-ahead", type=int, nargs="+", metavar="KIB", help="set for the disk meanwhile, by root")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    lines, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder) / "rows.npy"
        write_file(file, options.rows)
        for asked in options.read_ahead or [None]:
            with reading_ahead(read_ahead_of(Path(folder)), asked) as kib:
                lines += [{"read_ahead": kib, **line} for line in measured(file)]
    about = {"date": date.today().isoformat(), "cores": os.cpu_count(), "load": load, "rows": options.rows}
    record = {**about, "lines": lines}
    print(table(record))
    if options.record:
        recorded(RECORD, record, "streams", table(record))


if __name__ == "__main__":
    main()
