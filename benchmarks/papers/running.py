"""Running entries: one after the other, each with a runner of its own, and saving what they come to."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import flareclust
from benchmarks.papers.base import WORKERS, Entry, Report, Study, run_entry
from benchmarks.papers.report import commit_of_checkout, save
from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import fallbacks
from flareclust.experiment.sweeps import folder as study_files
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.experiment.sweeps.report import sweep_progress
from flareclust.flows.study import StudyRunner

#: Name of the MLflow experiment.
EXPERIMENT = "flareclust-papers"
#: What is said when an entry begins and ends.
Say = Callable[[str], None]
#: What is done with a saved report.
OnSaved = Callable[[Report, Path], None]


@dataclass(frozen=True)
class EntryResult:
    """An entry that is over: its report (without the figure) and where it is, or why there is none."""

    entry: Entry
    report: Report | None = None
    folder: Path | None = None
    error: str | None = None


@dataclass(frozen=True)
class FolderRunner:
    """Runs trials in threads and keeps them in a folder, so that an entry that was stopped goes on.

    Attributes:
        folder: of the entry.
        study: its name, see `study_name`.
        on_done: called with each trial that is over.
        files: the files that were used.
        say: shows a warning.
    """

    folder: Path
    study: str
    on_done: study_trials.OnDone = lambda done: None
    files: list[Path] = field(default_factory=list)
    say: Say = lambda text: print(text, file=sys.stderr, flush=True)

    def __call__(self, trials: Sequence[study_trials.Trial]) -> list[study_trials.TrialRun]:
        """Run all trials that the folder does not have."""
        runner = StudyRunner(self.study, EXPERIMENT, None, self.on_done, WORKERS, self.file_of(trials), track=False)
        done = runner(trials)
        for warning in runner.warnings:
            self.say(f"  warning: {warning}")
        return done

    def file_of(self, trials: Sequence[study_trials.Trial]) -> Path:
        """Return where these trials are kept."""
        key = study_files.study_key(self.study, study_files.trial_keys(self.study, trials))
        self.files.append(self.folder / f"trials-{key[:12]}.jsonl")
        return self.files[-1]

    def tidy(self) -> None:
        """Remove the trials of other code, other seeds, or other data."""
        for path in self.folder.glob("trials-*.jsonl"):
            if path not in self.files:
                path.unlink()


def run_papers(
    entries: Sequence[Entry],
    study: Study,
    out: Path,
    start: Callable[[FolderRunner], Callable[[study_trials.OnDone], study_trials.Runner]] | None = None,
    command: str = "",
    on_saved: OnSaved = lambda report, folder: None,
    say: Say = lambda text: print(text, file=sys.stderr, flush=True),
) -> list[EntryResult]:
    """Run entries and save their reports; one that cannot be run does not end the others.

    Args:
        entries: what to run.
        study: how; its runner is not used.
        out: folder of the reports.
        start: gives an entry's runner, which keeps trials as this `FolderRunner` does, for a callback of finished trials;
            None for `FolderRunner` itself.
        command: that made the reports, for the record.
        on_saved: called with each report, its figure included.
        say: shows a line.

    Raises:
        UserError: the only entry cannot be run.
    """
    ran = []
    commit = commit_of_checkout()  # now: it may move on while the entries run
    for number, entry in enumerate(entries, start=1):
        say(f"{entry.name} ({number} of {len(entries)}): {entry.title}")
        folder = FolderRunner(out / entry.name, study_name(entry, study), say=say)
        make = start(folder) if start else lambda on_done, own=folder: replace(own, on_done=on_done)
        try:
            report = run_entry(entry, replace(study, runner=_with_progress(make)))
            where = _saved(report, out, command, commit, say)
        except UserError as error:
            if len(entries) == 1:
                raise
            say(f"  cannot be run: {error}")
            ran.append(EntryResult(entry, error=str(error)))
            continue
        on_saved(report, where)
        folder.tidy()
        failed = f", {report.failed} runs failed" if report.failed else ""
        say(f"  {len(report.lines)} lines in {report.seconds:.0f} s{failed}")
        ran.append(EntryResult(entry, replace(report, figure=None), where))
    return ran


def _saved(report: Report, out: Path, command: str, commit: str | None, say: Say) -> Path:
    """Save a report; where its folder cannot be written any more, in another one that a warning names."""
    try:
        return save(report, out, command, commit)
    except UserError as error:
        for other in fallbacks("papers"):
            with suppress(UserError):
                where = save(report, other, command, commit)
                say(f"  warning: the report is in {where}: {error}")
                return where
        raise


def _with_progress(make: Callable[[study_trials.OnDone], study_trials.Runner]) -> study_trials.Runner:
    def run(trials: Sequence[study_trials.Trial]) -> list[study_trials.TrialRun]:
        with sweep_progress(len(trials)) as on_done:
            return make(on_done)(trials)

    return run


def study_name(entry: Entry, study: Study) -> str:
    """Return a name that is the same for the same entry, seeds, data and code: trials are found again by it."""
    parts = [entry.name, f"{study.seeds} seeds"] + (["quick"] if study.quick else [])
    digest = hashlib.sha256(code_digest().encode())
    if study.features is not None:
        digest.update(_content(study.features))
    return f"{', '.join(parts)}, code {digest.hexdigest()[:8]}"


def code_digest() -> str:
    """Return a fingerprint of the package's modules and of these: a result of other code is another result."""
    digest = hashlib.sha256()
    for root in (Path(flareclust.__file__).parent, Path(__file__).parent):
        for path in sorted(_modules(root)):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _modules(root: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(root, followlinks=True):
        yield from (Path(folder) / name for name in files if name.endswith(".py"))


def _content(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
