"""`flareclust.sweep`: a grid of experiments, resumed where it was stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flareclust._foundation.extras import require
from flareclust._foundation.own_files import check_target
from flareclust.experiment.sweeps import folder as study_folders
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.experiment.sweeps.sweep import Sweep, parse_runner, read_sweep, trials
from flareclust.experiment.sweeps.trials import OnDone, TrialRun
from flareclust.flows.study import StudyRunner


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        name: of the sweep.
        trials: every trial, with its metrics or why it failed.
        folder: has trials.jsonl, table.md, table.csv, compare.html, disclosure.json and, with the extra `plots`, figure.png.
        files: these files.
        run_id: MLflow's parent run; None if not tracked.
        run_page: the address of its page, once MLflow's pages are started.
        warnings: what went wrong besides trials, a sentence each: what is not in MLflow, a folder that was full.
    """

    name: str
    trials: Sequence[TrialRun]
    folder: Path
    files: Sequence[Path]
    run_id: str | None
    warnings: Sequence[str] = ()
    run_page: str | None = None

    @property
    def failed(self) -> int:
        """Return how many trials failed."""
        return sum(one.measured is None for one in self.trials)

    def table(self) -> list[dict[str, Any]]:
        """Return a plain row per cell of the grid, with mean and standard deviation of every metric, as for a data frame."""
        return StudySummary.of(self.trials).values()

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, as `flareclust sweep --json` prints them."""
        run = {"files": list(map(str, self.files)), "run_id": self.run_id, "run_page": self.run_page}
        return {"name": self.name, **StudySummary.of(self.trials).to_json(), **run, "warnings": list(self.warnings)}

    def _repr_markdown_(self) -> str:
        return StudySummary.of(self.trials).markdown()


def sweep(
    study: str | Path | Mapping[str, Any],
    *,
    track: bool = False,
    out: str | Path | None = None,
    workers: int | None = None,
    runner: str | None = None,
    on_done: OnDone = lambda done: None,
) -> SweepResult:
    """Run a grid of experiments; the same call goes on where it was stopped.

    Args:
        study: a TOML file, or its keys as a mapping: `name`, `data`, `algorithms`, `seeds`, ... (docs/sweeps.md).
        track: whether to log all trials to MLflow, through a Prefect flow.
        out: folder for the files; by default one in `flareclust-sweeps`, the same for the same sweep.
        workers: trials side by side, in place of what the study says.
        runner: where they run, likewise: "threads", "processes", "dask" or "ray", the last two also with an address.
        on_done: called with each trial that is over.

    Raises:
        UserError: a key or value is wrong, or the folder holds something else. Trials that fail are counted, not raised.

    Example:
        >>> import flareclust
        >>> study = {"name": "iris", "data": "iris", "n_sites": 3, "algorithms": ["feca", "kfed"], "seeds": 5}
        >>> flareclust.sweep(study).table()[0].get("ari_mean")  # doctest: +SKIP
        0.62
    """
    if isinstance(study, Mapping):
        given = {"workers": workers, "runner": runner}
        chosen = Sweep(**{**study, **{name: value for name, value in given.items() if value is not None}})
    else:
        chosen = read_sweep(study, workers, runner=runner)
    return run_sweep(chosen, track=track, out=None if out is None else Path(out), on_done=on_done)


def run_sweep(chosen: Sweep, *, track: bool, out: Path | None, on_done: OnDone) -> SweepResult:
    """Run a sweep and write its files."""
    runner = parse_runner(chosen.runner)
    runner.require()
    todo = trials(chosen)
    path = (out or study_folders.study_folder(chosen.name, todo)) / study_folders.TRIALS
    check_target(path.parent, study_folders.FILES)
    for extra in ("tracking", "flows") if track else ():
        require(extra, "a sweep with MLflow runs (track=True; --no-track leaves them out)")
    study = StudyRunner(
        chosen.name,
        chosen.mlflow_experiment,
        on_done=on_done,
        workers=chosen.workers,
        file=path,
        runner=runner,
        track=track,
    )
    done, kept = study(todo), study.kept
    assert kept is not None
    folder = kept.file.parent
    files = [kept.file, *study_folders.write_files(chosen.name, done, folder)]
    return SweepResult(chosen.name, done, folder, files, study.run_id, study.warnings, study.run_page)
