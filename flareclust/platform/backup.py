"""A backup: what a machine of a federation cannot get again, in one archive, and its restore.

The archive is a tar.gz that other programs unpack, too. Its last member, the manifest, has the SHA-256, mode and time of each
file, the folders, the links, and the places that all of it belongs in. Hashes find damage, not intention: an archive is
as trustworthy as the place where it was kept.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import stat
import tarfile
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from gzip import BadGzipFile
from io import BufferedReader, BytesIO
from itertools import chain, count
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any

from flareclust._foundation.display import shown
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.own_files import create, make_folder, state_folder, write_atomically
from flareclust._foundation.version import __version__
from flareclust.privacy.dp.ledger import SQLITE, Ledger, is_ledger
from flareclust.sites.account import folders_of
from flareclust.sites.running import runs_in

_MANIFEST = "manifest.json"

#: Changes with what the manifest says.
_FORM = 1

#: Notes of processes that run, with which a kit does not start on another machine.
_OF_PROCESSES = frozenset({"pid.fl", "daemon_pid.fl", "shutdown.fl", "restart.fl"})

#: The folder in the state folder with the locks of runs.
_LOCKS = "running"

#: What SQLite keeps beside a store while it is in use; the copy that is taken needs none of it, and another store is damaged by it.
_BESIDE = ("-journal", "-wal", "-shm")

#: Logs, which grow at the end: their first bytes are a whole copy.
_LOG = re.compile(r".*\.log(\.\d+)?|(error_)?log(_fl)?\.(txt|json)(\.\d+)?")

#: So often a file is read that changes meanwhile, and seconds in between.
_TRIES, _PAUSE = 3, 0.2

#: What Python raises for archives that are damaged, or another program's.
_DAMAGED = (
    *(tarfile.TarError, BadGzipFile, EOFError, zlib.error),
    *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
)


@dataclass(frozen=True)
class _Manifest:
    """What an archive holds, by the names of its members, which begin with the number of their place.

    Attributes:
        made: when (UTC).
        places: what each number stands for; None for the state folder of the account that restores.
        files: SHA-256, mode, and time of the last change in nanoseconds.
        folders: modes.
        links: what they point to.
    """

    made: str
    places: dict[str, str | None]
    files: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    form: int = _FORM
    flareclust: str = __version__


def back_up(archive: Path, paths: Sequence[Path], *, state: bool = True) -> list[str]:
    """Write a backup, readable for this account only, in one step.

    Args:
        archive: the file.
        paths: folders and files, such as kits, results and stores. With a site's kit come the accounts that it has spent from.
        state: whether the state folder comes, too, where there is one.

    Returns:
        What is in it, a line for each place.

    Raises:
        UserError: something is missing, cannot be read, or changes while it is read; there is no archive then.
    """
    places, lines = _places(paths, state), []
    manifest = _Manifest(datetime.now(timezone.utc).isoformat(timespec="seconds"), {})
    if not places:
        raise UserError("nothing to back up: name the kit, the MLflow store and the results that are on this machine")
    if archive.is_dir():
        raise UserError(f"{archive} is a folder; name a file in it for the backup")
    if not archive.absolute().parent.is_dir():
        raise UserError(f"{archive.absolute().parent} is no folder; make it, or name another place for the backup")
    skipped = {archive.resolve(), archive.with_name(f"{archive.name}.part").resolve()}
    with suppress(RuntimeError):  # no home folder, so no state
        skipped.add(state_folder().resolve() / _LOCKS)
    with (
        _in_words("back up while no job runs, with the account that runs NVFlare, and with room for the archive"),
        TemporaryDirectory(prefix=f".{archive.name}.", dir=archive.absolute().parent) as scratch,
        write_atomically(archive, "bytes") as out,
        tarfile.open(fileobj=out, mode="w:gz") as packed,
    ):
        skipped.add(Path(scratch).resolve())
        for number, (place, own) in enumerate(places.items()):
            before = len(manifest.files)
            for path, about in _walk(place, skipped):
                manifest.places[str(number)] = None if own else str(place)  # so that one with nothing to keep is none
                name = str(PurePosixPath(str(number), *path.relative_to(place).parts))
                _add(packed, manifest, name, path, about, Path(scratch))
            lines.append(f"{place}: {len(manifest.files) - before} files")
        _pack(packed, _MANIFEST, BytesIO(json.dumps(asdict(manifest)).encode()), 0o600, time.time_ns())
    return lines


@contextmanager
def _in_words(advice: str) -> Iterator[None]:
    """Turn what the disk says into one sentence that ends with this advice."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or 'the disk'} cannot be used ({error.strerror}); {advice}") from None


