"""The digest of rows, by which runs, sweeps and MLflow recognise the same data."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array
from flareclust.data.tables import Table

#: Half of the characters of MLflow's limit; enough to distinguish data sets.
_LENGTH = 16
_CHUNK = 1 << 20


def digest_of(about: str, tables: Iterable[Array | Table | Path]) -> str:
    """Return the digest of a text and of rows: of arrays their shapes and values, of files and folders the names and contents.

    UserError where a file is not there, or cannot be read.
    """
    total = hashlib.sha256(about.encode())
    for rows in tables:
        if isinstance(rows, Path):
            for part in _parts(rows):
                total.update(part)
        else:
            array = rows.X if isinstance(rows, Table) else rows
            total.update(repr(array.shape).encode())
            total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()[:_LENGTH]


def _parts(place: Path) -> Iterator[bytes]:
    """Yield a file, or all files below a folder: each one's name there, and its content piece by piece."""
    if not place.exists():
        raise UserError(f"{place}: no such file or folder")
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if not path.is_file():
            continue
        name = path.name if path == place else path.relative_to(place).as_posix()
        try:
            yield f"{name}\0{path.stat().st_size}\0".encode()
            with path.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); its content is part of the data's digest"
            ) from error
