"""The labels of a site's rows, in a file that stays at the site: one line per row, in the order of its rows."""

import csv
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.own_files import make_folder, write_atomically, write_rows
from flareclust._foundation.typing import IntArray

LABELS_FILE = "labels.csv"
_HEADER = ("row", "label")


def write_labels(
    folder: Path,
    labels: Iterable[int] | IntArray,
    ids: Iterable[str] | None = None,
    id_name: str | None = None,
    *,
    name: str = LABELS_FILE,
) -> Path:
    """Write a site's labels (n,), and the ids of its rows if any, to a file in its own folder, complete or not at all; return it.

    Only the site's account can read both. Labels are read once, from the first to the last.
    """
    make_folder(folder)
    path = folder / name
    with write_atomically(path) as file:
        if ids is None:
            write_rows(file, chain([_HEADER], enumerate(map(int, labels))))
        else:
            write_rows(file, [("row", id_name or "id", "label")])
            pairs = zip(map(int, labels), ids, strict=True)
            write_rows(file, ((row, own, label) for row, (label, own) in enumerate(pairs)))
    return path


def keep_labels(
    job_folder: Path,
    folder: Path | None,
    labels: Iterable[int] | IntArray,
    ids: Iterable[str] | None,
    id_name: str | None,
) -> Path:
    """Write a job's labels where the site wants them: in the job's folder, or as `<job id>.csv` in one for all jobs.

    Refusal where the file cannot be written.
    """
    try:
        if folder is None:
            return write_labels(job_folder, labels, ids, id_name)
        return write_labels(folder, labels, ids, id_name, name=f"{job_folder.name}.csv")
    except OSError as error:
        raise Refusal(f"cannot write its labels ({error.strerror}); see `labels` in its configuration") from None


def is_labels_file(path: Path) -> bool:
    """Return whether `write_labels` may write to this path: it is free, or holds older labels of ours."""
    if not path.exists():
        return True
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        cells = next(csv.reader(file), [])
    return len(cells) in (2, 3) and (cells[0], cells[-1]) == _HEADER


def read_labels(folder: Path, name: str = LABELS_FILE) -> IntArray:
    """Read the labels (n,) that `write_labels` wrote."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return np.fromiter((int(line[-1]) for line in lines), np.int64)
