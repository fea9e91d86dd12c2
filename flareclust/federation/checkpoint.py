"""Checkpoints: the state of a federation between two exchanges, in a file from which another run goes on.

The server's state is one `Round`, and all random numbers follow from seed, round and site (`_foundation.seeding`), so a run
that goes on computes the same bits as one that was never interrupted. Sites keep no state between exchanges.

The file is a npz without pickle: the arrays of the round, and the rest as one JSON text.
"""

import json
import logging
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import make_folder, write_atomically
from flareclust._foundation.typing import Message
from flareclust.federation.server import ServerJob
from flareclust.protocol.columns import ColumnFacts, Columns
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import packed, unpacked

if TYPE_CHECKING:
    from flareclust.federation.aggregator import ClusteringAggregator

_log = logging.getLogger(__name__)

#: The file's name in the folder of a result, and while it is being written.
CHECKPOINT = "checkpoint.npz"
PART = CHECKPOINT + ".part"

#: So long does a server keep the checkpoint of a job without a result.
_KEPT_DAYS = 30

#: Name of the JSON text among the arrays, and how the names of the others begin.
_ABOUT, _TASK = "about", "task."

#: The other parts of a round that are kept.
_PARTS = ("state", "columns", "facts")

#: Changes with the form of the file.
_FORM = 2

#: What is raised for files that are damaged, or were not written by `write`.
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, EOFError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Progress:
    """What is known of a run's sites and costs between two exchanges; `Exchanges` has the same attributes.

    Attributes:
        sites: all sites of the job.
        active: those that are asked next.
        refused: why the others are left out.
        silent: sites that did not answer in time, which are not asked in the assessment.
        records: of the exchanges so far, as in rounds.jsonl.
        bytes_up, bytes_down: bytes of arrays so far.
        seconds_local, seconds_merge: as of `Outcome`, so far.
    """

    sites: list[str]
    active: list[str]
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    records: list[dict[str, object]] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds_local: float = 0.0
    seconds_merge: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """The state of a federation between two exchanges: the next round, and what is known of the sites."""

    round_: Round[Any]
    progress: Progress


#: Called with each new state.
OnCheckpoint = Callable[[Checkpoint], None]


