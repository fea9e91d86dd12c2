"""npy and npz: a 2-D array, and from npz the names of its columns and the ids of its rows."""

import io
import math
import tokenize
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.typing import Array, FloatArray
from flareclust.core.chunks import pieces
from flareclust.data import file_formats as formats
from flareclust.data.memory import RowStore, check_fits, on_disk

_ZIP = b"PK"

#: No header of an array of plain numbers is longer, and no array without entries has more of something.
_LONGEST_HEADER, _MOST_OF_NOTHING = 1 << 16, 10**7

#: Characters of a column's name; room is made for so many in each entry of `columns`.
_LONGEST_NAME = 1000

#: Deflate makes nothing more than 1032 times smaller.
_MOST_DEFLATED = 1040

#: What NumPy and zipfile raise for bytes that are no such file.
_DAMAGED = (*formats.DAMAGED, zipfile.BadZipFile, tokenize.TokenError)


def npz_arrays(file: Path, keys: Sequence[str]) -> dict[str, Array]:
    """Return those of an npz file's arrays that are there; UserError where it is damaged or none, or they hold objects or do not fit."""
    place = str(file)
    with _numpy_errors(place), zipfile.ZipFile(file) as stored:
        found = set(stored.namelist())
        members = {key: _Member(stored, key) for key in keys if f"{key}.npy" in found}
        for member in members.values():
            check_fits(math.prod(member.shape) * member.dtype.itemsize, place)
        return {key: member.whole() for key, member in members.items()}


@contextmanager
def _numpy_errors(place: str) -> Iterator[None]:
    try:
        yield
    except FlareclustError:  # some are ValueErrors, too, but say already what is wrong
        raise
    except _DAMAGED:
        raise UserError(
            f"{place} is not a NumPy file of plain numbers, or it is damaged; arrays of objects and pickles are not "
            "read. Write it again with np.save or np.savez and X.astype(float)"
        ) from None


@contextmanager
def open_numpy(file: Path, place: str, selection: formats.Selection) -> Iterator[formats.Source]:
    """Open an npy or npz file; what is in it says which."""
    with file.open("rb") as stream:
        zipped = stream.read(2) == _ZIP
    if zipped:
        with _numpy_errors(place), zipfile.ZipFile(file) as stored:
            yield _npz_source(stored, selection.id_name, place)
        return
    with _numpy_errors(place):
        if selection.id_name is not None:
            raise formats.no_id(place)
        rows = _mapped(file)
        plain = rows.dtype == np.float64 and rows.flags.c_contiguous and rows.flags.aligned and rows.ndim == 2

        def read(positions: Sequence[int] | None, store: RowStore) -> Iterator[formats.Piece]:
            del positions  # there are no names to choose by
            if rows.ndim != 2 or store.takes(len(rows), rows.shape[1], 1 if plain else 2):
                yield formats.Piece(np.load(file, allow_pickle=False))
            else:
                for part in pieces(len(rows), rows.shape[1], store.piece):
                    yield formats.Piece(np.array(rows[part], order="C"))

        n, width = rows.shape if rows.ndim == 2 else (None, None)
        yield formats.Source(None, read, None, rows if plain else None, n=n, width=width)


def _mapped(file: Path) -> Array:
    """Return an npy file's array, mapped where that can be: not where it is empty."""
    with file.open("rb") as stream:
        shape, *_ = _header(stream, file.stat().st_size)
    mapped: Array = np.load(file, mmap_mode=None if 0 in shape else "r", allow_pickle=False)
    return mapped


