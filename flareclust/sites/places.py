"""Where a site's rows and labels are, looked at for what goes wrong later: labels among rows, patterns that walk the disk."""

import fnmatch
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust.data.labels import LABELS_FILE
from flareclust.sites.files import folder_of
from flareclust.sites.rows import SiteData

#: Files and folders under the one that a pattern begins in, beyond which every job takes long to find its rows.
MANY = 100_000


def check_places(data: SiteData, kit: Path) -> list[str]:
    """Return what is odd about where rows and labels are, a sentence each; look at this before the files are looked for.

    Raises:
        UserError: the pattern looks through the whole disk.
    """
    begin = folder_of(data.path).resolve()
    return [*_labels(data, begin, kit), *(_walk(begin) if "**" in data.path.parts else [])]


def _labels(data: SiteData, begin: Path, kit: Path) -> Iterator[str]:
    if data.labels is not None:
        if data.labels.resolve() == begin:
            yield f"labels are written into the folder of the rows, {begin}: name another folder as `labels`, or a later pattern reads labels as rows"
        return
    last = data.path.name
    if "**" in data.path.parts and kit.resolve().is_relative_to(begin) and fnmatch.fnmatch(LABELS_FILE, last):
        yield f"the pattern also looks through this kit, where the {LABELS_FILE} of each job would be read as rows: name the folder with the rows"


def _walk(begin: Path) -> Iterator[str]:
    if begin == Path(begin.anchor):
        raise UserError(
            f"the pattern looks through the whole disk ({begin}): begin it with the folder that has the rows"
        )
    home = _home()
    if home is not None and home.is_relative_to(begin):
        yield f"the pattern looks through a home folder ({begin}): begin it with the folder that has the rows"
    elif _has_many(begin):
        yield f"the pattern looks through more than {MANY:,} files and folders of {begin}: begin it further down, or every job takes long to find its rows"


def _home() -> Path | None:
    with suppress(RuntimeError, OSError):
        return Path.home().resolve()
    return None


def _has_many(begin: Path) -> bool:
    seen = 0
    for _, folders, files in os.walk(begin):
        seen += len(folders) + len(files)
        if seen > MANY:
            return True
    return False
