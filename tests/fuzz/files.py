"""Tables in every format and configurations as sites have them, and what reads them."""

import io
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flareclust._foundation.errors import Refusal, UserError
from flareclust.data.memory import RowStore
from flareclust.data.tables import File, Numbers, Table
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.rows import SiteData
from tests.fuzz.choices import Choices, spoiled
from tests.fuzz.watch import limited

#: What no text may show: the cells of the tables are this number and others that begin like it.
SECRET = "918273"

#: Most bytes of rows in memory, as a site would say it.
MEMORY = 1 << 20

NAMES = ("age", "height", "weight")


def _cells(n: int) -> np.ndarray:
    return 918273.5 + np.arange(3.0 * n).reshape(n, 3)


@cache
def tables() -> dict[str, tuple[bytes, ...]]:
    """Return honest files by format."""
    X, ids = _cells(20), np.array([f"{SECRET}-{i}" for i in range(20)])
    frame = pa.table({name: X[:, j] for j, name in enumerate(NAMES)})
    pandas = frame.replace_schema_metadata({"pandas": '{"index_columns": ["weight"]}'})
    text = frame.append_column("id", pa.array(ids)).append_column("d", pa.array(ids).dictionary_encode())
    csv = ",".join(NAMES) + "\n" + "\n".join(",".join(map(repr, row)) for row in X.tolist()) + "\n"
    return {
        "npy": tuple(_npy(array) for array in (X, np.asfortranarray(X), X.astype("f4"), X.astype("i8"), X[:, 0])),
        "npz": (
            _npz(np.savez, X=X, columns=np.array(NAMES), id=ids),
            _npz(np.savez_compressed, X=np.asfortranarray(X), columns=np.array(NAMES)),
            _npz(np.savez, rows=X, id=ids),
        ),
        "csv": (csv.encode(), csv.replace(",", ";").encode("utf-8-sig"), csv.replace("age", "id").encode()),
        "parquet": tuple(_parquet(one) for one in (frame, pandas, text)),
        "arrow": tuple(_arrow(one, new) for one in (frame, text) for new in (pa.ipc.new_file, pa.ipc.new_stream)),
        "feather": (_arrow(pandas, pa.ipc.new_file, "lz4"), _arrow(text, pa.ipc.new_file, "zstd")),
    }


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _npz(save: object, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)  # type: ignore[operator]
    return stream.getvalue()


def _parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def _arrow(table: pa.Table, new: object, compression: str | None = None) -> bytes:
    stream = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(stream, table.schema, options=options) as writer:  # type: ignore[operator]
        writer.write_table(table)
    return stream.getvalue()


def mutated_table(choices: Choices) -> tuple[str, bytes]:
    """Return a format and the bytes of a file that claims to have it."""
    kind = choices.one_of(tuple(tables()))
    data = choices.one_of(tables()[kind])
    other = choices.one_of(tables()[choices.one_of(tuple(tables()))])
    match choices.less_than(8):
        case 0:
            return kind, choices.rest()
        case 1 if kind == "npz":
            return kind, _npz_with(choices, spoiled(tables()["npy"][0], choices, other))
        case 2:
            return kind, other
        case _:
            return kind, spoiled(data, choices, other)


