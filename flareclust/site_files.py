"""Which files a site's configuration names: one, or those of a pattern, and none outside its root."""

import glob
import os
from pathlib import Path

from flareclust.errors import UserError
from flareclust.tables import File

_SEPARATORS = frozenset("/\\\0")
_PATTERN = frozenset("*?[")


def folder_of(path: Path) -> Path:
    """Return the folder that a path names: where its file is, or the part of a pattern that is the same for all files."""
    fixed = list(path.parts)
    if not os.path.exists(path):
        fixed = fixed[: next((i for i, part in enumerate(fixed) if _is_pattern(part)), len(fixed))]
    return Path(*fixed) if len(fixed) < len(path.parts) else path.parent


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
    """
    found = [path]
    if not os.path.exists(path) and any(map(_is_pattern, path.parts)):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if not name.endswith(os.sep))
        if not found:
            raise UserError(f"{path.name}: no file matches")
    if root is None:
        return [File(file, file.name, kind) for file in found]
    within = root.resolve()
    return [File(_inside(file, within), file.name, kind) for file in found]


def _inside(file: Path, root: Path) -> Path:
    """Return a file's own path, without links, which is what is then opened."""
    try:
        real = file.resolve()
    except (OSError, RuntimeError):  # a ring of links
        raise UserError(f"{file.name} cannot be found; its links lead nowhere") from None
    if not real.is_relative_to(root):
        raise UserError(
            f"{file.name} is not under the root of the site's configuration once links are followed; name the file "
            "where it lies, or set `root`"
        )
    return real


def _is_pattern(part: str) -> bool:
    return bool(set(part) & _PATTERN)
