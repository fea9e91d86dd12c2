"""The rows that sites bring along: files in a folder, folders of images, arrays, data frames; and what these have in common."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import site_name
from flareclust.data import image_files
from flareclust.data.file_formats import spreadsheet_advice
from flareclust.data.frames import is_frame, table_of
from flareclust.data.tables import SUFFIXES, File, Numbers, Rows
from flareclust.protocol import registry


def site_files(folder: Path) -> dict[str, Rows]:
    """Return the table files and folders of images in a folder by site, whose name is that of the file without its ending, or of
    the folder.

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
    named = [(path, path.stem) for path in tables] + [(path, path.name) for path in _folders_of_images(folder)]
    for path, text in named:
        try:
            name = site_name(text)
        except UserError as error:
            raise UserError(f"{path} names a site, and {error}; rename it") from None
        if name in files:
            raise UserError(f"{folder} has two files for {name}: {files[name]} and {path}")
        files[name] = path
    if not files:
        advice = next(filter(None, map(spreadsheet_advice, folder.iterdir())), "")
        raise UserError(f"{folder} has no files ending in {', '.join(SUFFIXES)}, and no folders of images{advice}")
    return dict(sorted(files.items()))


def common_columns(sites: Mapping[str, Rows]) -> tuple[str, ...] | None:
    """Return the column names that most of the sites' files have, or None where rows come without names.

    A file with the same columns in another order is then read by name, and one with other columns refuses.
    """
    paths = [path for path in sites.values() if isinstance(path, Path)]
    if len(paths) < len(sites):
        return None
    found: Counter[tuple[str, ...] | None] = Counter()
    for path in paths:
        with suppress(UserError):  # the site will say so itself
            found[Numbers().columns_of(File(path, str(path)))] += 1
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
        if np.ma.isMA(value):  # a masked cell is a missing one; asarray would bring back what lies under the mask
            value = np.ma.filled(np.ma.asarray(value).astype(np.float64), np.nan)
        rows = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: expected a numeric array of shape (n, d)") from None
    if rows.ndim != 2:
        raise UserError(f"{name}: expected a table of shape (n, d), got shape {rows.shape}")
    return rows


def _folders_of_images(folder: Path) -> list[Path]:
    """Return the folders in a folder that have images in them, in the order of their names.

    It raises UserError where some folders have images and others none, or they lie in the folder itself: whose are they?
    """
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    folders = [path for path in inside if path.is_dir()]
    found = [path for path in folders if image_files.has_images(path)]
    if found and len(found) < len(folders):
        empty = next(path for path in folders if path not in found)
        raise UserError(
            f"{empty} has no images ({', '.join(image_files.IMAGE_SUFFIXES)}), as the folders of other sites have"
        )
    if not found and any(path.suffix.lower() in image_files.IMAGE_SUFFIXES for path in inside):
        raise UserError(
            f"{folder} has images, but no folder per site; put the images of each site into a folder with its name, such as "
            f"{folder / 'site-1'}"
        )
    return found


def ids_of_images(sites: Mapping[str, Rows]) -> dict[str, list[str]]:
    """Return the ids of the rows of all sites where they are folders of images, else nothing.

    A folder that cannot be listed has none; its site says so itself.
    """
    folders = {site: rows for site, rows in sites.items() if isinstance(rows, Path) and rows.is_dir()}
    if len(folders) < len(sites):
        return {}
    ids: dict[str, list[str]] = {site: [] for site in folders}
    for site, folder in folders.items():
        with suppress(UserError):
            ids[site] = image_files.image_ids(folder)
    return ids


def image_settings(algorithm: str, sites: Mapping[str, Rows]) -> dict[str, str]:
    """Return the `image` of an algorithm that has this parameter: the shape of the images in the sites' folders.

    A square image's shape follows from the number of columns, others' do not: a row of 48 x 64 x 3 numbers could be one of
    96 x 96. Empty where there are no folders; a site that cannot be read says so itself.

    Raises:
        UserError: sites have images of different shapes.
    """
    if "image" not in registry.get(algorithm).parameters():
        return {}
    shapes: dict[str, image_files.Shape] = {}
    for site, rows in sites.items():
        if isinstance(rows, Path) and rows.is_dir():
            with suppress(UserError):
                shapes[site] = image_files.first_shape(rows)
    if not shapes:
        return {}
    first, shape = next(iter(shapes.items()))
    for site, own in shapes.items():
        if own != shape:
            raise UserError(
                f"{site} has images of {image_files.named(own)} where {first} has {image_files.named(shape)} (height x width x channels): images of "
                "all sites must have one size, and be all grey or all in colour; resize or convert them first"
            )
    return {"image": image_files.named(shape)}
