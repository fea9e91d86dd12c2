"""A site whose table is several times as large as the memory it may take ends with the same centroids, bit for bit."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from flareclust.engines.inprocess import run_inprocess
from flareclust.protocol.registry import get
from tests.large_site import OPTIONS
from tests.paths import TESTS
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux only"),
]

N, D = 150_000, 64

#: What the process may take in addition to what it has when everything is imported: about half of the table.
EXTRA = 40_000_000
MEMORY = "16MB"

#: What nightly runs read, too: all other formats, and another algorithm.
OTHERS = (*((path, "lloyd") for path in ("rows.npz", "rows.parquet", "rows.arrow", "rows.csv")), ("rows.npy", "feca"))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Five clusters, 77 MB."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(5, D))
    return np.round(centers[rng.integers(5, size=N)] + rng.normal(size=(N, D)), 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows) -> Path:
    """The same rows in all formats."""
    folder = tmp_path_factory.mktemp("large")
    table = pa.table({f"c{j}": column for j, column in enumerate(rows.T)})
    np.save(folder / "rows.npy", rows)
    np.savez(folder / "rows.npz", X=rows)
    pa.csv.write_csv(table, folder / "rows.csv")
    pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=40_000)
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=40_000)
    for part in range(4):
        pa.parquet.write_table(table.slice(part * N // 4, N // 4), folder / f"part-{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def expected(rows):
    """What the same job finds with the rows in memory."""
    return {name: run_inprocess(get(name), {}, {"site-1": rows}, OPTIONS) for name in ("lloyd", "feca")}


def run(folder: Path, work: Path, path: str, memory: str, algorithm: str) -> subprocess.CompletedProcess[str]:
    local = work / "local"
    local.mkdir()
    (work / "out").mkdir()
    (local / "flareclust.yaml").write_text(f"path: {folder}/{path}\nmemory: {memory}\n")
    command = [
        sys.executable,
        str(TESTS / "large_site.py"),
        local,
        str(EXTRA),
        work / "out" / "o.npz",
    ]
    return subprocess.run(
        [*map(str, command), algorithm],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("path", "algorithm"),
    [
        ("rows.npy", "lloyd"),
        ("part-*.parquet", "lloyd"),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in OTHERS),
    ],
)
def test_rows_beyond_the_memory_give_the_same_centroids_labels_and_metrics(folder, expected, tmp_path, path, algorithm):
    done = run(folder, tmp_path, path, MEMORY, algorithm)
    assert done.returncode == 0, done.stderr[-2000:]
    about = json.loads((tmp_path / "out" / "o.json").read_text())
    assert about["mapped"]
    assert about["left"] == [], "the scratch file has no name"
    with np.load(tmp_path / "out" / "o.npz") as found:
        np.testing.assert_array_equal(found["centroids"], expected[algorithm].centroids)
        np.testing.assert_array_equal(found["labels"], expected[algorithm].labels["site-1"])
    assert about["metrics"] == expected[algorithm].metrics


@pytest.mark.parametrize(
    "path",
    [
        "rows.npy",
        *(pytest.param(path, marks=pytest.mark.nightly) for path in ("rows.parquet", "rows.csv", "part-*.parquet")),
    ],
)
def test_without_a_limit_for_the_rows_the_same_process_has_too_little_memory(folder, tmp_path, path):
    done = run(folder, tmp_path, path, "1TB", "lloyd")
    assert done.returncode != 0
    assert "not enough memory" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_killed_process_leaves_nothing_in_the_scratch_folder(folder, tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path; from flareclust.sites.rows import SiteData; "
        "table = SiteData(Path(sys.argv[1]), memory=1000).table(scratch=Path(sys.argv[2])); "
        "print(len(table), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code, str(folder / "part-0.parquet"), str(tmp_path)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=PATIENCE, start_new_session=True
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.strip() == str(N // 4)
    assert list(tmp_path.iterdir()) == []
