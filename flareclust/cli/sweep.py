"""The command `flareclust sweep`."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.interrupts import ENDING
from flareclust.cli.settings import AsJson, InExperiment


class Interrupted(FlareclustError):
    """Ctrl-C where something was kept; the text says how to go on. The command line exits with 130."""


def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep: a TOML file, see docs/sweeps.md.")],
    track: Annotated[bool, typer.Option(help="Log all trials to MLflow.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the files; by default flareclust-sweeps/...")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials side by side, in place of what the file says.")] = None,
    runner: Annotated[
        str | None, typer.Option(help="threads, processes, dask, ray, dask:ADDRESS or ray:ADDRESS; by default threads.")
    ] = None,
    in_experiment: InExperiment = None,
    as_json: AsJson = False,
) -> None:
    """Run a grid of experiments; the same command goes on where it was stopped."""
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.sweeps import sweep as sweep_settings
    from flareclust.experiment.sweeps.report import print_sweep, sweep_progress
    from flareclust.studies.sweeps import run_sweep

    if in_experiment is not None and not track:
        raise UserError("--experiment needs tracking; leave out --no-track")
    chosen = sweep_settings.read_sweep(file, workers, in_experiment, runner)
    with redirect_stdout(sys.stderr), sweep_progress(chosen.n_trials) as progress:
        with stop_signals() as received:
            try:
                done = run_sweep(chosen, track=track, out=out, on_done=progress)
            except BaseException:
                if not received:
                    raise
        if received:
            failed = f", {progress.failed} failed" if progress.failed else ""
            kept = f"{progress.n - progress.failed} of {chosen.n_trials} trials are done and kept{failed}"
            raise Interrupted(f"interrupted; {kept}, the same command does the others")
    if as_json:
        typer.echo(json.dumps(done.to_json(), allow_nan=False))
    else:
        places = [f"files: {done.folder.absolute()}"]
        places += terminal.run_lines(done.run_id, done.run_page) if done.run_id else []
        print_sweep(done.trials, [*places, *(f"warning: {warning}" for warning in done.warnings)])
    if done.failed:
        raise typer.Exit(1)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Give a list of the signals that ask the program to stop; each also raises KeyboardInterrupt.

    The exception alone does not show it: raised while pydantic or Prefect is at work, it comes out as another one.
    If it takes longer than a second, a line names the reason.
    """
    received: list[int] = []
    waiting = Timer(1, typer.echo, ("stopping; the trials that are running come to their end first",), {"err": True})
    waiting.daemon = True

    def stop(number: int, frame: object) -> None:
        if not received:
            waiting.start()
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in ENDING}
    try:
        yield received
    finally:
        waiting.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
