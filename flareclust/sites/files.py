"""Which files a site's configuration names: one, or those of a pattern, and none outside its root.

The operator chose the pattern, but not the names of the files that it matches, which may be those of patients. These
are marked in messages, so that `flareclust.data.file_formats.unmarked` can put the pattern in their place before a text
leaves the site.
"""

import fnmatch
import glob
import os
import re
import string
from collections.abc import Sequence
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust.data import file_formats
from flareclust.data.tables import File

#: How Spark and Dask call the parts of a table, what Spark leaves while it writes, and the logs of Delta Lake and Hudi.
_PART, _UNFINISHED, _LOGS = ".parquet", "_temporary", ("_delta_log", ".hoodie")

_SEPARATORS = frozenset("/\\\0")
_PATTERN = frozenset("*?[")

#: The characters that may stand at each place in the name of a job's labels file. NVFlare's job ids are UUIDs.
_LABELS_FILE = tuple(
    string.hexdigits.lower() if one == "x" else one for one in "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.csv"
)


def folder_of(path: Path) -> Path:
    """Return the folder that a path names: where its file is, or the part of a pattern that is the same for all files."""
    fixed = list(path.parts)
    if not os.path.exists(path):
        fixed = fixed[: next((i for i, part in enumerate(fixed) if _is_pattern(part)), len(fixed))]
    return Path(*fixed) if len(fixed) < len(path.parts) else path.parent


def place_of(path: Path) -> Path:
    """Return a path, or a pattern, with the links followed of all that it names: the same place has one name."""
    if not _matches_several(path):
        return path.resolve()
    fixed = folder_of(path)
    return fixed.resolve().joinpath(*path.parts[len(fixed.parts) :])


def matched(path: Path) -> list[Path]:
    """Return the file of a path, or the files that a pattern matches in the order of their names."""
    if not _matches_several(path):
        return [path]
    return sorted(Path(name) for name in glob.glob(str(path), recursive=True) if not name.endswith(os.sep))


def for_site(path: str, site: str) -> str:
    """Return a path with the site's name for `{site}`.

    Raises:
        UserError: the name would change which folders or files are meant.
    """
    if "{site}" in path and (site in ("", ".", "..") or set(site) & (_SEPARATORS | _PATTERN)):
        raise UserError("the site's name cannot stand in a path; name the file instead of {site}")
    return path.replace("{site}", site)


def find(path: Path, root: Path | None, kind: str | None) -> list[File]:
    """Return the file of a path, or the files that a pattern (`*`, `?`, `[...]`, `**`) matches in the order of their names.

    Of a folder with parquet files, these are the files (`_parts_of`); any other folder is one of images.

    Args:
        path: of a file or folder, or a pattern; a file that is called like a pattern is that file.
        root: folder under which every file must lie when links are followed; None for anywhere.
        kind: the format, None for that of the files' names.

    Raises:
        UserError: no file matches, or one lies elsewhere. Folders are not in the text.

    The names of files that a pattern matches, and those of parts, are marked in `place` and in the errors' texts.
    """
    within = None if root is None else root.resolve()
    if path.is_dir() and (parts := _parts_of(_inside(path, path.name, within))):
        return [_named_by_the_site(part, "parquet", within)._replace(part=True) for part in parts]
    if not _matches_several(path):
        place = path.name or str(path)  # that of the root of all folders is empty
        return [File(_inside(path, place, within), place, kind, within)]
    found = matched(path)
    if not found:
        raise UserError(f"{path.name}: no file matches")
    return [_named_by_the_site(file, kind or file.suffix.lower().removeprefix("."), within) for file in found]


def _named_by_the_site(file: Path, kind: str, root: Path | None) -> File:
    place = file_formats.marked(file.name)
    return File(_inside(file, place, root), place, kind, root)