def _places(paths: Sequence[Path], state: bool) -> dict[Path, bool]:
    """Return the folders and files that are backed up, without those in others, and which is the state folder."""
    wanted = dict.fromkeys((path.resolve() for path in paths), False)
    for path in tuple(wanted):
        if not path.exists():
            raise UserError(f"{path} is not there; name what is on this machine")
        wanted |= dict.fromkeys((one.resolve() for one in folders_of(path / "local") if one.exists()), False)
    with suppress(RuntimeError):  # no home folder, so no state
        own = state_folder().resolve()
        if state and own.is_dir() and {*os.listdir(own)} - {_LOCKS}:
            wanted[own] = True
    return {path: own for path, own in wanted.items() if not wanted.keys() & {*path.parents}}


def _walk(path: Path, skipped: set[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what is in a place, folders first; without what belongs to running processes, and without sockets."""
    about = path.lstat()
    kept = any(kind(about.st_mode) for kind in (stat.S_ISDIR, stat.S_ISREG, stat.S_ISLNK))
    beside = any(path.name.endswith(end) and _is_store(path.with_name(path.name[: -len(end)])) for end in _BESIDE)
    if not kept or path in skipped or path.name in _OF_PROCESSES or beside:
        return
    yield path, about
    if stat.S_ISDIR(about.st_mode):
        for name in sorted(os.listdir(path)):
            yield from _walk(path / name, skipped)


def _is_store(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def _add(
    packed: tarfile.TarFile, manifest: _Manifest, name: str, path: Path, about: os.stat_result, scratch: Path
) -> None:
    mode = stat.S_IMODE(about.st_mode)
    if stat.S_ISLNK(about.st_mode):
        manifest.links[name] = os.readlink(path)
    elif stat.S_ISDIR(about.st_mode):
        manifest.folders[name] = mode
    else:
        try:
            with _copied(path, scratch / "copy") as copy:
                digest = _digest(copy)
                _pack(packed, name, copy, mode, about.st_mtime_ns)
        except sqlite3.Error as error:
            raise UserError(
                f"{path} is in use for too long, or damaged ({error}); look at it, then back up again"
            ) from None
        manifest.files[name] = digest, mode, about.st_mtime_ns


def _copied(path: Path, copy: Path) -> BufferedReader:
    """Return an open copy of a file, which did not change while it was copied; of a SQLite store, its state at one time."""
    for attempt in range(_TRIES):
        time.sleep(_PAUSE * attempt)
        with path.open("rb") as source, create(copy, "bytes") as out:
            before = os.fstat(source.fileno())
            if source.read(len(SQLITE)) == SQLITE:
                access = "rw" if os.access(path, os.W_OK) else "ro"
                with (
                    closing(sqlite3.connect(f"{path.as_uri()}?mode={access}", uri=True, timeout=30)) as store,
                    closing(sqlite3.connect(copy)) as taken,
                ):
                    store.backup(taken)
                if is_ledger(copy):  # in the archive already, since other programs unpack it, too
                    _mark(own := Ledger(copy, must_exist=True), own)
                return copy.open("rb")
            source.seek(0)
            shutil.copyfileobj(source, out)
            after = os.stat(path)
        if (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns):
            return copy.open("rb")
        if _LOG.fullmatch(path.name):
            return copy.open("rb")
    raise UserError(f"{path} changes while it is read; back up while no job runs, or stop what writes it")


def _pack(packed: tarfile.TarFile, name: str, content: IO[bytes], mode: int, changed: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = content.seek(0, os.SEEK_END), mode, changed // 10**9
    content.seek(0)
    packed.addfile(member, content)


def _digest(file: IO[bytes]) -> str:
    """Return the SHA-256 of what a file holds from here on."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def restore(archive: Path, *, into: Path | None = None, overwrite: bool = False, dry_run: bool = False) -> list[str]:
    """Bring back what a backup holds: all of it is checked before anything is written, and put in place when all is on the disk.

    No job spends from a ledger that was restored until its operator has stated what was spent since the backup.

    Args:
        archive: the file.
        into: a folder under which all places lie, for a look; by default they are where they were.
        overwrite: whether what is in these places now is put aside, beside them.
        dry_run: check, and write nothing.

    Returns:
        What was done, a line for each place and ledger.

    Raises:
        UserError: the archive is damaged or none of ours, or a place is in use; nothing has changed then.
    """
    try:
        file = archive.open("rb")
    except OSError as error:
        raise UserError(f"{archive} cannot be read: {error.strerror}") from None
    with file:  # what is checked is what is unpacked, also where another backup takes its place meanwhile
        return _restore(file, into, overwrite, dry_run)


def _restore(archive: BufferedReader, into: Path | None, overwrite: bool, dry_run: bool) -> list[str]:
    manifest = _checked(archive)
    targets = {number: _target(place, into) for number, place in manifest.places.items()}
    every = list(targets.values())
    if nested := [one for one in every if every.count(one) > 1 or {*one.parents} & {*every}]:
        raise UserError(
            f"{nested[0]} would lie in another place of the backup on this machine; nothing was written. Restore with the account "
            "that has made the backup, or into another folder with --into"
        )
    lines = [f"{target}, from {manifest.made}" for target in targets.values()]
    filled = [path for target in targets.values() for path in _in_the_way(target)]
    if filled and not overwrite:
        raise UserError(
            f"{', '.join(map(str, filled))} not empty; nothing was written. Look at what is there, then put it aside with --overwrite, "
            "or restore into another folder with --into"
        )
    for target in targets.values():
        if runs_in(target):
            raise UserError(f"a process of a kit runs here in {target}; stop it, then restore")
    if dry_run:
        return [f"would restore {line}" for line in lines]
    with _in_words("what was there is as it was"), ExitStack() as undo:
        staged = {number: _staged(target, undo) for number, target in targets.items()}
        ledgers = _unpack(archive, manifest, staged, targets)
        for number, target in targets.items():
            put_aside = _name_aside(target)
            for path in _in_the_way(target):
                aside = target.with_name(f"{put_aside}{path.name.removeprefix(target.name)}")
                os.rename(path, aside)
                undo.callback(os.rename, aside, path)
                lines.append(f"what was there is in {aside}")
            os.rename(staged[number], target)
            undo.callback(os.rename, target, staged[number])
        undo.pop_all()
    return [f"restored {line}" if not line.startswith("what") else line for line in lines] + [
        f"no job spends from {targets[name.partition('/')[0]] / name.partition('/')[2]} until you state what was spent since: "
        "flareclust site budget KIT --spent-since"
        for name in ledgers
    ]


def _target(place: str | None, into: Path | None) -> Path:
    """Return where a place is restored."""
    try:
        path = state_folder() if place is None else Path(place)
    except RuntimeError:
        raise UserError(
            "this account has no home folder for the state in the backup; name a place in XDG_STATE_HOME"
        ) from None
    return path if into is None else into.absolute() / path.relative_to(path.anchor)


def _in_the_way(target: Path) -> list[Path]:
    """Return what is in a place, and what SQLite has left there of another store, with which it would change the restored one."""
    empty = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
    beside = [path for end in _BESIDE if (path := target.with_name(f"{target.name}{end}")).is_file()]
    return [target, *beside] if os.path.lexists(target) and not empty else beside


def _name_aside(target: Path) -> str:
    """Return the name that what is in a place gets, which nothing has yet, also where another restore ran in this second."""
    now = f"{target.name}.before-{datetime.now():%Y%m%d-%H%M%S}"
    names = chain([now], (f"{now}-{number}" for number in count(2)))
    return next(one for one in names if not any(os.path.lexists(target.with_name(one + end)) for end in ("", *_BESIDE)))


def _staged(target: Path, undo: ExitStack) -> Path:
    """Return where a place is unpacked before it is put in place: beside it, on the same disk; it goes where that fails."""
    make_folder(target.parent)
    path = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    undo.callback(lambda: path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True))
    return path


def _checked(archive: BufferedReader) -> _Manifest:
    """Return the manifest of an archive, whose members are all as it says."""
    try:
        found: dict[str, str] = {}
        about: dict[str, Any] = {}
        for name, content in _members(archive):
            if name == _MANIFEST:
                about = json.load(content)
            elif found.setdefault(name, digest := _digest(content)) != digest:
                raise ValueError(name)
        form, version = about["form"], about["flareclust"]
        if form != _FORM:
            raise UserError(
                f"{archive.name} is a backup of another version of flareclust ({shown(str(version))}); restore it with that one"
            )
        files = {name: (str(digest), int(mode) & 0o777, int(at)) for name, (digest, mode, at) in about["files"].items()}
        folders = {name: int(mode) & 0o777 for name, mode in about["folders"].items()}
        links = {name: str(link) for name, link in about["links"].items()}
        manifest = _Manifest(str(about["made"]), dict(about["places"]), files, folders, links)
        names = [*manifest.files, *manifest.folders, *manifest.links]
        inside = all(_is_inside(name, manifest) for name in names) and len(names) == len({*names})
        absolute = all(place is None or _is_place(place) for place in manifest.places.values())
        if not inside or not absolute or found != {name: entry[0] for name, entry in manifest.files.items()}:
            raise ValueError("the manifest")
        return manifest
    except UserError:
        raise
    except _DAMAGED:
        raise UserError(
            f"{archive.name} is damaged, or is no backup of flareclust; nothing was written. Take another copy of it, or an earlier one"
        ) from None
    except OSError as error:
        raise UserError(f"{archive.name} cannot be read: {error.strerror}") from None


def _members(archive: BufferedReader) -> Iterator[tuple[str, IO[bytes]]]:
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:gz") as packed:
        for member in packed:
            content = packed.extractfile(member) if member.isreg() else None
            if content is None:
                raise ValueError(member.name)
            yield member.name, content


def _is_place(place: str) -> bool:
    """Return whether a text is the full path of a file or folder, without any that leads back up."""
    path = Path(place)
    return path.is_absolute() and path.name != "" and ".." not in path.parts and "\0" not in place


def _is_inside(name: str, manifest: _Manifest) -> bool:
    """Return whether a name lies in a place, and only in folders of the backup, so that nothing is written through a link."""
    path = PurePosixPath(name)
    plain = str(path) == name and ".." not in path.parts and "\0" not in name
    return plain and path.parts[0] in manifest.places and (len(path.parts) == 1 or str(path.parent) in manifest.folders)


def _mark(ledger: Ledger, before: Ledger) -> None:
    """Have no job spend from the copy of a ledger, which says no less than the same one does in its place before.

    Raises UserError where that cannot be written, on a full disk for instance.
    """
    try:
        own, least = ledger.id, 0.0
    except Refusal:  # one that cannot be read refuses by itself
        return
    with suppress(Refusal):  # there is none, or it cannot be read
        least = before.spent().total if before.id == own else 0.0
    try:
        ledger.state([], least, "in the ledger that was put aside")
        ledger.mark_restored()
    except Refusal as reason:
        raise UserError(f"the backup {reason}; what was there is as it was") from None


def _unpack(
    archive: BufferedReader, manifest: _Manifest, staged: dict[str, Path], targets: dict[str, Path]
) -> list[str]:
    """Write what an archive holds to these places; return the ledgers among the files, from which nobody spends any more."""

    def place(name: str, under: dict[str, Path] = staged) -> Path:
        number, _, rest = name.partition("/")
        return under[number] / rest if rest else under[number]

    ledgers = []
    for name in sorted(manifest.folders):
        place(name).mkdir(mode=0o700)
    for name, content in _members(archive):
        if name == _MANIFEST:
            continue
        _digest, mode, changed = manifest.files[name]
        with create(place(name), "bytes") as out:
            shutil.copyfileobj(content, out)
            out.flush()
            os.fsync(out.fileno())
        if is_ledger(place(name)):
            _mark(Ledger(place(name)), Ledger(place(name, targets), must_exist=True))
            ledgers.append(name)
        place(name).chmod(mode)
        os.utime(place(name), ns=(changed, changed))
    for name, link in manifest.links.items():
        os.symlink(link, place(name))
    for name in sorted(manifest.folders, reverse=True):
        place(name).chmod(manifest.folders[name])
    return ledgers
