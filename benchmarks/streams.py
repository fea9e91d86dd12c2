"""How fast rows in a mapped npy file are read, beside plain reading: `python -m benchmarks.streams FILE`.

FILE holds rows (n, d) of 64-bit floats in C order. Its parts are read in turns, each way from the disk: the system's cache is
emptied of the file before. `raw` is reading into one buffer of 16 MiB. Shares are medians of the turns, as other work on the
machine reads and computes too.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from flareclust._foundation.typing import FloatArray
from flareclust.core.chunks import pieces
from flareclust.core.kernels import nearest_centroids

TURNS, PART = 9, 256 << 20


def forget(file: Path) -> None:
    """Empty the system's cache of a file."""
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


def main(file: Path) -> None:
    X = np.load(file, mmap_mode="r")
    step, seeds = max(1, PART // (8 * X.shape[1])), np.array(X[:8])
    assign_rows(X[:300], seeds)  # compiles
    if len(X) < step:
        raise SystemExit(f"{file} has less than {PART:,} bytes of rows")
    ways: dict[str, Callable[[int], None]] = {
        "raw": lambda at: read_raw(file, X.offset + 8 * X.shape[1] * at, 8 * X.shape[1] * step),
        "column sums": lambda at: add_up(X[at : at + step]),
        "nearest of 8": lambda at: assign_rows(X[at : at + step], seeds),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS):
        for i, (name, read) in enumerate(ways.items()):
            at = (turn * len(ways) + i) * step % (len(X) - step + 1)
            forget(file)
            started = time.perf_counter()
            read(at)
            seconds[name].append(time.perf_counter() - started)
    for name, taken in seconds.items():
        share = statistics.median(raw / own for raw, own in zip(seconds["raw"], taken, strict=True))
        print(f"| {name} | {PART / 1e9 / statistics.median(taken):.2f} GB/s | {share:.2f} |")
    print(f"{file.stat().st_size:,} bytes; of memory {psutil.Process().memory_info().rss:,} with mapped pages")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
