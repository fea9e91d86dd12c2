"""The rows that sites bring along: files in a folder, arrays, data frames; and the columns that these have in common."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import site_name
from flareclust.data.frames import is_frame, table_of
from flareclust.data.tables import SUFFIXES, File, Rows, column_names
from flareclust.experiment.tables.image_folders import folders_of_images


def site_files(folder: Path) -> dict[str, Rows]:
    """Return the table files and folders of images in a folder by site.

    The site's name is the file's name without its ending, or the name of the folder.

    Raises:
        UserError: the folder is missing, has neither table files nor folders of images, or two of one site.
    """
    if not folder.is_dir():
        raise UserError(
            "with --partition none (partition=), data must name a folder with one file per site, or one folder of images, and "
            f"there is no folder {folder}"
        )
    tables = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES and not path.is_dir()]
    files: dict[str, Rows] = {}
    for path, text in [(path, path.stem) for path in tables] + [
        (path, path.name) for path in folders_of_images(folder)
    ]:
        try:
            name = site_name(text)
        except UserError as error:
            raise UserError(f"{path} names a site, and {error}; rename it") from None
        if name in files:
            raise UserError(f"{folder} has two files for {name}: {files[name]} and {path}")
        files[name] = path
    if not files:
        raise UserError(f"{folder} has no files ending in {', '.join(SUFFIXES)}, and no folders of images")
    return dict(sorted(files.items()))


def common_columns(sites: Mapping[str, Rows]) -> tuple[str, ...] | None:
    """Return the column names that most of the sites' files have, or None where rows come without names.

    A file with the same columns in another order is then read by name, and one with other columns refuses.
    """
    if not all(isinstance(rows, Path) for rows in sites.values()):
        return None
    found: Counter[tuple[str, ...] | None] = Counter()
    for path in sites.values():
        assert isinstance(path, Path)
        with suppress(UserError):  # the site will say so itself
            found[column_names(File(path, str(path)))] += 1
    return found.most_common(1)[0][0] if found else None


def as_rows(name: str, value: Any) -> Rows:
    """Return a site's rows as given in Python: an array (n, d), a data frame or the path of a file; else raise UserError."""
    if isinstance(value, str | Path):
        return Path(value)
    if is_frame(value):
        return table_of(name, value)
    try:
        if np.iscomplexobj(value):
            raise TypeError
        # A masked cell is a missing one; asarray would bring back what lies under the mask.
        rows = (
            np.ma.filled(np.ma.asarray(value).astype(np.float64), np.nan)
            if np.ma.isMA(value)
            else np.asarray(value, np.float64)
        )
    except (TypeError, ValueError):
        raise UserError(f"{name}: expected a numeric array of shape (n, d)") from None
    if rows.ndim != 2:
        raise UserError(f"{name}: expected a table of shape (n, d), got shape {rows.shape}")
    return rows
