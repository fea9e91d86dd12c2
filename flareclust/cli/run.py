"""The command `flareclust run`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.settings import (
    AlgorithmName,
    AsJson,
    InExperiment,
    K,
    OfJob,
    Overwrite,
    PolicyFile,
    Reading,
    Seed,
    no_data,
    parse_settings,
    with_tables,
)
from flareclust.cli.sweep import Interrupted

if TYPE_CHECKING:
    from flareclust.experiment.config import Experiment
    from flareclust.experiment.results.result import Result

#: The engines whose sites are made here, from the data of the run.
_OWN_DATA = ("inprocess", "devices", "simulator")


class _Rows(NamedTuple):
    """The rows of a run, their sites, and the number of clusters to look for."""

    data: Annotated[
        str | None,
        typer.Option(
            help="A name from `flareclust data list` (with :pca10 its principal components), a file, a folder. Not for sites that have their own."
        ),
    ] = None
    k: K = None
    criterion: Annotated[
        str | None,
        typer.Option(
            "--criterion",
            "--choose-by",
            help="What selects k from a range: calinski-harabasz, silhouette, davies-bouldin, elbow or separation; by default calinski-harabasz.",
        ),
    ] = None
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid (the default), dirichlet:0.3, dirichlet-class:0.3, clusters:4, power:1.2, beta:0.1, owners (a site per known owner; --n-sites is not looked at); for different columns features-overlap:0.3, features-shared:0.1, har-a1 ...; or none: --data is a folder with a file, or a folder of images, per site."
        ),
    ] = None
    n_sites: Annotated[int | None, typer.Option("--n-sites", "--clients", help="Number of sites; 10 by default.")] = (
        None
    )


class _Also(NamedTuple):
    """What a run has beside its job."""

    profile: Annotated[
        bool | None,
        typer.Option(
            "--profile/--no-profile",
            help="Describe the clusters column by column; by default where up to 60 columns have names.",
        ),
    ] = None
    match_to: Annotated[
        str | None,
        typer.Option(
            help="Earlier result whose cluster numbers are kept: a folder, runs:/ID, or models:/NAME@champion."
        ),
    ] = None
    cohort: Annotated[
        int | None,
        typer.Option(help="Sites drawn for each round, with the engines inprocess and devices; all by default."),
    ] = None
    dropout: Annotated[float, typer.Option(help="Probability that a site of these engines drops out of a round.")] = 0.0


@with_tables
def run(
    *,
    algorithm: AlgorithmName,
    rows: _Rows,
    reading: Reading,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read all tables, say what they hold or what is wrong, and train nothing.")
    ] = False,
    seed: Seed = 0,
    engine: Annotated[
        str,
        typer.Option(
            help="simulator (NVFlare; the default), inprocess, devices (many small sites), poc (see `flareclust poc`), or production."
        ),
    ] = "",
    kit: Annotated[
        str | None, typer.Option(help="For production: the kit of the admin who submits the job. For poc: its folder.")
    ] = None,
    job: OfJob,
    policy: PolicyFile = None,
    also: _Also,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the files; by default one in flareclust-runs.")
    ] = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with an interrupted run: its folder, with the same settings; for poc and production the id of its job."
        ),
    ] = None,
    track: Annotated[bool, typer.Option(help="Log the run to MLflow.")] = True,
    register: Annotated[str | None, typer.Option(help="Register the model in MLflow under this name.")] = None,
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
        seed=seed,
        engine=chosen,
        kit=kit,
        params=parse_settings(job.settings),
        policy=None if policy is None else read_policy(policy).to_json(),
        register_as=register,
        mlflow_experiment=in_experiment,
        **rows._asdict(),
        **reading.fields(),
        **job.options(),
        **also._asdict(),
    )
    if rows.criterion is not None and experiment.k_range is None:
        raise UserError("--criterion selects k from a range, such as --k 5..25; leave it out, or give a range")
    if rows.data is None and experiment.engine in _OWN_DATA:
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