class _Member:
    """An array inside an npz file, read from its beginning to its end."""

    def __init__(self, stored: zipfile.ZipFile, key: str) -> None:
        self._stored, self._name = stored, f"{key}.npy"
        self._size = _size(stored.getinfo(self._name))
        with stored.open(self._name) as stream:
            self.shape, fortran, self.dtype = _header(stream, self._size)
        self.by_columns = fortran and len(self.shape) > 1

    def whole(self) -> Array:
        """Return all of it."""
        with self._stored.open(self._name) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))

    @property
    def plain(self) -> bool:
        """Return whether it is as rows are used: 64-bit floats, row after row."""
        return self.dtype == np.float64 and not self.by_columns

    def parts(self, step: int, scratch: Path | None = None) -> Iterator[Array]:
        """Give `step` entries of the first axis at a time; where columns lie together, by way of a file in `scratch`."""
        if self.by_columns:  # a row lies all over the member, which can be read from its beginning to its end only
            yield from self._parts_by_columns(step, scratch)
            return
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        counts = [min(step, self.shape[0] - start) for start in range(0, self.shape[0], step)]
        for count, data in zip(counts, self._bytes([count * row for count in counts]), strict=True):
            yield np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])

    def _parts_by_columns(self, step: int, scratch: Path | None) -> Iterator[Array]:
        whole, maximum = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize, 1 << 20
        sizes = [min(maximum, whole - start) for start in range(0, whole, maximum)]
        with on_disk(self._bytes(sizes), scratch) as copy:
            rows = np.memmap(copy, self.dtype, "r", shape=self.shape, order="F")
            for start in range(0, self.shape[0], step):
                yield np.array(rows[start : start + step], order="C")

    def _bytes(self, sizes: Sequence[int]) -> Iterator[bytes]:
        """Give the numbers as they lie in the file, so many bytes at a time."""
        with self._stored.open(self._name) as stream:
            _header(stream, self._size)
            for size in sizes:
                if len(data := stream.read(size)) != size:
                    raise EOFError
                yield data
            stream.read(1)  # the checksum is compared at the end of the member


def _size(member: zipfile.ZipInfo) -> int:
    """Return how many bytes a member of an npz file has; ValueError for a size that cannot be."""
    packed, size = member.compress_size, member.file_size
    maximum = {zipfile.ZIP_STORED: packed, zipfile.ZIP_DEFLATED: _MOST_DEFLATED * (packed + 1)}
    if size > maximum.get(member.compress_type, -1):  # np.savez knows no other ways of packing
        raise ValueError("size")
    return size