@dataclass(frozen=True)
class CheckpointFile:
    """Where a run keeps its checkpoint.

    Attributes:
        path: of the file.
        resume: whether to go on from what is there.
        about: identity of the job (algorithm, k, seed, parameters, versions); a run resumes only from a checkpoint with the same identity.
    """

    path: Path
    resume: bool = False
    about: Mapping[str, object] = field(default_factory=dict)

    def of(self, about: Mapping[str, object]) -> "CheckpointFile":
        """Return this file with more about the job's identity."""
        return replace(self, about={**self.about, **about})

    def begin(self, aggregator: "ClusteringAggregator") -> Checkpoint | None:
        """Return the state to go on from; None for a run from the start. UserError as `read`."""
        return read(self.path, self.about, aggregator) if self.resume else None

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write a state in the place of the one before; a disk that is full costs the checkpoint, not the run."""
        try:
            write(self.path, checkpoint, self.about)
        except OSError as error:
            _log.warning("no checkpoint was written to %s (%s); the run goes on", self.path, error.strerror)

    def copy(self, file: Path) -> None:
        """Take over a checkpoint that the server of a simulator has written, if there is one and it is another one."""
        try:
            if not file.exists() or (self.path.exists() and self.path.stat().st_mtime_ns == file.stat().st_mtime_ns):
                return
            make_folder(self.path.parent)
            with file.open("rb") as source, write_atomically(self.path, "bytes") as out:
                shutil.copyfileobj(source, out)
                out.flush()
                about = os.fstat(source.fileno())
                os.utime(out.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
        except FileNotFoundError:
            return  # the result is complete by now
        except OSError as error:
            _log.warning("no checkpoint was written to %s (%s); the run goes on", self.path, error.strerror)


def about_job(
    algorithm: str, aggregator: "ClusteringAggregator", params: Mapping[str, object] | None, *, secure_sums: bool
) -> dict[str, object]:
    """Return what a job and the checkpoint that it goes on from must agree in."""
    about = {"algorithm": algorithm, "k": aggregator.params.k, "seed": aggregator.params.seed}
    messages = aggregator.version().partition("+")[2]
    return {**about, "params": dict(params or {}), "secure_sums": secure_sums, "messages": messages}


def check_resumable(algorithm: str, *, private: bool) -> None:
    """Raise UserError for an algorithm whose exchanges may not be asked for again."""
    if private:
        raise UserError(
            f"{algorithm} cannot be resumed: the sites would draw the noise of an exchange a second time, and pay for it from "
            "their budget; run it anew"
        )


def write(path: Path, checkpoint: Checkpoint, about: Mapping[str, object]) -> None:
    """Write a checkpoint, and what its job is of, in one step; the file is for its owner only, and on disk when this returns.

    Its folder is made if it is missing.
    """
    round_ = checkpoint.round_
    state = {"step": round_.step, "index": round_.index, "done": round_.done, "diagnostics": dict(round_.diagnostics)}
    state |= {"sites": round_.sites}
    text = json.dumps({"form": _FORM, "job": about, "round": state, "progress": asdict(checkpoint.progress)})
    arrays = {_TASK + name: value for name, value in round_.task.items()}
    for part in _PARTS:
        arrays |= packed(getattr(round_, part), f"{part}.")
    make_folder(path.parent)
    with write_atomically(path, "bytes") as file:
        np.savez(file, allow_pickle=False, **{_ABOUT: np.array(text)}, **arrays)


def remove_old(folder: Path, but: Path | None) -> None:
    """Remove the checkpoints in a folder that nobody has gone on from for `_KEPT_DAYS`, but for one that is in use.

    One that cannot be removed stays.
    """
    oldest = time.time() - _KEPT_DAYS * 24 * 3600
    for path in folder.glob("*.npz*"):
        with suppress(OSError):
            if path != but and path.stat().st_mtime < oldest:
                path.unlink()
                _log.info("%s was older than %d days and was removed", path, _KEPT_DAYS)


def read(path: Path, about: Mapping[str, object], aggregator: "ClusteringAggregator") -> Checkpoint:
    """Return the state that a checkpoint holds, for a job that is of `about` and has this aggregator.

    Raises:
        UserError: there is no such file, it is damaged, or it is of another job; the text names what differs.
    """
    if not path.exists():
        raise UserError(f"{path.parent} holds no {path.name}, so there is nothing to resume; run it from the start")
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        text = json.loads(str(arrays.pop(_ABOUT)))
        form, job, state = text["form"], dict(text["job"]), text["round"]
        differing, checkpoint = _differences(job, json.loads(json.dumps(about))), None
        if form == _FORM and not differing:
            checkpoint = Checkpoint(_round(state, arrays, ServerJob(aggregator)), Progress(**text["progress"]))
    except _DAMAGED as error:
        raise UserError(
            f"{path} is damaged or no checkpoint ({type(error).__name__}); run it from the start, with another folder"
        ) from error
    if differing:
        raise UserError(f"{path} is of another job: {differing}; give the settings of that job, or run from the start")
    if checkpoint is None:
        raise UserError(f"{path} has the form of another version of flareclust; run it from the start")
    return checkpoint


def _round(state: Mapping[str, object], arrays: Message, job: ServerJob) -> Round[Any]:
    """Return the round of a file; raise what is in `_DAMAGED` where it is none."""
    step, index, done, diagnostics = (state[name] for name in ("step", "index", "done", "diagnostics"))
    if not (isinstance(step, str) and type(index) is int and type(done) is bool and isinstance(diagnostics, dict)):
        raise ValueError("round")

    sites = state.get("sites")
    if isinstance(sites, list):
        sites = tuple(map(str, sites))
    elif sites is not None:
        raise ValueError("round")
    task = {name.removeprefix(_TASK): value for name, value in arrays.items() if name.startswith(_TASK)}
    kinds: tuple[type[Any], ...] = job.state_of(step), Columns, ColumnFacts
    own, columns, facts = (unpacked(kind, arrays, f"{part}.") for kind, part in zip(kinds, _PARTS, strict=True))
    return Round(task, done, diagnostics, own, step, index, sites, columns, facts)


def _differences(there: Mapping[str, object], here: Mapping[str, object]) -> str:
    """Return what two jobs differ in, in words; empty where they agree."""
    found = []
    for name in sorted(there.keys() | here.keys()):
        old, new = there.get(name), here.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += [_differences(old, new)] if old != new else []
        elif old != new:
            found.append(f"{name} is {_shown(old)} there and {_shown(new)} here")
    return ", ".join(found)


def _shown(value: object) -> str:
    return "not given" if value is None else json.dumps(value) if isinstance(value, dict | list) else str(value)
