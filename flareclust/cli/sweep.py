"""The command `flareclust sweep`."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated

import typer

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.extras import require

if TYPE_CHECKING:
    from flareclust.experiment.sweep import Sweep
    from flareclust.experiment.trials import OnDone, Trial, TrialRun

FOLDER = Path("flareclust-sweeps")
TRIALS = "trials.jsonl"


class Interrupted(FlareclustError):
    """Ctrl-C where something was kept; the text says how to go on. The command line exits with 130."""


def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep: a TOML file, see docs/sweeps.md.")],
    track: Annotated[bool, typer.Option(help="Log all trials to MLflow.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the files; by default flareclust-sweeps/...")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials side by side, in place of what the file says.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")] = False,
) -> None:
    """Run a grid of experiments; the same command goes on where it was stopped."""
    from flareclust.experiment import sweep_report as report_sweep
    from flareclust.experiment.sweep import read_sweep, trials
    from flareclust.experiment.trials_file import read_trials, write_trials

    chosen = read_sweep(file, workers)
    todo = trials(chosen)
    folder = out or default_folder(chosen.name, todo)
    check_folder(folder)
    read_trials(folder / TRIALS, chosen.name, todo)  # refuses those of another sweep
    with redirect_stdout(sys.stderr), report_sweep.sweep_progress(len(todo)) as progress:
        with stop_signals() as received:
            try:
                done, run_id = _run(chosen, todo, folder / TRIALS, progress, track=track)
            except BaseException:
                if not received:
                    raise
        if received:
            failed = f", {progress.failed} failed" if progress.failed else ""
            raise Interrupted(
                f"interrupted; {progress.n - progress.failed} of {len(todo)} trials are done and kept{failed}, "
                "the same command does the others"
            )
    write_trials(folder / TRIALS, chosen.name, done)
    files = [folder / TRIALS, *report_sweep.write_files(chosen.name, done, folder)]
    if as_json:
        about = {"name": chosen.name, **report_sweep.summary(done), "files": list(map(str, files)), "run_id": run_id}
        typer.echo(json.dumps(about, allow_nan=False))
    else:
        places = [f"files: {folder}"] + ([f"MLflow run {run_id}; see it with: flareclust ui"] if run_id else [])
        report_sweep.print_sweep(done, places)
    if any(one.measured is None for one in done):
        raise typer.Exit(1)


def default_folder(name: str, trials: "Sequence[Trial]") -> Path:
    """Return where a sweep's files go unless the user says so: the same folder for the same sweep."""
    from flareclust.experiment.trials_file import study_key, trial_keys

    short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "sweep"
    return FOLDER / f"{short}-{study_key(name, trial_keys(name, trials))[:8]}"


def check_folder(folder: Path) -> None:
    """Raise UserError unless a sweep's files may be written to `folder`: new, empty, or of an earlier sweep."""
    from flareclust.experiment.sweep_report import CSV, FIGURE, TABLE

    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f"{existing} is not a folder that can be written to; choose another one with --out")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if others := names - {TRIALS, f"{TRIALS}.part", TABLE, CSV, FIGURE}:
        raise UserError(f"{folder} holds other files than a sweep's, such as {min(others)}; choose a new folder")


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Give a list of the signals that ask the program to stop; each also raises KeyboardInterrupt.

    The exception alone does not tell: raised while pydantic or Prefect is at work, it comes out as another one.
    Whoever has to wait for a second is told for what.
    """
    received: list[int] = []
    waiting = Timer(1, typer.echo, ("stopping; the trials that are running come to their end first",), {"err": True})
    waiting.daemon = True

    def stop(number: int, frame: object) -> None:
        if not received:
            waiting.start()
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield received
    finally:
        waiting.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(
    sweep: "Sweep", trials: "Sequence[Trial]", file: Path, on_done: "OnDone", *, track: bool
) -> "tuple[list[TrialRun], str | None]":
    """Run the trials; return what they came to, and MLflow's parent run."""
    if not track:
        from flareclust.experiment.trials_file import FileRunner

        return FileRunner(file, sweep.name, sweep.workers, on_done)(trials), None
    for extra in ("tracking", "flows"):
        require(extra, "a sweep with MLflow runs (--no-track leaves them out)")
    from flareclust.flows.sweep import tracked_runner

    runner = tracked_runner(sweep.name, sweep.mlflow_experiment, on_done=on_done, workers=sweep.workers)
    return runner(trials), runner.run_id
