"""Which files a site's configuration names: one, or those of a pattern, and none outside its root.

The operator chose the pattern, but not the names of the files that it matches, which may be those of patients. These
are marked in messages, so that `flareclust.data.file_names.unmarked` can put the pattern in their place before a text
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
from flareclust.data.file_names import marked
from flareclust.data.tables import File

_SEPARATORS = frozenset("/\\\0")
_PATTERN = frozenset("*?[")

#: The characters that may stand at each place in the name of a job's labels file. NVFlare's job ids are UUIDs.
_LABELS_FILE = tuple(
    string.hexdigits.lower() if character == "x" else character
    for character in "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.csv"
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

    Args:
        path: of a file, or a pattern; a file that is called like a pattern is that file.
        root: folder under which every file must lie when links are followed; None for anywhere.
        kind: the format, None for that of the files' names.

    Raises:
        UserError: no file matches, or one lies elsewhere. Folders are not in the text.

    The names of files that a pattern matches are marked in `place` and in the errors' texts.
    """
    within = None if root is None else root.resolve()
    if not _matches_several(path):
        place = path.name or str(path)  # that of the root of all folders is empty
        return [File(_inside(path, place, within), place, kind, within)]
    found = matched(path)
    if not found:
        raise UserError(f"{path.name}: no file matches")
    files = []
    for file in found:
        place = marked(file.name)
        files.append(File(_inside(file, place, within), place, kind or file.suffix.lower().removeprefix("."), within))
    return files


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
            read = {at + 1 for at in read if at < len(folders) and _matches(folders[at], part)}
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


def _matches(folder: str, part: str) -> bool:
    return (part.startswith(".") or not folder.startswith(".")) and fnmatch.fnmatch(folder, part)


def _names_labels(part: str) -> bool:
    """Return whether a pattern of one name matches that of some labels file."""
    read = {0}  # how many characters of the name the tokens so far may have matched
    for token in re.findall(r"\[!?\]?[^\]]*\]|.", part, re.DOTALL):
        if token == "*":
            read = {end for start in read for end in range(start, len(_LABELS_FILE) + 1)}
        else:
            read = {
                at + 1 for at in read if any(fnmatch.fnmatch(one, token) for one in "".join(_LABELS_FILE[at : at + 1]))
            }
    return len(_LABELS_FILE) in read


def _matches_several(path: Path) -> bool:
    return not os.path.exists(path) and any(map(_is_pattern, path.parts))


def _inside(file: Path, place: str, root: Path | None) -> Path:
    """Return a file's own path, without links, which is what is then opened."""
    if root is None:
        return file
    try:
        real = file.resolve()
    except (OSError, RuntimeError):  # a ring of links
        raise UserError(f"{place} cannot be found; its links lead nowhere") from None
    if not real.is_relative_to(root):
        raise UserError(
            f"{place} is not under the root of the site's configuration once links are followed; name the file "
            "where it lies, or set `root`"
        )
    return real


def _is_pattern(part: str) -> bool:
    return bool(set(part) & _PATTERN)
