"""The labels of a site's rows, in a file that stays at the site: one line per row, in the order of its rows."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.own_files import make_folder, write_atomically, write_rows
from flareclust._foundation.typing import IntArray
from flareclust.core.mixtures import CERTAINTY

LABELS_FILE = "labels.csv"
_HEADER = ("row", "label")

_NOTHING: Mapping[str, Iterable[float]] = MappingProxyType({})


def write_labels(
    folder: Path,
    labels: Iterable[int] | IntArray,
    ids: Iterable[str] | None = None,
    id_name: str | None = None,
    *,
    details: Mapping[str, Iterable[float]] = _NOTHING,
    name: str = LABELS_FILE,
) -> Path:
    """Write a site's labels (n,), and the ids of its rows if any, to a file in its own folder, complete or not at all; return it.

    Between the two are columns of numbers that say more of the rows (n,), by their names. Only the site's account can read both. Labels are read once, from the first to the last.
    """
    make_folder(folder)
    path = folder / name
    with write_atomically(path) as file:
        named = {} if ids is None else {id_name or "id": ids}
        write_rows(file, [(_HEADER[0], *named, *details, _HEADER[1])])
        numbers = (map(float, values) for values in details.values())
        lines = zip(map(int, labels), *named.values(), *numbers, strict=True)
        write_rows(file, ((row, *cells, label) for row, (label, *cells) in enumerate(lines)))
    return path


def keep_labels(
    job_folder: Path,
    folder: Path | None,
    labels: Iterable[int] | IntArray,
    ids: Iterable[str] | None,
    id_name: str | None,
    details: Mapping[str, Iterable[float]] = _NOTHING,
) -> Path:
    """Write a job's labels where the site wants them: in the job's folder, or as `<job id>.csv` in one for all jobs.

    Refusal where the file cannot be written.
    """
    try:
        if folder is None:
            return write_labels(job_folder, labels, ids, id_name, details=details)
        return write_labels(folder, labels, ids, id_name, details=details, name=f"{job_folder.name}.csv")
    except OSError as error:
        raise Refusal(f"cannot write its labels ({error.strerror}); see `labels` in its configuration") from None


def is_labels_file(path: Path) -> bool:
    """Return whether `write_labels` may write to this path: it is free, or holds older labels of ours."""
    if not path.exists():
        return True
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        cells = next(csv.reader(file), [])
    between = [name for name in cells[1:-1] if name not in (*CERTAINTY, "outlier")]
    return len(cells) > 1 and (cells[0], cells[-1]) == _HEADER and len(between) < 2


def read_labels(folder: Path, name: str = LABELS_FILE) -> IntArray:
    """Read the labels (n,) that `write_labels` wrote."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return np.fromiter((int(line[-1]) for line in lines), np.int64)
