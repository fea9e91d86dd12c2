"""The folder of a study: a file with a line for each trial, as soon as it is over, and the tables, figure and page of all.

The file of trials is what makes a study resumable, and what is logged to MLflow: trials whose line says what they came to are not run again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.extras import installed
from flareclust._foundation.own_files import fallbacks, write_atomically
from flareclust.core.threads import side_by_side
from flareclust.evaluation.disclosure import DISCLOSURE
from flareclust.experiment.plotting.style import save
from flareclust.experiment.sweeps.compare import COMPARE, compare_page
from flareclust.experiment.sweeps.disclosure import sweep_disclosure
from flareclust.experiment.sweeps.figure import sweep_figure
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.experiment.sweeps.trials import Attempt, OnDone, Trial, TrialResult, TrialRun

_FOLDER = Path("flareclust-sweeps")
TRIALS = "trials.jsonl"

#: What each line has, at least.
_KEYS = {"key", "study", "final", "cost", "rounds", "error"}


#: The version of trials that were kept before their lines had one.
_UNKNOWN = "before 0.3"


class TrialFile:
    """The file of a study's trials, a line for each that is over; another file from when it cannot be written.

    Args:
        file: may be there already; trials that it has are not run again, unless they failed.
        study, trials: name of the study, and all of its trials.
        experiment: name of the MLflow experiment that they are logged to, or would be.

    Attributes:
        file: where the lines are.
        results: what the trials that are over came to, by their number.
        warning: where the lines are now, and why; empty where they are in the first file.

    Raises:
        UserError: the file cannot be read, or holds trials of another study; two trials are the same.
    """

    def __init__(self, file: Path, study: str, trials: Sequence[Trial], experiment: str) -> None:
        keys = trial_keys(study, trials)
        self.file, self.trials, self.warning = file, trials, ""
        self.about = {"name": study, "key": study_key(study, keys), "experiment": experiment}
        self.results = _read(file, {key: number for number, key in enumerate(keys)}, trials)
        self._lock = Lock()

    @property
    def missing(self) -> list[int]:
        """Return the numbers of the trials that are not over."""
        return [number for number in range(len(self.trials)) if number not in self.results]

    @property
    def done(self) -> list[TrialRun]:
        """Return what the trials that are over came to, in their order."""
        return [self.results[number] for number in sorted(self.results)]

    def run(self, attempt: Attempt, workers: int, on_done: OnDone) -> list[TrialRun]:
        """Run the missing trials in threads, each kept as soon as it is over; return what all came to, in their order.

        Ctrl-C lets the trials that are running come to their end and starts no other. `on_done` is called with each that was
        run, when the file has it.

        Raises:
            UserError: the file cannot be written.
            JobFailed: trials that are over can be kept nowhere.
        """
        self._write(self.file)  # a last line that was cut off is gone

        def run(number: int) -> None:
            done = attempt(self.trials[number])
            self.add(number, done)
            on_done(done)

        _run_in_threads(run, self.missing, workers)
        with self._lock:
            try:
                self._write(self.file)
            except UserError as error:
                self._move(str(error))
        return self.done

    def add(self, number: int, done: TrialRun) -> None:
        """Keep a trial that is over; raise JobFailed where it can be written nowhere."""
        with self._lock:
            self.results[number] = done
            try:
                with self.file.open("a", encoding="utf-8") as file:
                    file.write(_line(done, self.about))
            except OSError as error:
                self._move(f"{self.file} cannot be written: {error.strerror}")

    def _move(self, reason: str) -> None:
        for folder in fallbacks(self.file.absolute().parent.name):
            file = folder / self.file.name
            try:
                self._write(file)
            except UserError as error:
                reason += f"; {error}"
                continue
            self.warning = f"the trials are in {file}: {reason}; move the file back, and none is run again"
            self.file = file
            return
        raise JobFailed(f"the trials could not be kept: {reason}")

    def _write(self, file: Path) -> None:
        """Write all trials that are over, in their order, in place of what a file has, in one step."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(file, mode=None) as lines:
                lines.writelines(_line(one, self.about) for one in self.done)
        except OSError as error:
            raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _run_in_threads(run: Callable[[int], object], numbers: Sequence[int], workers: int) -> None:
    """Call `run` with every number; an exception, or Ctrl-C, lets those that are running end and starts no other."""

    def run_one(number: int) -> object:
        with side_by_side(workers):
            return run(number)

    executor = ThreadPoolExecutor(workers)
    try:
        for future in as_completed([executor.submit(run_one, number) for number in numbers]):
            future.result()
    finally:
        executor.shutdown(cancel_futures=True)


