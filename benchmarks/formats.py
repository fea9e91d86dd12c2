"""What reading a table costs, format by format, beside reading its bytes and beside pyarrow alone.

    python -m benchmarks.formats [--rows 1000000] [--record]

Of each format the same table of 64 columns is written into a temporary folder and read in turns, each way from the disk: the
system's cache is emptied of the file before. `raw` reads the bytes into one buffer, `pyarrow` decodes all columns batch by
batch and drops them, `read` gives checked rows as a site's reader does, and `kept` puts them into a scratch file as well,
as for a table that is larger than the memory allowed. Times are CPU times of the process; ratios are medians of the turns.

Each format is then read once more, to the scratch file and from there, by a process with a hard limit on its memory.
`--record` writes benchmarks/records/formats.json and the table in docs/performance.md.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.speed.page import PAGE, between, duration
from benchmarks.streams import add_up, forget, read_raw
from flareclust.data import file_formats
from flareclust.data.cells import FiniteCheck, as_numbers
from flareclust.data.memory import RowStore
from flareclust.data.tables import FORMATS, File, Numbers

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "records" / "formats.json"

COLUMNS, TURNS = 64, 3

#: Bytes of rows that a reader may hold, bytes of rows at once, and memory that the limited process may take beside what it
#: has when everything is loaded.
MEMORY, PIECE, EXTRA = 32 << 20, 4 << 20, 256 << 20

TITLES = {
    "plain.parquet": "parquet, uncompressed",
    "snappy.parquet": "parquet, snappy",
    "zstd.parquet": "parquet, zstd",
    "rows.csv": "csv",
    "rows.arrow": "arrow",
    "rows.npy": "npy",
}


def write_files(folder: Path, n: int) -> None:
    """Write rows (n, COLUMNS) of four decimals in all formats."""
    X = np.round(np.random.default_rng(0).normal(size=(n, COLUMNS)), 4)
    table = pa.table({f"c{j}": column for j, column in enumerate(X.T)})
    for name, compression in (("plain", "none"), ("snappy", "snappy"), ("zstd", "zstd")):
        pa.parquet.write_table(table, folder / f"{name}.parquet", compression=compression)
    pa.csv.write_csv(table, folder / "rows.csv")
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    np.save(folder / "rows.npy", X)


def raw(file: Path) -> None:
    read_raw(file, 0, file.stat().st_size)


def by_pyarrow(file: Path) -> None:
    """Decode all columns with pyarrow alone; an npy file is read by NumPy."""
    if file.suffix == ".parquet":
        with pa.parquet.ParquetFile(file, buffer_size=1 << 20) as stored:
            for batch in stored.iter_batches(batch_size=PIECE // (8 * COLUMNS)):
                del batch
    elif file.suffix == ".csv":
        with pa.csv.open_csv(file) as batches:
            for batch in batches:
                del batch
    elif file.suffix == ".arrow":
        with pa.memory_map(str(file)) as mapped:
            stored = pa.ipc.open_file(mapped)
            for i in range(stored.num_record_batches):
                for column in stored.get_batch(i).columns:
                    pa.compute.sum(column)
    else:
        add_up(np.load(file, mmap_mode="r"))


def read(file: Path) -> None:
    """Give checked rows, piece by piece."""
    check = FiniteCheck(None, file.name)
    with FORMATS[file.suffix[1:]](file, file.name, file_formats.Selection()) as source:
        if source.mapped is not None:
            Numbers().read([File(file, file.name)], RowStore(MEMORY))
            return
        for rows, _ in source.read(None, RowStore(MEMORY, file.parent)):
            check.look(as_numbers(rows, None, file.name))
    check.refuse()


def kept(file: Path) -> None:
    """Read the rows as a site does that may hold less of them in memory."""
    Numbers().read([File(file, file.name)], RowStore(MEMORY, file.parent))


WAYS: dict[str, Callable[[Path], None]] = {"raw": raw, "pyarrow": by_pyarrow, "read": read, "kept": kept}


def measured(file: Path, name: str) -> dict[str, Any]:
    """Read a file in turns all ways."""
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    wall: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(TURNS):
        for way, run in WAYS.items():
            forget(file)
            started, before = time.perf_counter(), time.process_time()
            run(file)
            cpu[way].append(time.process_time() - before)
            wall[way].append(time.perf_counter() - started)
    return {
        "name": name,
        "bytes": file.stat().st_size,
        "cpu": {way: statistics.median(taken) for way, taken in cpu.items()},
        "wall": {way: statistics.median(taken) for way, taken in wall.items()},
        "of_raw": _share(cpu["raw"], cpu["read"]),
        "of_pyarrow": _share(cpu["pyarrow"], cpu["read"]),
        "kept_of_pyarrow": _share(cpu["pyarrow"], cpu["kept"]),
    }


def _share(baseline: list[float], own: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(baseline, own, strict=True))


def limited(file: Path) -> dict[str, Any]:
    """Read a file in this process, whose memory is limited to EXTRA more than it has now, and look at all of its rows twice."""
    with tempfile.TemporaryDirectory() as small:  # loads what reading needs, and starts Arrow's threads
        write_files(Path(small), 1000)
        Numbers().read([File(Path(small) / file.name, file.name)], RowStore(1000, Path(small)))
    resource.setrlimit(resource.RLIMIT_DATA, (_data() + EXTRA,) * 2)
    before = status("VmRSS")
    table = Numbers().read([File(file, file.name)], RowStore(MEMORY, file.parent))
    own = status("RssAnon")
    add_up(table.X)
    add_up(table.X)
    return {
        "rows": len(table),
        "before_mb": before / 1024,
        "peak_mb": status("VmHWM") / 1024,
        "own_mb": own / 1024,
    }


def status(name: str) -> int:
    """Return what the system says about this process's memory, in KiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


