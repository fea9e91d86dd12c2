"""Tables read piece by piece: the same rows and messages as at once, and nothing left of the scratch file."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from flareclust._foundation.errors import UserError
from flareclust.core.chunks import is_mapped
from flareclust.data import file_formats
from flareclust.data import memory as rows_on_disk
from flareclust.data.arrow_files import open_parquet
from flareclust.data.memory import RowStore
from flareclust.data.npy_files import open_numpy
from flareclust.data.tables import File
from tests.unit.data.pieces_cases import NAMES, SUFFIXES, frame, read, write

pytestmark = pytest.mark.usefixtures("small_pieces")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_on_disk_are_those_in_memory_bit_for_bit(tmp_path, suffix):
    file = write(tmp_path, suffix, frame())
    there, here = read(file, tmp_path), read(file, tmp_path, None)
    assert is_mapped(there.X)
    assert not there.X.flags.writeable
    assert not is_mapped(here.X)
    for table in (there, here):
        assert (table.X.dtype, table.X.flags.c_contiguous) == (np.float64, True)
        np.testing.assert_array_equal(frame().to_numpy(), table.X)
        assert table.columns == (None if suffix == "npy" else NAMES)


@pytest.mark.parametrize("memory", [None, 100])
@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_columns_are_chosen_by_name_in_the_order_asked_for(tmp_path, suffix, memory):
    table = read(write(tmp_path, suffix, frame()), tmp_path, memory, columns=["weight", "age"])
    assert (is_mapped(table.X), table.X.flags.c_contiguous) == (memory is not None, True)
    np.testing.assert_array_equal(frame().to_numpy()[:, [2, 0]], table.X)
    assert table.columns == ("weight", "age")


@pytest.mark.parametrize("memory", [None, 100])
@pytest.mark.parametrize("dtype", ["int16", "float32", ">f8", "bool"])
def test_other_dtypes_and_orders_are_converted_on_the_way(tmp_path, dtype, memory):
    X = (np.arange(300).reshape(100, 3) % 7).astype(dtype)
    for name, array in (("c", X), ("f", np.asfortranarray(X))):
        np.save(tmp_path / f"{name}.npy", array)
        np.savez(tmp_path / f"{name}.npz", X=array)
        for suffix in ("npy", "npz"):
            table = read(File(tmp_path / f"{name}.{suffix}", suffix, suffix), tmp_path, memory)
            assert (table.X.dtype, table.X.flags.c_contiguous) == (np.float64, True)
            np.testing.assert_array_equal(X.astype(float), table.X)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_several_files_become_one_table(tmp_path, suffix):
    parts = [write(tmp_path, suffix, frame().iloc[at : at + 30], f"part-{at:03}") for at in range(0, 100, 30)]
    for memory in (None, 100, 1500):
        table = read(parts, tmp_path, memory)
        assert is_mapped(table.X) is (memory is not None)
        np.testing.assert_array_equal(frame().to_numpy(), table.X)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_cell_is_placed_in_the_whole_table(tmp_path, suffix):
    rows = frame()
    rows.iloc[[70, 90], 1] = np.nan
    with pytest.raises(UserError, match="2 cells are missing, NaN or infinite, first in row 71, column "):
        read(write(tmp_path, suffix, rows), tmp_path)


# --- the scratch file ---
def scratch_files(folder: Path) -> list[os.stat_result]:
    """Return what this process has open in a folder without a name."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(link).startswith(str(folder)):
                found.append(os.stat(link))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are looked up in Linux's /proc")
def test_the_scratch_file_has_no_name_and_is_for_the_own_account(tmp_path, monkeypatch):
    seen = []
    write_rows = rows_on_disk.RowStore._write

    def watched(store):
        write_rows(store)
        seen.extend(scratch_files(tmp_path / "scratch"))
        assert list((tmp_path / "scratch").iterdir()) == []

    monkeypatch.setattr(rows_on_disk.RowStore, "_write", watched)
    (tmp_path / "scratch").mkdir()
    table = read(write(tmp_path, "parquet", frame()), tmp_path / "scratch")
    assert seen
    assert {status.st_mode & 0o777 for status in seen} == {0o600}
    assert {status.st_nlink for status in seen} == {0}
    np.testing.assert_array_equal(frame().to_numpy(), table.X)
    assert len(scratch_files(tmp_path / "scratch")) == 1, "the map keeps it"
    del table
    assert scratch_files(tmp_path / "scratch") == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are looked up in Linux's /proc")
