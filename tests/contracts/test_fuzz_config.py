"""Whatever a configuration, a file with rows, a command line or a sweep says, it is read or refused in words: nothing is
run, nothing hangs, memory is bounded, and no text shows a cell or a value.
"""

import io
import struct
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Refusal, UserError
from flareclust.cli.settings import parse_settings
from flareclust.data.file_formats import Selection
from flareclust.data.memory import RowStore
from flareclust.data.npy_files import open_numpy
from flareclust.data.tables import File, Numbers, Table, read_table
from flareclust.evaluation.selection import parse_k
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.rows import SiteData
from tests.fuzz.files import MEMORY, check_config, check_table
from tests.fuzz.specs import check_spec
from tests.fuzz.watch import limited, peak_of, traced

BYTES = st.binary(min_size=256, max_size=256)
FEW = settings(max_examples=200, derandomize=True, deadline=None, database=None)


# --- configurations ---


def test_spoiled_configurations_are_read_or_refused(tmp_path):
    became = Counter()

    @FEW
    @given(BYTES)
    def read(data: bytes) -> None:
        became[type(check_config(tmp_path, data))] += 1

    read()
    assert became[str] > 50, became


@pytest.mark.parametrize(
    "line",
    [
        *("min_rows: " + "9" * 5000, "max_rows: 0x" + "f" * 5000, "memory: " + "9" * 400, "memory: 9999T" + "9" * 400),
        *("id: !!timestamp x", "id: !!bool x", "id: !!int x", "id: !!float x", "id: 2020-99-99", "id: [" + "[" * 20000),
        *(
            "hide: " + "{a: " * 3000,
            "hide: &a [*a]",
            'scratch: "a\\0b"',
            'root: "\\ud800"',
            'id: "\\ud800"',
            'salt: "\\0"',
        ),
        *('columns: ["\\ud800"]', 'hide: ["\\ud800"]', '"\\ud800": 1', '"\\e[2J": 1', "memory: true", "memory: 0B"),
        "labels: " + "a/" * 200 + "b\npath: '" + "**/a/" * 60 + "*'",
    ],
)
def test_what_a_configuration_cannot_say_is_refused_in_words_that_can_be_sent(tmp_path, line):
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    (tmp_path / CONFIG_FILE).write_text(f"path: rows.npy\n{line}\n")
    with limited(), pytest.raises(Refusal) as refused:
        SiteData.of(tmp_path, "site-1").table()
    assert str(refused.value).isprintable()
    assert "999" not in str(refused.value)


def test_a_configuration_runs_nothing(tmp_path):
    touched = tmp_path / "touched"
    for tag in ("!!python/object/apply:os.system", "!!python/object/new:os.system", "!!python/name:os.system"):
        (tmp_path / CONFIG_FILE).write_text(f"path: rows.npy\nid: {tag} ['touch {touched}']\n")
        with pytest.raises(Refusal, match="cannot be read as settings"):
            SiteData.of(tmp_path, "site-1")
    assert not touched.exists()


@pytest.mark.parametrize("path", ['"a\\0b.npy"', '"\\ud800.npy"', "''", "{site-1: 3}", '{site-1: "\\0"}'])
def test_a_path_that_names_no_file_is_refused(tmp_path, path):
    (tmp_path / CONFIG_FILE).write_text(f"path: {path}\n")
    with pytest.raises(Refusal, match="without a path to its rows"):
        SiteData.of(tmp_path, "site-1")


# --- files with rows ---


def test_spoiled_tables_are_read_or_refused_in_little_memory(tmp_path):
    became = Counter()

    @FEW
    @given(BYTES)
    def read(data: bytes) -> None:
        found, peak = peak_of(lambda: check_table(tmp_path, data))
        became[type(found)] += 1
        assert peak < 2 * MEMORY

    for seed in range(40):  # what a reader imports on first use is not counted
        check_table(tmp_path, np.random.default_rng(seed).bytes(200))
    with traced():
        read()
    assert min(became[Table], became[str]) > 10, became