def _header(stream: IO[bytes] | zipfile.ZipExtFile, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an array's shape, whether its columns lie together, and its dtype, from a stream of so many bytes.

    ValueError where it holds objects, or claims to be larger than the stream, which nobody should make room for.
    """
    start = stream.read(8)
    version = np.lib.format.read_magic(io.BytesIO(start))
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError("version")
    field = stream.read(2 if version == (1, 0) else 4)
    length = int.from_bytes(field, "little")
    if length > _LONGEST_HEADER:
        raise ValueError("header")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(io.BytesIO(field + stream.read(length)))
    if dtype.hasobject:
        raise ValueError("objects")
    maximum, claimed = size - len(start) - len(field) - length, math.prod(shape) * dtype.itemsize
    # Where there is no entry, or none has a size, the shape alone can claim anything.
    fits = claimed <= maximum if claimed else max(shape) <= _MOST_OF_NOTHING
    if min(shape, default=0) < 0 or not fits:
        raise ValueError("shape")
    return shape, fortran, dtype


def _npz_source(stored: zipfile.ZipFile, id_name: str | None, place: str) -> formats.Source:
    keys = [name.removesuffix(".npy") for name in stored.namelist()]
    rows = _npz_rows(stored, keys, id_name, place)
    names: formats.Names | None = None
    if "columns" in keys:
        labels = _Member(stored, "columns")
        if len(rows.shape) != 2 or labels.dtype.kind != "U" or labels.shape != rows.shape[1:]:
            raise UserError(
                f"{place}: `columns` must be one string per column of X {rows.shape}, got {labels.dtype} {labels.shape}"
            )
        if labels.dtype.itemsize > 4 * _LONGEST_NAME:
            raise UserError(f"{place}: `columns` has names of more than {_LONGEST_NAME:,} characters; shorten them")
        names = tuple(map(str, labels.whole()))
        "".join(names).encode()  # names that are no Unicode could not be sent
    ids, own = _ids_of(stored, keys, names, rows, id_name, place)
    others = None if names is None else [j for j in range(len(names)) if j != own]

    def read(positions: Sequence[int] | None, store: RowStore) -> Iterator[formats.Piece]:
        taken = others if positions is None else [(others or [])[j] for j in positions]
        every = names is None or taken == list(range(len(names)))
        if len(rows.shape) != 2:  # of the right shape and without memory, for the checks to refuse
            yield formats.Piece(np.broadcast_to(np.zeros((), rows.dtype), rows.shape))
            return
        n, d = rows.shape
        whole = n == 0 or store.takes(n, d, 1 if rows.plain and every else 2)
        step = max(1, n if whole else store.piece // (8 * max(1, d)))
        texts = None if ids is None else ids.parts(step)
        for X in [rows.whole()] if whole else rows.parts(step, store.scratch):
            found = X[:, own] if own is not None else None
            if texts is not None:
                found = ids.whole() if ids is not None and len(X) == n else next(texts)
            yield formats.Piece(X if every else X[:, taken], found)

    n, width = rows.shape if len(rows.shape) == 2 else (None, None)
    chosen = None if names is None else tuple(names[j] for j in others or [])
    repeats, (outcomes, form) = _repeats(stored, keys, place), _outcomes(stored, keys, n, place)
    return formats.Source(chosen, read, n=n, width=width, repeats=repeats, outcomes=outcomes, outcome_form=form)


def _outcomes(
    stored: zipfile.ZipFile, keys: list[str], n: int | None, place: str
) -> tuple[FloatArray | None, tuple[float, ...] | None]:
    """Return the outcomes of the rows (n, w) in an npz file, and their form; None where it has none."""
    if formats.OUTCOMES not in keys or formats.OUTCOME_FORM not in keys:
        return None, None
    found, form = _Member(stored, formats.OUTCOMES), _Member(stored, formats.OUTCOME_FORM)
    if len(found.shape) != 2 or found.shape[0] != n or found.shape[1] not in (1, 2) or not found.plain:
        raise UserError(
            f"{place}: `{formats.OUTCOMES}` must be one or two 64-bit floats for each row of X, got {found.shape}"
        )
    if form.shape != (4,) or not form.plain:
        raise UserError(f"{place}: `{formats.OUTCOME_FORM}` must be four 64-bit floats, got {form.shape}")
    return found.whole(), tuple(form.whole().tolist())


def _repeats(stored: zipfile.ZipFile, keys: list[str], place: str) -> int:
    """Return what an npz file states about how often the same row may be there; 1 where it says nothing."""
    if formats.REPEATS not in keys:
        return 1
    stated = _Member(stored, formats.REPEATS)
    if stated.shape != () or stated.dtype.kind != "i" or (repeats := int(stated.whole())) < 1:
        raise UserError(f"{place}: `{formats.REPEATS}` must be one integer, 1 or more")
    return repeats


def _npz_rows(stored: zipfile.ZipFile, keys: list[str], id_name: str | None, place: str) -> _Member:
    if "X" in keys:
        return _Member(stored, "X")
    flat = [member for key in keys if key != id_name and len((member := _Member(stored, key)).shape) == 2]
    if len(flat) != 1:
        raise UserError(
            f"{place}: expected an array `X` or exactly one 2-D array, got {formats.listed(keys)}; name one `X`"
        )
    return flat[0]


def _ids_of(
    stored: zipfile.ZipFile,
    keys: list[str],
    names: formats.Names | None,
    rows: _Member,
    id_name: str | None,
    place: str,
) -> tuple[_Member | None, int | None]:
    """Return the array of the ids, or which column they are."""
    if id_name is None:
        return None, None
    if id_name in keys and id_name not in ("X", "columns"):
        ids = _Member(stored, id_name)
        if ids.shape != rows.shape[:1]:
            raise UserError(f"{place}: the array of the ids must have one entry per row of X")
        return ids, None
    if names is None or id_name not in names:
        raise formats.no_id(place)
    return None, names.index(id_name)
