"""Files and folders that only the account which made them can read: labels, rows, pictures of rows, ledgers."""

import os
from pathlib import Path
from typing import TextIO


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for this account only; those that are there stay as they are."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def create(path: Path) -> TextIO:
    """Open a new text file for writing, with the mode 0600 from the first byte; an older file of that name is removed."""
    path.unlink(missing_ok=True)  # an older file would keep its own mode, and a link would be followed
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    return os.fdopen(opened, "w", encoding="utf-8", newline="")


def close_files(folder: Path) -> None:
    """Make the files that lie in a folder readable for their owner only, and the folder as well."""
    folder.chmod(0o700)
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