def _data() -> int:
    """Return the bytes that RLIMIT_DATA counts: memory of the process's own, no mapped files."""
    return 1024 * status("VmData")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    parser.add_argument("--limited", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.limited:
        print(json.dumps(limited(options.limited)))
        return
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), options.rows)
        for name in TITLES:
            file = Path(folder) / name
            line = measured(file, name)
            command = [sys.executable, "-m", "benchmarks.formats", "--limited", str(file)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            lines.append({**line, "limited": json.loads(done.stdout)})
            print(json.dumps(lines[-1]), flush=True)
    if options.record:
        record = {
            "date": date.today().isoformat(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "rows": options.rows,
            "columns": COLUMNS,
            "lines": lines,
        }
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record))


def with_table(text: str, record: dict[str, Any]) -> str:
    """Return the page's text with the table of this record."""
    megabytes = 8 * record["rows"] * record["columns"] / 1e6
    about = (
        f"A table of {record['rows']:,} rows in {record['columns']} columns ({megabytes:,.0f} MB in memory), read from the disk "
        f"in parts of {PIECE >> 20} MiB; CPU time, {record['date']}, {record['cores']} cores beside other work, pyarrow "
        f"{record['pyarrow']}."
    )
    rows = [
        about,
        "",
        "| format | file | raw | pyarrow alone | checked rows | rate | share of pyarrow | share of raw | by wall time | kept in a file | own memory | peak |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for line in record["lines"]:
        cpu, wall = line["cpu"], line["wall"]
        rows.append(
            f"| {TITLES[line['name']]} | {line['bytes'] / 1e6:,.0f} MB | {duration(cpu['raw'])} | {duration(cpu['pyarrow'])} | "
            f"{duration(cpu['read'])} | {line['bytes'] / 1e6 / cpu['read']:,.0f} MB/s | {line['of_pyarrow']:.2f} | {line['of_raw']:.2f} | "
            f"{wall['raw'] / wall['read']:.2f} | {duration(cpu['kept'])} | {line['limited']['own_mb']:,.0f} MB | {line['limited']['peak_mb']:,.0f} MB |"
        )
    return between(text, "formats", "\n".join(rows))


if __name__ == "__main__":
    main()