def _parts_of(folder: Path) -> list[Path]:
    """Return the parquet files of a folder that Spark or Dask wrote, part 2 before part 10; none for other folders.

    Files and folders whose names begin with `.` or `_` are theirs: `_SUCCESS`, `_metadata`, checksums.

    Raises:
        UserError: the folder is no plain table: some parts are missing, out of date or of another format.
    """
    names = os.listdir(folder)
    visible = [name for name in names if not name.startswith((".", "_"))]
    parts = [folder / name for name in visible if name.endswith(_PART) and not (folder / name).is_dir()]
    inside = [name for name in visible if _is_partition(folder / name)]
    if not parts and not inside:
        return []
    place = folder.name
    if log := next((name for name in names if name in _LOGS), None):
        raise UserError(
            f"{place} is a table with a log ({log}), whose files also hold rows that were deleted; "
            "write the present rows to another folder as parquet"
        )
    if _UNFINISHED in names:
        raise UserError(f"{place} was not written to its end ({_UNFINISHED} is still in it); write it again")
    if inside:
        raise UserError(
            f"{place} has folders named after the values of a column, which the files in them lack; "
            "write it again without partitioning by columns"
        )
    if len(parts) < len(visible):
        raise UserError(
            f"{place} has other files or folders beside its parquet files; move them, or let the path be a pattern of "
            "the parquet files alone"
        )
    # Numbers in a name count as numbers.
    return sorted(
        parts, key=lambda file: [(int(x), "") if x.isdecimal() else (-1, x) for x in re.split(r"(\d+)", file.name)]
    )


def _is_partition(folder: Path) -> bool:
    """Return whether a folder is called like `year=2024` and has parquet files, or such a folder, in it."""
    if "=" not in folder.name or not folder.is_dir():
        return False
    return any(one.name.endswith(_PART) or _is_partition(one) for one in folder.iterdir())


def takes_labels(path: Path, labels: Path) -> bool:
    """Return whether a path is a pattern that matches a job's labels file in the folder `labels`, which may be missing."""
    if not _matches_several(path):
        return False
    fixed = folder_of(path)
    pattern, folder, start = path.parts[len(fixed.parts) :], labels.resolve(), fixed.resolve()
    return folder.is_relative_to(start) and _takes(pattern, folder.relative_to(start).parts)


def _takes(pattern: Sequence[str], folders: Sequence[str]) -> bool:
    """Return whether the parts of a pattern match a labels file in a folder within a folder and so on, as `glob` would."""
    *before, last = pattern
    read = {0}  # how many of the folders the parts so far may have matched
    for part in [*before, last] if last == "**" else before:
        if part == "**":
            read = _skipped(read, folders)
        else:
            shown = (at for at in read if at < len(folders) and (part[:1] == "." or folders[at][:1] != "."))
            read = {at + 1 for at in shown if fnmatch.fnmatch(folders[at], part)}
    return len(folders) in read and (last == "**" or _names_labels(last))


def _skipped(read: set[int], folders: Sequence[str]) -> set[int]:
    """Return which numbers of folders are reached from these over folders that are not hidden."""
    reached: set[int] = set()
    for at in sorted(read):
        while at not in reached:
            reached.add(at)
            if at < len(folders) and not folders[at].startswith("."):
                at += 1
    return reached


def _names_labels(part: str) -> bool:
    """Return whether a pattern of one name matches that of some labels file."""
    read = {0}  # how many characters of the name the tokens so far may have matched
    for token in re.findall(r"\[!?\]?[^\]]*\]|.", part, re.DOTALL):
        if token == "*":
            read = {end for start in read for end in range(start, len(_LABELS_FILE) + 1)}
        else:
            here = {at: "".join(_LABELS_FILE[at : at + 1]) for at in read}
            read = {at + 1 for at, known in here.items() if any(fnmatch.fnmatch(one, token) for one in known)}
    return len(_LABELS_FILE) in read


def _matches_several(path: Path) -> bool:
    return not os.path.exists(path) and any(map(_is_pattern, path.parts))


def _inside(file: Path, place: str, root: Path | None) -> Path:
    return file if root is None else file_formats.real_path(file, place, root, "name the file where it lies")


def _is_pattern(part: str) -> bool:
    return bool(set(part) & _PATTERN)