def _npz_with(choices: Choices, member: bytes) -> bytes:
    """Return an npz file whose checksums are right, with a member that is not."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", choices.one_of((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as stored:
        stored.writestr(choices.one_of(("X.npy", "X", "rows.npy", "../X.npy")), member)
        if choices.less_than(2):
            stored.writestr(choices.one_of(("columns.npy", "id.npy")), _npy(np.array(NAMES)))
    return stream.getvalue()


def read(kind: str, data: bytes, folder: Path, choices: Choices) -> Table | str:
    """Read a file with these bytes in one of the ways that there are; return the rows or the text of the error."""
    path = folder / f"t.{kind}"
    path.write_bytes(data)
    file = File(path, path.name)
    try:
        match choices.less_than(5):
            case 0:
                return Numbers().read([file], RowStore(MEMORY, folder))
            case 1:
                return Numbers(["weight", "age"]).read([file], RowStore(MEMORY, folder))
            case 2:
                return Numbers(id_name="id").read([file], RowStore(MEMORY, folder))
            case 3:
                return Numbers().read([file, file], RowStore(100, folder))
            case _:
                return ",".join(Numbers().columns_of(file) or ())
    except (UserError, Refusal) as error:
        return str(error)


def check_table(folder: Path, data: bytes) -> Table | str:
    """Read the file that these bytes decide on; AssertionError where the rows are none or the error shows a cell."""
    choices = Choices(data)
    kind, content = mutated_table(choices)
    with limited():
        found = read(kind, content, folder, choices)
    if isinstance(found, Table):
        assert found.X.dtype == np.float64
        assert found.X.ndim == 2
        assert np.isfinite(found.X).all()
    elif kind != "csv" or content.startswith(f"{','.join(NAMES)}\n".encode()):  # else cells may stand in the header
        assert SECRET not in found, found
    return found


# --- configurations ---

CONFIGS = (
    b"path: rows.npy\n",
    b"path: /secure/918273/{site}.parquet\nformat: csv\nroot: /secure\ncolumns: [age, crp, lactate]\nid: patient\n",
    b"path: {site-1: rows.npy, site-2: 918273.csv}\nmin_rows: 918273\nmax_rows: 918274\nmemory: 4GB\nscratch: /918273\n",
    b"path: '**/*.csv'\nlabels: 918273/labels\nagreement: may-lack\nsalt: a secret 918273 of several\nhide: [lactate]\n",
    b"path: rows.npz\nagreement: exact\nsalt: \"918273 0123456789 \\xe4\"\nhide: true\nid: '918273'\n",
)
_YAML = (
    *(b"[" * 5000, b"{a: " * 600, b"&a [*a]", b"*x", b"!!timestamp x", b"!!bool 918273", b"!!int x", b"!!float x"),
    *(b"2020-99-99", b"9" * 5000, b"0x" + b"f" * 5000, b"1e400", b"'\\0'", b'"\\0"', b'"\\ud800"', b"\0", b"~", b"''"),
    *(b"!!python/object/apply:os.system [ls]", b"!!python/name:os.system", b"!!set {a, b}", b"!!binary 918273"),
    *(
        b"{site-1: 3}",
        b"[]",
        b"{}",
        b"-1",
        b"true",
        b".nan",
        b".inf",
        b"'" + b"**/" * 40 + b"x'",
        b"<<: 3",
        b"? [a]\n: b",
    ),
    *(b"'[918273'", b"'a*b?c[d]'", b"9" * 400 + b"GB", b"../..", b"/", b".", b"a" * 500),
)


def mutated_config(choices: Choices) -> bytes:
    """Return the text of a configuration: random, or a real one with other bytes or other values."""
    if not choices.less_than(8):
        return choices.rest()
    text = choices.one_of(CONFIGS)
    if choices.less_than(3):
        lines = text.splitlines(keepends=True)
        for _ in range(1 + choices.less_than(2)):
            at = choices.less_than(len(lines))
            key = lines[at].partition(b":")[0]
            lines[at] = key + b": " + choices.one_of(_YAML) + b"\n"
        text = b"".join(lines)
    return spoiled(text, choices, choices.one_of(CONFIGS)) if choices.less_than(2) else text


def configured(text: bytes, local: Path) -> SiteData | str:
    """Return what a site's configuration of this text says, or the text of its refusal."""
    (local / CONFIG_FILE).write_bytes(text)
    try:
        return SiteData.of(local, "site-1")
    except Refusal as refused:
        return str(refused)


def check_config(folder: Path, data: bytes) -> Table | str:
    """Read the configuration that these bytes decide on, and then the rows; AssertionError where a refusal shows a value."""
    if not (folder / "rows.npy").exists():
        np.save(folder / "rows.npy", np.ones((3, 2)))
    with limited():
        found = configured(mutated_config(Choices(data)), folder)
        if isinstance(found, str):
            assert SECRET not in found or "unknown keys" in found, found
            return found
        try:
            return found.table()
        except Refusal as refused:  # it may name the file that the configuration names
            return str(refused)