def trial_keys(study: str, trials: Sequence[Trial]) -> list[str]:
    """Return the keys of all trials, or raise UserError where two are the same."""
    keys: dict[str, str] = {}
    for trial in trials:
        key = trial.key(study)
        if key in keys:
            raise UserError(f"two trials of {study!r} are the same: {keys[key]} and {trial.name}")
        keys[key] = trial.name
    return list(keys)


def study_key(study: str, keys: Sequence[str]) -> str:
    """Return a fingerprint: the same for the same study with the same trials, also tomorrow."""
    return hashlib.sha256("\n".join([study, *keys]).encode()).hexdigest()[:32]


def study_folder(name: str, trials: Sequence[Trial]) -> Path:
    """Return where a study's files go unless the user says so: the same folder for the same study."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "sweep"
    return _FOLDER / f"{short}-{study_key(name, trial_keys(name, trials))[:8]}"


def _read(file: Path, numbers: Mapping[str, int], trials: Sequence[Trial]) -> dict[int, TrialRun]:
    """Return which of the trials a file has, by their number; failed ones are left out."""
    found: dict[int, TrialRun] = {}
    for line in _lines(file):
        if (number := numbers.get(line["key"])) is None:
            raise UserError(f"{file} holds trials of another study, or with other settings; choose another folder")
        if line["error"] is None:
            measured, version = TrialResult.from_json(line), line.get("version", _UNKNOWN)
            found[number] = TrialRun(trials[number], measured, resumed=True, version=version)
    return found


def all_trials(file: Path) -> tuple[dict[str, str], list[TrialRun]]:
    """Return a whole study as its file has it, failed trials among them: `name` and `experiment`, and the trials.

    Raises:
        UserError: the file cannot be read, or trials of the study are missing.
    """

    def measure() -> TrialResult:
        raise UserError("a trial that was read from a file cannot be run again")

    lines, done = _lines(file), []
    for line in lines:
        measured = TrialResult.from_json(line) if line["error"] is None else None
        trial = Trial(line["cell"], line["seed"], line["params"], measure)
        done.append(TrialRun(trial, measured, line["error"], resumed=True, version=line.get("version", _UNKNOWN)))
    about = lines[0]["study"] if lines else {}
    if not lines or study_key(about["name"], [one.trial.key(about["name"]) for one in done]) != about["key"]:
        raise UserError(f"{file} has {len(done)} trials and not all of its study; the same command runs the others")
    return about, done


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return what the file's lines hold; one that was still being written is left out."""
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        lines = [None]
    if not all(isinstance(line, dict) and line.keys() >= _KEYS and isinstance(line["study"], dict) for line in lines):
        raise UserError(f"{file} is not a file of trials; choose another folder")
    return lines


def _line(done: TrialRun, about: Mapping[str, str]) -> str:
    trial, measured = done.trial, done.measured or TrialResult({})
    what = {"key": trial.key(about["name"]), "study": dict(about), "cell": dict(trial.cell), "seed": trial.seed}
    ran = {"error": done.error, "version": done.version}
    return json.dumps({**what, "params": dict(trial.params), **measured.to_json(), **ran}) + "\n"


TABLE, CSV, FIGURE = "table.md", "table.csv", "figure.png"

#: What the folder of a sweep is made of.
FILES = (TRIALS, f"{TRIALS}.part", TABLE, CSV, COMPARE, DISCLOSURE, FIGURE)


def write_files(name: str, done: Sequence[TrialRun], folder: Path) -> list[Path]:
    """Write table.md, table.csv, compare.html, disclosure.json and figure.png (where a trial came to something); return their paths."""
    found = StudySummary.of(done)
    texts = {
        TABLE: f"# {name}\n\n{found.markdown()}{found.notes()}",
        CSV: found.comma_separated(),
        COMPARE: compare_page(name, found),
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    files = [folder / file for file in texts]
    if installed("plots") and any(cell.mean for cell in found.cells):
        files.append(save(sweep_figure(found.cells, title=name), folder / FIGURE))
    of_cells = [file.name for file in files if file.name != COMPARE]
    record = json.dumps(sweep_disclosure(done, of_cells, [COMPARE, TRIALS]), indent=2, allow_nan=False)
    (folder / DISCLOSURE).write_text(record + "\n", encoding="utf-8")
    return [*files, folder / DISCLOSURE]
