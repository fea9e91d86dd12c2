"""What a POC is, and the file and the folder that say so."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require_posix
from flareclust._foundation.own_files import write_atomically
from flareclust.data.partition_specs import parse

_STATE = "poc.json"
DEFAULT = Path("poc_workspace") / "poc"

#: NVFlare puts the kits in <folder>/<project>/prod_00.
PROJECT = "federation"
KITS = Path(PROJECT) / "prod_00"
SERVER = "localhost"
LEAD = "lead@poc.org"
ADMIN = "admin@poc.org"

#: All that `up` makes in a POC's folder; nothing else in there is ever removed.
_UNFINISHED = f"{_STATE}.part"
_LOCK = ".lock"
_ENTRIES = frozenset({_STATE, _UNFINISHED, _LOCK, ".gitignore", "bin", "tmp", PROJECT})


@dataclass(frozen=True)
class Poc:
    """A POC as it was set up.

    Attributes:
        data: the data set's name, or the file or folder of the rows.
        rows: number of rows by site; None where a site brought its own file.
        schema: file with the schema by which the tables were read; None for tables of numbers.
    """

    folder: Path
    data: str
    partition: str
    n_sites: int
    seed: int
    port: int
    rows: Mapping[str, int | None]
    schema: str | None = None

    @property
    def own_tables(self) -> bool:
        """Return whether each site reads a table of its own by the schema."""
        return self.schema is not None and parse(self.partition).name == "none"

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the sites' names in order."""
        return tuple(self.rows)

    @property
    def kits(self) -> dict[str, Path]:
        """Return the kit of each site."""
        return {site: self.kit(site) for site in self.rows}

    @property
    def server_kit(self) -> Path:
        """Return the server's kit."""
        return self.kit(SERVER)

    @property
    def admin_kit(self) -> Path:
        """Return the lead's kit, which submits jobs."""
        return self.kit(LEAD)

    def kit(self, name: str) -> Path:
        """Return the kit of the server or a site."""
        return self.folder / KITS / name


def record_of(process: psutil.Process) -> dict[str, float]:
    """Return what distinguishes a process from a later one with its number."""
    return {"pid": process.pid, "created": process.create_time()}


def write(folder: Path, state: Mapping[str, object]) -> None:
    """Write `poc.json` as a whole."""
    with write_atomically(folder / _STATE, mode=None) as file:
        file.write(json.dumps(state, indent=2) + "\n")


def read(folder: Path) -> dict[str, Any]:
    """Return what `poc.json` says, nothing where it is damaged or missing."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        as_poc(folder, state)
        return {**state, "processes": dict(state["processes"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def as_poc(folder: Path, state: Mapping[str, Any]) -> Poc:
    """Return the POC that a state describes."""
    sites = {str(name): None if rows is None else int(rows) for name, rows in state["sites"].items()}
    n_sites, seed, port = (int(state[name]) for name in ("n_sites", "seed", "port"))
    return Poc(folder, str(state["data"]), str(state["partition"]), n_sites, seed, port, sites, state.get("schema"))


def known(folder: Path) -> Poc:
    """Return the POC in a folder, whether it is up or not.

    Raises:
        UserError: there is none, or its state cannot be read.
    """
    folder = folder.resolve()
    if not is_ours(folder):
        raise UserError(f"there is no POC in {folder}; start one: flareclust poc up --dir {folder}")
    state = read(folder)
    if not state:
        raise UserError(
            f"{folder / _STATE} is missing or damaged; end the POC: flareclust poc down --remove --dir {folder}"
        )
    return as_poc(folder, state)


def is_ours(folder: Path) -> bool:
    """Return whether `up` made this folder."""
    return (folder / _STATE).exists() or (folder / KITS).is_dir()


def may_be_used(folder: Path) -> bool:
    """Return whether a folder is missing, empty, or has only what `up` makes."""
    return not folder.exists() or (folder.is_dir() and {path.name for path in folder.iterdir()} <= _ENTRIES)


def being_set_up(folder: Path) -> bool:
    """Return whether another process is just making a POC there."""
    with suppress(psutil.Error, KeyError, TypeError):
        record = read(folder)["processes"]["up"]
        return bool(psutil.Process(record["pid"]).create_time() == record["created"])
    return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and keep every other `up` out of it.

    The lock is the system's: it ends with the process that holds it, however that ends.

    Raises:
        UserError: another process holds it, or the folder cannot be made or locked.
    """
    require_posix("a POC")
    import fcntl

    with _usable(folder):
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with _usable(folder):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Else it is that of a POC which was removed meanwhile, and locks nothing.
                valid = os.path.samestat(os.fstat(handle), os.stat(folder / _LOCK))
            except (BlockingIOError, FileNotFoundError):
                valid = False
        if not valid:
            raise UserError(f"another process is just using {folder} for a POC; try again, or say --dir FOLDER")
        yield
    finally:
        os.close(handle)


def clear(folder: Path) -> None:
    """Empty a locked folder, which only its owner can read; git ignores it, as the kits hold private keys.

    Raises:
        UserError: it cannot be emptied.
    """
    with _usable(folder):
        _delete(folder, _ENTRIES - {_LOCK})
        folder.chmod(0o700)
        (folder / ".gitignore").write_text("*\n")


def remove(folder: Path) -> None:
    """Delete what `up` made, and the folder if nothing else is in it."""
    _delete(folder, _ENTRIES)
    if not any(folder.iterdir()):
        folder.rmdir()


def _delete(folder: Path, names: frozenset[str]) -> None:
    for path in folder.iterdir():
        if path.name in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Raise UserError where the system does not let us use the folder."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror}; say --dir FOLDER") from None
