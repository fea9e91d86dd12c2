"""A study without MLflow: trials run in threads, each one a line of a file as soon as it is over.

The file is what makes a study resumable: trials whose line says what they came to are not run again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.experiment.trials import OnDone, Trial, TrialResult, TrialRun, attempt_any


@dataclass(frozen=True)
class FileRunner:
    """Runs trials and keeps them in a file, one JSON object per line.

    Ctrl-C lets the trials that are running come to their end and starts no other.

    Attributes:
        file: the file; trials that it has already are not run again, unless they failed.
        study: name of the study.
        workers: how many trials run side by side.
        on_done: called with each trial that is over.
    """

    file: Path
    study: str
    workers: int = 2
    on_done: OnDone = lambda done: None

    def __call__(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """Run all trials that the file does not have; in the end the file has them all, in their order.

        Raises:
            UserError: the file cannot be read or written, or holds trials of another study.
        """
        results = read_trials(self.file, self.study, trials)
        write_trials(self.file, self.study, list(results.values()))  # a last line that was cut off is gone
        for done in results.values():
            self.on_done(done)
        missing = [number for number in range(len(trials)) if number not in results]
        lock = Lock()

        def run(number: int) -> None:
            done = attempt_any(trials[number])
            with lock:
                results[number] = done
                with self.file.open("a", encoding="utf-8") as file:
                    file.write(_line(done, self.study))
            self.on_done(done)

        run_in_threads(run, missing, self.workers)
        in_order = [results[number] for number in range(len(trials))]
        write_trials(self.file, self.study, in_order)
        return in_order


def run_in_threads(run: Callable[[int], None], numbers: Sequence[int], workers: int) -> None:
    """Call `run` with every number; an exception, or Ctrl-C, lets those that are running end and starts no other."""
    executor = ThreadPoolExecutor(workers)
    try:
        for future in as_completed([executor.submit(run, number) for number in numbers]):
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


def read_trials(file: Path, study: str, trials: Sequence[Trial]) -> dict[int, TrialRun]:
    """Return which of the trials the file has, by their number; failed ones are left out.

    Raises:
        UserError: the file cannot be read, or has trials that are none of these.
    """
    numbers = {key: number for number, key in enumerate(trial_keys(study, trials))}
    found: dict[int, TrialRun] = {}
    for line in _lines(file):
        if (number := numbers.get(line["key"])) is None:
            raise UserError(f"{file} holds trials of another study, or with other settings; choose another folder")
        if line["error"] is None:
            measured = TrialResult(line["final"], line["cost"], line["rounds"])
            found[number] = TrialRun(trials[number], measured, resumed=True)
    return found


def write_trials(file: Path, study: str, done: Sequence[TrialRun]) -> None:
    """Write these trials in place of what the file has, in one step.

    Raises:
        UserError: the file cannot be written.
    """
    part = file.with_name(file.name + ".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(_line(one, study) for one in done), encoding="utf-8")
        os.replace(part, file)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return what the file's lines hold; one that was still being written is left out."""
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        lines = [None]
    if not all(isinstance(line, dict) and {"key", "final", "cost", "rounds", "error"} <= line.keys() for line in lines):
        raise UserError(f"{file} is not a file of trials; choose another folder")
    return lines


def _line(done: TrialRun, study: str) -> str:
    trial, measured = done.trial, done.measured or TrialResult({})
    about = {"key": trial.key(study), "cell": dict(trial.cell), "seed": trial.seed, "params": dict(trial.params)}
    came_to = {"final": measured.final, "cost": measured.cost, "rounds": measured.rounds, "error": done.error}
    return json.dumps({**about, **came_to}) + "\n"