def _npy(shape: str, descr: str = "'<f8'", *, length: int | None = None, rows: bytes = bytes(48)) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header) if length is None else length) + header + rows


_CLAIMS = {
    "1e18 rows": _npy("(1000000000000000000, 3)"),
    "1e9 rows": _npy("(1000000000, 3)"),
    "1e18 columns of no row": _npy("(0, 1000000000000000000)"),
    "1e18 rows of no column": _npy("(1000000000000000000, 0)"),
    "more than a number": _npy("(" + "9" * 400 + ", 3)"),
    "too many digits": _npy("(" + "9" * 5000 + ", 3)"),
    "a negative number": _npy("(-2, -3)"),
    "cells of no size": _npy("(1000000000, 3)", "'|V0'"),
    "a header of 4 GiB": _npy("(2, 3)", length=2**32 - 1),
    "a deep header": _npy("(" * 5000),
    "a cell of 2 GB": _npy("(1, 1)", "'<U500000000'"),
    "a version of its own": b"\x93NUMPY\x09\x00" + bytes(100),
}


@pytest.mark.parametrize("claim", list(_CLAIMS))
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays_that_claim_to_be_larger_than_their_file_are_refused_in_little_memory(tmp_path, kind, claim):
    path = tmp_path / f"t.{kind}"
    path.write_bytes(_CLAIMS[claim])
    if kind == "npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as stored:
            stored.writestr("X.npy", _CLAIMS[claim])
    with traced(), limited():
        text, peak = peak_of(lambda: _refused(path))
    assert "is not a NumPy file of plain numbers" in text
    assert peak < 4 * MEMORY


def _refused(path: Path) -> str:
    with pytest.raises(UserError) as refused:
        read_table(path)
    return str(refused.value)


def _patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


def test_an_npz_member_whose_size_cannot_be_is_refused(tmp_path):
    stream = io.BytesIO()
    np.savez_compressed(stream, X=np.zeros((1000, 3)))
    size = 24000 + 128
    for claimed in (2**31, 2**32 - 1):
        (tmp_path / "t.npz").write_bytes(
            _patched(stream.getvalue(), struct.pack("<I", size), struct.pack("<I", claimed))
        )
        assert "is not a NumPy file" in _refused(tmp_path / "t.npz")


@pytest.mark.parametrize("packed", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_ways_of_packing_that_numpy_does_not_know_are_refused(tmp_path, packed):
    with zipfile.ZipFile(tmp_path / "t.npz", "w", packed) as stored:
        stored.writestr("X.npy", _npy("(2, 3)"))
    assert "is not a NumPy file" in _refused(tmp_path / "t.npz")


def test_a_zip_bomb_of_real_rows_stays_within_the_memory_that_is_allowed(tmp_path):
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((1 << 21, 3)))
    assert (tmp_path / "t.npz").stat().st_size < 100_000
    with traced():
        file = File(tmp_path / "t.npz", "t.npz")
        table, peak = peak_of(lambda: Numbers().read([file], RowStore(MEMORY, tmp_path)))
    assert table.X.shape == (1 << 21, 3)
    assert peak < 6 * MEMORY


class _Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("spoil", [b"", b"'<f8'", b"'|V8'"])
def test_no_pickle_is_ever_loaded(tmp_path, kind, spoil):
    import pickle

    touched = tmp_path / "touched"
    pickle.loads(pickle.dumps(_Touches(touched)))
    assert touched.exists()
    touched.unlink()
    objects = np.full((2, 2), _Touches(touched), object)
    stream = io.BytesIO()
    np.save(stream, objects, allow_pickle=True)
    data = stream.getvalue().replace(b"'|O'", spoil) if spoil else stream.getvalue()
    (tmp_path / f"t.{kind}").write_bytes(data)
    if kind == "npz":
        with zipfile.ZipFile(tmp_path / "t.npz", "w") as stored:
            stored.writestr("X.npy", data)
    with pytest.raises(UserError):
        read_table(tmp_path / f"t.{kind}", ["a"] if spoil else None)
    assert not touched.exists()


