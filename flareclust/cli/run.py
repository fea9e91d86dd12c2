"""The command `flareclust run`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.names import split_names
from flareclust.cli.settings import AsJson, InExperiment, Overwrite, SecureSums, Seed, Settings, no_data, parse_settings
from flareclust.cli.sweep import Interrupted

#: The engines whose sites are made here, from the data of the run.
OWN_DATA = ("inprocess", "devices", "simulator")


def run(
    algorithm: Annotated[str, typer.Argument(help="See `flareclust list`.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="A name from `flareclust data list` (with :pca10 its principal components), a file, a folder. Not for sites that have their own."
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("--k", help="Number of clusters, or a range 5..25 to choose from; known for the named data sets."),
    ] = None,
    criterion: Annotated[
        str | None,
        typer.Option(
            "--criterion",
            "--choose-by",
            help="What selects k from a range: calinski-harabasz, silhouette, davies-bouldin, elbow or separation; by default calinski-harabasz.",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid (the default), dirichlet:0.3, dirichlet-class:0.3, clusters:4, power:1.2, beta:0.1, owners (a site per known owner; --n-sites is not looked at); for different columns features-overlap:0.3, features-shared:0.1, har-a1 ...; or none: --data is a folder with a file, or a folder of images, per site."
        ),
    ] = None,
    n_sites: Annotated[
        int | None, typer.Option("--n-sites", "--clients", help="Number of sites; 10 by default.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the files to use, with commas; all by default.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Schema by which your own tables are read (flareclust schema draft); FILE.mapping.yaml beside a table says how it differs."
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="The column with ids, where no schema says it: no feature, but in labels.csv."),
    ] = None,
    truth: Annotated[
        str | None, typer.Option(help="The column with known classes, to compare the clusters with; no feature.")
    ] = None,
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
    settings: Settings = [],  # noqa: B006 - typer reads the default, nothing changes it
    min_sites: Annotated[int | None, typer.Option(help="Sites a round needs; more than half by default.")] = None,
    task_timeout: Annotated[int, typer.Option(help="Seconds a site has for one task.")] = 600,
    secure_sums: SecureSums = False,
    policy: Annotated[
        Path | None,
        typer.Option(help="What simulated sites let out, a YAML file; real sites: flareclust site policy."),
    ] = None,
    profile: Annotated[
        bool | None,
        typer.Option(
            "--profile/--no-profile",
            help="Describe the clusters column by column; by default where up to 60 columns have names.",
        ),
    ] = None,
    match_to: Annotated[
        str | None,
        typer.Option(
            help="Earlier result whose cluster numbers are kept: a folder, runs:/ID, or models:/NAME@champion."
        ),
    ] = None,
    cohort: Annotated[
        int | None,
        typer.Option(help="Sites drawn for each round, with the engines inprocess and devices; all by default."),
    ] = None,
    dropout: Annotated[
        float, typer.Option(help="Probability that a site of these engines drops out of a round.")
    ] = 0.0,
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
    from flareclust.api import LOCAL, run_experiment
    from flareclust.experiment import report
    from flareclust.experiment.artifacts import check_unused
    from flareclust.experiment.config import make_experiment
    from flareclust.federation.checkpoint import CHECKPOINT
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
        from flareclust.experiment.table_report import print_tables

        print_tables(experiment)
        return
    local = resume is not None and experiment.engine in LOCAL
    folder = out or (None if local else report.default_out(experiment))
    where = folder or Path(resume or "")
    if not local and not overwrite:
        check_unused(where)
    before = _written(where)
    try:
        with redirect_stdout(sys.stderr), report.progress(experiment) as on_round:
            result = run_experiment(experiment, track=track, out=folder, on_round=on_round, resume=resume)
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
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
    else:
        report.print_result(result)


def _written(folder: Path) -> int | None:
    """Return when the result in a folder was written, in nanoseconds; None for a folder without a result."""
    from flareclust.protocol.outcome import SUMMARY

    try:
        return (folder / SUMMARY).stat().st_mtime_ns
    except OSError:
        return None
