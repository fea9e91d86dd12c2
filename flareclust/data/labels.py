"""The labels of a site's rows, in a file that stays at the site: one line per row, in the order of its rows."""

import csv
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np

from flareclust._foundation.csv_text import write_rows
from flareclust._foundation.errors import Refusal
from flareclust._foundation.own_files import make_folder, write_atomically
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
    """Write a site's labels (n,) to a file that only the site's account can read, complete or not at all; return it.

    Args:
        folder: the site's own; made, for its account only, where it is missing.
        labels: cluster of each row; read once, from the first to the last.
        ids: of the rows, in the same order; None leaves that column out.
        id_name: the heading of the ids, by default "id".
        name: of the file.
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

    Raises:
        Refusal: the file cannot be written.
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
        return _is_heading(next(csv.reader(file), []))


def read_labels(folder: Path, name: str = LABELS_FILE) -> IntArray:
    """Read the labels (n,) that `write_labels` wrote."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return np.fromiter((int(line[-1]) for line in lines), np.int64)


def _is_heading(cells: Iterable[str]) -> bool:
    match list(cells):
        case ["row", "label"] | ["row", _, "label"]:
            return True
    return False
