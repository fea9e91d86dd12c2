"""Other versions of flareclust, each in a folder for the PYTHONPATH of a host."""

import shutil
import zipfile
from pathlib import Path

from flareclust._foundation.version import REVISION, __version__

#: The checkout that this file belongs to.
HERE = Path(__file__).resolve().parents[3]


def unpacked(source: Path, folder: Path) -> Path:
    """Put what a wheel or a checkout holds into a new folder and return this.

    Compiled kernels of a checkout come along, which are valid as long as the times of the sources are the same.
    """
    if source.is_dir():
        shutil.copytree(source / "flareclust", folder / "flareclust")
    else:
        with zipfile.ZipFile(source) as wheel:
            wheel.extractall(folder)
    return folder


def renumbered(folder: Path, number: str, revision: int = REVISION) -> Path:
    """Put this flareclust into a new folder under another number and return the folder; its messages are the same with the same revision."""
    file = unpacked(HERE, folder) / "flareclust" / "_foundation" / "version.py"
    text = file.read_text(encoding="utf-8")
    for name, before, after in (("__version__", f'"{__version__}"', f'"{number}"'), ("REVISION", REVISION, revision)):
        assert f"\n{name} = {before}\n" in text
        text = text.replace(f"\n{name} = {before}\n", f"\n{name} = {after}\n")
    file.write_text(text, encoding="utf-8")
    return folder
