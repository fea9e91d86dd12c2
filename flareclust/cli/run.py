"""The command `flareclust run`."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.settings import AlgorithmName, answer, no_data, parse_settings, takes
from flareclust.cli.sweep import Interrupted

if TYPE_CHECKING:
    from flareclust.experiment.config import Experiment
    from flareclust.experiment.results.result import Result

#: The engines whose sites are made here, from the data of the run.
_OWN_DATA = ("inprocess", "devices", "simulator")


@takes("run")
def run(
    *,
    algorithm: AlgorithmName,
    engine: str,
    params: list[str],
    register_as: str | None,
    mlflow_experiment: str | None,
    dry_run: bool,
    out: Path | None,
    overwrite: bool,
    resume: str | None,
    track: bool,
    as_json: bool,
    threads: int | None,
    **asked: Any,
) -> None:
    """Cluster data that are spread over sites, and say how well it went."""
    from flareclust.experiment.config import make_experiment
    from flareclust.experiment.reports import terminal
    from flareclust.protocol import registry

    if threads is not None:
        from flareclust.core.threads import set_threads

        set_threads(threads)
    for option, value in (("--register", register_as), ("--experiment", mlflow_experiment)):
        if value is not None and not track:
            raise UserError(f"{option} needs tracking; leave out --no-track")
    experiment = make_experiment(
        algorithm=algorithm,
        engine=engine or ("simulator" if registry.get(algorithm).federated else "inprocess"),
        params=parse_settings(params),
        register_as=register_as,
        mlflow_experiment=mlflow_experiment,
        **asked,
    )
    if asked["criterion"] is not None and experiment.k_range is None:
        raise UserError("--criterion selects k from a range, such as --k 5..25; leave it out, or give a range")
    if asked["data"] is None and experiment.engine in _OWN_DATA:
        raise UserError(no_data("run"))
    if dry_run:
        from flareclust.experiment.reports.tables import print_tables

        print_tables(experiment)
        return
    result = _result_of(experiment, out, overwrite=overwrite, resume=resume, track=track)
    answer(result.to_json(), as_json, terminal.print_result, result)


def _result_of(
    experiment: "Experiment", out: Path | None, *, overwrite: bool, resume: str | None, track: bool
) -> "Result":
    """Run the experiment in its folder; where it ends early, say how it goes on."""
    from flareclust.api import LOCAL, run_experiment
    from flareclust.experiment.config import new_folder
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.results import artifacts

    local = resume is not None and experiment.engine in LOCAL
    folder = out or (None if local else new_folder(experiment))
    where = folder or Path(resume or "")
    if not local and not overwrite:
        artifacts.check_unused(where)
    before = _written(where)
    try:
        with redirect_stdout(sys.stderr), terminal.progress(experiment) as on_round:
            return run_experiment(experiment, track=track, out=folder, on_round=on_round, resume=resume)
    except (KeyboardInterrupt, JobFailed) as error:
        if not artifacts.has_checkpoint(where):
            if isinstance(error, JobFailed) or _written(where) == before:
                raise
            later = f"log it later with: flareclust log {where}"
            raise Interrupted(f"interrupted; the result is in {where}; {later}") from None
        advice = f"the same command with --resume {where}{' in the place of --out' if out else ''} goes on"
        if isinstance(error, JobFailed):
            if experiment.engine == "inprocess" and not error.transient:
                raise  # the same rows give the same failure
            again = advice if error.transient else f"if its reason is gone, {advice}"
            raise JobFailed(f"{error}\n{again} from the last exchange", transient=error.transient) from error
        raise Interrupted(f"interrupted; {advice}") from None


def _written(folder: Path) -> int | None:
    """Return when the result in a folder was written, in nanoseconds; None for a folder without a result."""
    from flareclust.protocol.outcome import SUMMARY

    try:
        return (folder / SUMMARY).stat().st_mtime_ns
    except OSError:
        return None