def test_no_pickle_is_loaded_where_an_array_becomes_objects_after_its_header_was_read(tmp_path):
    path, touched, objects = tmp_path / "t.npz", tmp_path / "touched", io.BytesIO()
    np.save(objects, np.full((1, 1), _Touches(touched), object), allow_pickle=True)
    np.savez(path, X=np.zeros((10_000, 3)), columns=np.array(["a", "b", "c"]))  # more than Python has in a buffer
    start = path.read_bytes().index(b"\x93NUMPY")
    with open_numpy(path, "t.npz", Selection()) as source:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(objects.getvalue())
        with pytest.raises(ValueError, match="allow_pickle=False"):
            list(source.read(None, RowStore(None, tmp_path)))
    assert not touched.exists()


def test_names_that_are_no_unicode_are_refused(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.ones((3, 2)), columns=np.array(["a", "\ud800"]))
    assert "is not a NumPy file" in _refused(tmp_path / "t.npz")


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_arrow_files_whose_texts_lie_outside_of_them_are_refused(tmp_path, new):
    ids = [f"patient-{i}" for i in range(20)]
    table = pa.table({"x": np.arange(20.0), "id": pa.array(ids)})
    stream = io.BytesIO()
    with new(stream, table.schema) as writer:
        writer.write_table(table)
    ends = np.cumsum([0, *map(len, ids)], dtype="<i4")
    far = np.concatenate([ends[:10], ends[10:] + 2**30]).astype("<i4")
    (tmp_path / "t.arrow").write_bytes(_patched(stream.getvalue(), ends.tobytes(), far.tobytes()))
    with pytest.raises(UserError, match="or it is damaged"):
        Numbers(id_name="id").read([File(tmp_path / "t.arrow", "t.arrow")])


@pytest.mark.parametrize(
    "note", [b"[1]", b"{", b"[" * 100_000, b'{"index_columns": 3}', b'{"index_columns": [{}, 3, "x"]}', b"\xff"]
)
def test_a_damaged_note_of_pandas_does_no_harm(tmp_path, note):
    table = pa.table({"y": np.arange(3.0), "x": np.arange(3.0)}).replace_schema_metadata({b"pandas": note})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert "y" in (read_table(tmp_path / "t.arrow").columns or ())


# --- command lines and sweeps ---


def test_spoiled_requests_are_read_or_refused(tmp_path):
    became = Counter()

    @FEW
    @given(BYTES)
    def read(data: bytes) -> None:
        became[check_spec(tmp_path, data) is None] += 1

    read()
    assert min(became[True], became[False]) > 10, became


@pytest.mark.parametrize("k", ["9" * 5000, "9" * 5000 + ".." + "9" * 5001, "2..", "..3", "1e5", "२..३.."])
def test_numbers_of_clusters_that_nobody_means_are_refused(k):
    with pytest.raises(UserError, match="expected an integer"):
        parse_k(k)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000, '{"a":' * 100_000])
def test_settings_without_an_end_are_texts(value):
    assert parse_settings([f"n_init={value}"]) == {"n_init": value}


def test_a_sweep_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "sweep.toml").write_text("name = " + "[" * 100_000)
    with pytest.raises(UserError, match="nested too deep"):
        sweep_settings.read_sweep(tmp_path / "sweep.toml")


def test_a_sweep_of_more_combinations_than_can_be_counted_through_is_refused():
    many = list(range(1, 2000))
    grid = {"name": "ffcm", "n_init": many, "min_count": many, "max_iter": many}
    with limited(), pytest.raises(UserError, match="at most 100000 can be run"):
        sweep_settings.Sweep(name="s", data="iris", algorithms=[grid])
