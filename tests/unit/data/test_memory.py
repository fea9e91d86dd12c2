"""Tables with very many columns, and tables that are larger than a run may read."""

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.site_memory import ALGORITHMS
from flareclust._foundation.errors import Refusal, UserError
from flareclust.data import csv_files, memory
from flareclust.data.memory import LIMIT, RowStore, _run_limit, parse_size
from flareclust.data.tables import File, Numbers, read_table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.sites.rows import SiteData
from tests.memory import peak_of
from tests.paths import ROOT, of_the_whole


def csv_text(X, names=None, delimiter=","):
    lines = [] if names is None else [delimiter.join(names)]
    return "\n".join([*lines, *(delimiter.join(map(repr, row)) for row in X.tolist())]) + "\n"


#: Prints by how many bytes the process grows while it reads a table, Arrow's own memory included.
GROWTH = """
import resource, sys
from flareclust.data import tables
from pyarrow import csv

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tables.read_table(sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_csv_file_with_very_many_columns_takes_little_more_than_its_rows(tmp_path, rng):
    X = rng.random((3, 50_000))
    names = [f"cg{j:08d}" for j in range(X.shape[1])]
    (tmp_path / "t.csv").write_text(csv_text(X, names))
    table = read_table(tmp_path / "t.csv", names)
    np.testing.assert_array_equal(table.X, X)
    assert table.columns == tuple(names)
    command = [sys.executable, "-c", GROWTH, str(tmp_path / "t.csv")]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < 1500 * X.shape[1]  # with a reader and an array per column it was 10 kB


TEXTS = {
    "plain": "a,b,c\n1,2,3\n4,5,6\n",
    "no header": "1,2.5,-3e2\n4,5,6\n",
    "semicolons": "a;b;c\n1;2;3\n",
    "quotes": '"a","b","c"\n"1",2,3\n',
    "spaces": "a,b,c\n 1 , 2 ,3\n",
    "empty lines": "\na,b,c\n\n1,2,3\n\n4,5,6\n\n",
    "no last line end": "a,b,c\n1,2,3",
    "windows": "a,b,c\r\n1,2,3\r\n",
    "missing": "a,b,c\n1,,3\n4,NA,6\n",
    "not a number": "a,b,c\n1,2,3\n4,x,6\n",
    "infinite": "a,b,c\n1,inf,3\n",
    "ragged": "a,b,c\n1,2,3\n4,5\n",
    "longer": "a,b,c\n1,2,3\n4,5,6,7\n",
    "underscores": "a,b,c\n1,2,3\n4,1_000,6\n",
    "other digits": "a,b,c\n1,2,3\n4,٣,6\n",
    "no rows": "a,b,c\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("columns", [None, ["c", "a"]], ids=["all", "chosen"])
def test_many_columns_are_read_as_few_are(tmp_path, monkeypatch, text, columns):
    def outcome():
        try:
            table = read_table(tmp_path / "t.csv", columns)
        except UserError as error:
            return str(error)
        return table.X.tolist(), table.columns

    (tmp_path / "t.csv").write_text(text)
    few = outcome()
    monkeypatch.setattr(csv_files, "_WIDE", 2)
    many = outcome()
    if isinstance(few, str) and "not a plain table" in few:
        assert "column 'b' is not numeric, first in row 2" in many  # more is known here
    else:
        assert many == few


def test_rows_of_many_columns_come_in_pieces_with_their_ids(tmp_path, monkeypatch, rng):
    X = rng.random((500, 40))
    rows = [["id", *(f"c{j}" for j in range(40))], *([f"p{i}", *map(repr, row)] for i, row in enumerate(X.tolist()))]
    (tmp_path / "t.csv").write_text("\n".join(map(",".join, rows)))
    monkeypatch.setattr(csv_files, "_WIDE", 2)
    table = Numbers(id_name="id").read([File(tmp_path / "t.csv", "t.csv")], RowStore(64_000, tmp_path))
    np.testing.assert_array_equal(table.X, X)
    assert list(table.ids or ()) == [f"p{i}" for i in range(500)]


def test_a_csv_file_with_more_columns_than_a_server_takes_is_refused_at_its_first_line(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_MOST_COLUMNS", 3)
    (tmp_path / "t.csv").write_text("1,2,3,4\n")
    with pytest.raises(UserError, match="has more than 3 columns"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("text", ["1,2,3,4,5,6\n", "1,2\n1,2,3,4,5,6\n"])
def test_a_line_without_end_is_refused_before_it_is_read(tmp_path, monkeypatch, text):
    monkeypatch.setattr(csv_files, "_LONGEST_LINE", 8)
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match="has a line of more than 8 characters"):
        read_table(tmp_path / "t.csv")


def zeros(path, n, d):
    match path.suffix:
        case ".npz":
            np.savez_compressed(path, X=np.zeros((n, d)))
        case ".npy":
            np.save(path, np.zeros((n, d)))
        case ".csv":
            path.write_text((",".join(["0"] * d) + "\n") * n)
        case _:
            pq.write_table(pa.table({f"c{j}": pa.array(np.zeros(n)) for j in range(d)}), path)
    return path


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_a_table_that_is_larger_than_a_run_may_read_is_refused_before_there_is_room_for_it(tmp_path, monkeypatch, kind):
    file = zeros(tmp_path / f"t.{kind}", 200_000, 10)
    assert read_table(file).X.shape == (200_000, 10)
    monkeypatch.setenv(LIMIT, "4MB")

    def read():
        with pytest.raises(
            UserError, match=rf"t.{kind} has [\d,]+ bytes of rows, more than the 4,000,000 that a run may read"
        ):
            read_table(file)

    assert peak_of(read) < 9_000_000


def test_other_arrays_of_a_data_set_are_bounded_as_well(tmp_path, monkeypatch):
    from flareclust.data.datasets import load

    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((10, 2)), y=np.zeros(10_000_000, np.int64))
    monkeypatch.setenv(LIMIT, "4MB")
    with pytest.raises(UserError, match="80,000,000 bytes of rows, more than"):
        load(str(tmp_path / "t.npz"))


def test_room_for_names_is_bounded(tmp_path):
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((3, 2)), columns=np.array(["a", "b" * 5000]))
    with pytest.raises(UserError, match="names of more than 1,000 characters"):
        read_table(tmp_path / "t.npz")


def test_sites_of_a_run_put_what_is_too_much_into_a_file_and_find_the_same(tmp_path, monkeypatch, rng):
    sites = {}
    for site in ("a", "b"):
        np.save(tmp_path / f"{site}.npy", rng.normal(size=(4000, 5)))
        sites[site] = tmp_path / f"{site}.npy"
    whole = run_inprocess(get("lloyd"), {"rounds": 2}, dict(sites), JobOptions(k=3))
    monkeypatch.setenv(LIMIT, "100kB")
    np.testing.assert_array_equal(
        run_inprocess(get("lloyd"), {"rounds": 2}, dict(sites), JobOptions(k=3)).centroids, whole.centroids
    )


def test_the_limit_is_a_size_or_an_eighth_of_the_memory(monkeypatch):
    monkeypatch.delenv(LIMIT, raising=False)
    assert 1 << 27 < _run_limit() < 1 << 43
    monkeypatch.setenv(LIMIT, "much")
    with pytest.raises(UserError, match="FLARECLUST_MEMORY must be a size such as \"8GB\", got 'much'"):
        _run_limit()
    assert [parse_size(text) for text in ("8GB", "1.5 MiB", "0", "x")] == [8 * 10**9, 3 << 19, None, None]


def test_a_site_without_memory_for_labels_says_so_in_place_of_being_killed(tmp_path, monkeypatch, caplog):
    np.save(tmp_path / "t.npy", np.zeros((50_000, 2)))
    (tmp_path / "flareclust.yaml").write_text(f"path: {tmp_path}/t.npy\nmemory: 100kB\n")
    monkeypatch.setattr(memory, "free_memory", lambda: 64_000_000)
    large = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float64, (2_000_000, 8))  # 128 MB, mapped
    large[:] = 1.0
    del large
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "flareclust.yaml").write_text(f"path: {tmp_path}/large.npy\nmemory: 100kB\n")
    assert len(SiteData.of(tmp_path / "other", "a").table()) == 2_000_000
    assert len(SiteData.of(tmp_path, "a").table()) == 50_000
    monkeypatch.setattr(memory, "free_memory", lambda: 1_599_999)
    with pytest.raises(Refusal):
        SiteData.of(tmp_path, "a").table()
    assert "at least 16 bytes of memory for each row beside the table" in caplog.text
    assert "give its container or machine more memory" in caplog.text


@of_the_whole
def test_the_page_says_what_the_check_of_memory_covers_and_that_every_algorithm_needs_more():
    page = (ROOT / "docs" / "site-data.md").read_text()
    assert f"a label and a distance: {memory._BESIDE} bytes a row, and" in page
    figures = re.search(r"Most memory that a site .*?: (17 bytes .*?);", page)[1]
    groups = re.findall(r"(\d+)(?: bytes)? with ([^\d]+)", figures)
    stated = {name: int(bytes_) for bytes_, names in groups for name in re.findall(r"`([\w-]+)`", names)}
    assert stated.keys() == set(ALGORITHMS)
    assert min(stated.values()) >= memory._BESIDE
