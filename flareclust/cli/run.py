"""The command `flareclust run`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.names import split_names
from flareclust.cli.run_options import (
    AlgorithmName,
    Cohort,
    Columns,
    Criterion,
    Data,
    Dropout,
    DryRun,
    Engine,
    IdColumn,
    K,
    Kit,
    MatchTo,
    MinSites,
    NSites,
    Out,
    Partition,
    PolicyFile,
    Profile,
    Register,
    Resume,
    SchemaFile,
    TaskTimeout,
    Track,
    Truth,
)
from flareclust.cli.settings import AsJson, InExperiment, Overwrite, SecureSums, Seed, Settings, no_data, parse_settings
from flareclust.cli.sweep import Interrupted

if TYPE_CHECKING:
    from flareclust.experiment.config import Experiment
    from flareclust.experiment.results.result import Result

#: The engines whose sites are made here, from the data of the run.
OWN_DATA = ("inprocess", "devices", "simulator")


def run(
    algorithm: AlgorithmName,
    data: Data = None,
    k: K = None,
    criterion: Criterion = None,
    partition: Partition = None,
    n_sites: NSites = None,
    columns: Columns = None,
    schema: SchemaFile = None,
    id_column: IdColumn = None,
    truth: Truth = None,
    dry_run: DryRun = False,
    seed: Seed = 0,
    engine: Engine = "",
    kit: Kit = None,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nothing changes it
    min_sites: MinSites = None,
    task_timeout: TaskTimeout = 600,
    secure_sums: SecureSums = False,
    policy: PolicyFile = None,
    profile: Profile = None,
    match_to: MatchTo = None,
    cohort: Cohort = None,
    dropout: Dropout = 0.0,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    track: Track = True,
    register: Register = None,
    in_experiment: InExperiment = None,
    as_json: AsJson = False,
) -> None:
    """Cluster data that are spread over sites, and say how well it went."""
    from flareclust.experiment.config import make_experiment
    from flareclust.experiment.reports import terminal
    from flareclust.privacy.policy import read_policy
    from flareclust.protocol import registry

    for option, value in (("--register", register), ("--experiment", in_experiment)):
        if value is not None and not track:
            raise UserError(f"{option} needs tracking; leave out --no-track")
    chosen = engine or ("simulator" if registry.get(algorithm).federated else "inprocess")
    experiment = make_experiment(
        algorithm=algorithm,
        data=data,
        k=k,
        criterion=criterion,
        partition=partition,
        n_sites=n_sites,
        seed=seed,
        engine=chosen,
        kit=kit,
        columns=split_names(columns),
        table_schema=None if schema is None else str(schema.absolute()),
        id_column=id_column,
        truth=truth,
        params=parse_settings(settings),
        min_sites=min_sites,
        task_timeout=task_timeout,
        secure_sums=secure_sums,
        policy=None if policy is None else read_policy(policy).to_json(),
        profile=profile,
        match_to=match_to,
        cohort=cohort,
        dropout=dropout,
        register_as=register,
        mlflow_experiment=in_experiment,
    )
    if criterion is not None and experiment.k_range is None:
        raise UserError("--criterion selects k from a range, such as --k 5..25; leave it out, or give a range")
    if data is None and experiment.engine in OWN_DATA:
        raise UserError(no_data("run"))
    if dry_run:
        from flareclust.experiment.reports.tables import print_tables

        print_tables(experiment)
        return
    result = _result_of(experiment, out, overwrite=overwrite, resume=resume, track=track)
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
    else:
        terminal.print_result(result)


def _result_of(
    experiment: "Experiment", out: Path | None, *, overwrite: bool, resume: str | None, track: bool
) -> "Result":
    """Run the experiment in its folder; where it ends early, say how it goes on."""
    from flareclust.api import LOCAL, run_experiment
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.results.artifacts import check_unused
    from flareclust.federation.checkpoint import CHECKPOINT

    local = resume is not None and experiment.engine in LOCAL
    folder = out or (None if local else terminal.default_out(experiment))
    where = folder or Path(resume or "")
    if not local and not overwrite:
        check_unused(where)
    before = _written(where)
    try:
        with redirect_stdout(sys.stderr), terminal.progress(experiment) as on_round:
            return run_experiment(experiment, track=track, out=folder, on_round=on_round, resume=resume)
    except (KeyboardInterrupt, JobFailed) as error:
        if not (where / CHECKPOINT).exists():
            if isinstance(error, JobFailed) or _written(where) == before:
                raise
            raise Interrupted(
                f"interrupted; the result is in {where}; log it later with: flareclust log {where}"
            ) from None
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
