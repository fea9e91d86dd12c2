"""One site whose rows may not fit in memory, in a process of its own: `python tests/large_site.py LOCAL EXTRA OUT ALGORITHM`.

After everything is imported and compiled, the process may take EXTRA more bytes of memory: `RLIMIT_DATA` counts memory of
its own and no mapped files. Then a job is run on the rows that LOCAL/flareclust.yaml names. OUT gets the centroids, the
labels and the metrics, or nothing where the memory did not suffice.
"""

import json
import re
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from flareclust.core.chunks import is_mapped
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.sites.rows import SiteData

OPTIONS = JobOptions(k=5, seed=3)


def own_memory() -> int:
    """Return the bytes that RLIMIT_DATA counts."""
    return 1024 * int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def warm_up(folder: Path, algorithm: str) -> None:
    """Load and compile what a job on any kind of file needs, and start Arrow's threads."""
    X = np.random.default_rng(0).normal(size=(20_000, 8))
    table = pa.table({f"c{j}": column for j, column in enumerate(X.T)})
    np.save(folder / "w.npy", X)
    pa.csv.write_csv(table, folder / "w.csv")
    pa.parquet.write_table(table, folder / "w.parquet")
    with pa.OSFile(str(folder / "w.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for file in sorted(folder.glob("w.*")):
        rows = SiteData(file, memory=1000).table()
        assert is_mapped(rows.X)
        file.unlink()
    run_inprocess(get(algorithm), {}, {"site-1": rows}, JobOptions(k=2))


def main(local: Path, extra: int, out: Path, algorithm: str) -> None:
    warm_up(out.parent, algorithm)
    resource.setrlimit(resource.RLIMIT_DATA, (own_memory() + extra,) * 2)
    table = SiteData.of(local, "site-1").table(scratch=out.parent)
    left = sorted(file.name for file in out.parent.iterdir())
    outcome = run_inprocess(get(algorithm), {}, {"site-1": table}, OPTIONS)
    np.savez(out, centroids=outcome.centroids, labels=outcome.labels["site-1"])
    about = {"metrics": outcome.metrics, "mapped": is_mapped(table.X), "left": left}
    out.with_suffix(".json").write_text(json.dumps(about))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