def test_nothing_is_left_of_the_scratch_file_after_an_error(tmp_path):
    (tmp_path / "scratch").mkdir()
    data = frame()
    data.iloc[99, 0] = np.nan
    with pytest.raises(UserError, match="1 cell is missing"):
        read(write(tmp_path, "parquet", data), tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert scratch_files(tmp_path / "scratch") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by Linux's /dev/full")
@pytest.mark.parametrize(("full_at", "how"), [("once", ("r+b", 0)), ("the last rows", ("wb", -1))])
def test_a_full_disk_is_reported_in_plain_words(tmp_path, monkeypatch, full_at, how):
    """With a buffer, these few rows are still in it when the map is made, and when it is closed."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: open("/dev/full", *how))  # noqa: SIM115
    with pytest.raises(UserError, match=r"scratch folder cannot take them \(No space left on device\); see `memory`"):
        read(write(tmp_path, "parquet", frame()), tmp_path)


# --- Fortran order ---
@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize(
    ("dtype", "order"),
    [("f8", "F"), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("i8", "C"), ("f4", "F")))],
)
def test_rows_that_must_be_copied_keep_to_the_memory(tmp_path, suffix, dtype, order):
    """8 MB of rows as 64-bit floats, with 1 MiB and then 9 MiB of memory: one copy fits in these, two do not."""
    X = np.array(np.random.default_rng(0).integers(1000, size=(20_000, 50)), dtype, order=order)
    path, keys = (
        tmp_path / f"t.{suffix}",
        {} if suffix == "npy" else {"columns": np.array([f"c{j}" for j in range(50)])},
    )
    np.save(path, X) if suffix == "npy" else np.savez(path, X=X, **keys)
    tracemalloc.start()
    try:
        table = read(File(path, path.name), tmp_path, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert is_mapped(table.X)
    np.testing.assert_array_equal(X.astype(float), table.X)
    assert peak < 4 << 20
    for memory, whole in ((9 << 20, False), (17 << 20, True)):
        with open_numpy(path, path.name, file_formats.Selection()) as source:
            found = [len(piece.rows) for piece in source.read(None, RowStore(memory, tmp_path))]
        assert sum(found) == len(X)
        assert (len(found) == 1) is whole


def test_the_copy_of_an_array_by_columns_has_no_name_and_needs_room(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.asfortranarray(frame().to_numpy()), pid=np.arange(100))
    (tmp_path / "scratch").mkdir()
    table = read(File(tmp_path / "t.npz", "t.npz"), tmp_path / "scratch", id_name="pid")
    assert list(table.ids) == [str(i) for i in range(100)]
    np.testing.assert_array_equal(frame().to_numpy(), table.X)
    assert list((tmp_path / "scratch").iterdir()) == []
    with pytest.raises(UserError, match=r"scratch folder cannot take them \(No such file"):
        read(File(tmp_path / "t.npz", "t.npz"), tmp_path / "gone")


def test_damage_to_an_array_by_columns_is_noticed(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.asfortranarray(frame(1000).to_numpy()))
    stored = bytearray((tmp_path / "t.npz").read_bytes())
    stored[len(stored) // 2] ^= 255
    (tmp_path / "t.npz").write_bytes(bytes(stored))
    with pytest.raises(UserError, match=r"t\.npz is not a NumPy file of plain numbers, or it is damaged"):
        read(File(tmp_path / "t.npz", "t.npz"), tmp_path)


def test_parquet_is_held_one_row_group_at_a_time(tmp_path):
    columns = dict(zip("abcd", np.random.default_rng(0).normal(size=(4, 600_000)), strict=True))
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table(columns), path, row_group_size=10_000)
    before, most, n = pa.total_allocated_bytes(), 0, 0
    with open_parquet(path, "t.parquet", file_formats.Selection(encoding="utf-8")) as source:
        for cells in source.cells("abcd"):
            most, n = max(most, pa.total_allocated_bytes() - before), n + len(cells[0])
    assert n == 600_000
    # Arrow's threads free what they have read a few groups later, on a busy machine.
    assert most < 4 * 8 * n / 6
