"""The command `flareclust`.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the job failed, 2 the request was wrong.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.machine import answers
from flareclust._foundation.version import __version__
from flareclust.cli.advise import advise
from flareclust.cli.backup import backup, prune, restore
from flareclust.cli.entry import PlainFormatter, quieten, run_app, say
from flareclust.cli.fetch import fetch
from flareclust.cli.init import init
from flareclust.cli.personalise import personalise
from flareclust.cli.poc import poc_app
from flareclust.cli.run import run
from flareclust.cli.schema import schema_app
from flareclust.cli.settings import AlgorithmName, AsJson, InExperiment, parse_settings, takes
from flareclust.cli.site import site_app
from flareclust.cli.stability import stability
from flareclust.cli.status import status
from flareclust.cli.sweep import sweep
from flareclust.cli.withdraw import withdraw

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated clustering for NVIDIA FLARE: recover the clusters of data that may not be pooled.",
)
_data_app = typer.Typer(no_args_is_help=True, help="Data sets known by name.")
_jobs_app = typer.Typer(no_args_is_help=True, help="NVFlare jobs to deploy.")
_GROUPS = {"data": _data_app, "jobs": _jobs_app, "site": site_app, "poc": poc_app, "schema": schema_app}
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)
for _command in (run, sweep, stability, advise, personalise, fetch, status, backup, restore, prune):
    app.command()(_command)
app.command(hidden=True)(withdraw)  # of `flareclust site`, for an operator who is in the folder of the kit


@app.command("log")
def _log(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a sweep.")],
    uri: Annotated[str | None, typer.Option(help="MLflow store; MLFLOW_TRACKING_URI or ./mlflow.db.")] = None,
    alias: Annotated[
        str | None, typer.Option(help="Offer this alias of the registered model to the run's version.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="With --alias: the metric that decides.")] = None,
) -> None:
    """Log a finished run or sweep to MLflow that is not there, or only in part."""
    require("tracking", "flareclust log")
    from flareclust.tracking import run_logging

    for path, logged in run_logging.log_folder(folder, uri, alias, metric).items():
        verb = "is already in MLflow as" if logged.known else "was logged as"
        typer.echo(f"{path} {verb} run {logged.run_id}")
        if logged.decision:
            typer.echo(logged.decision)


@app.command("doctor")
def _doctor(
    kit: Annotated[Path | None, typer.Option(help="A kit whose allow-list and rights are checked, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check versions, disk, ports, leftovers, plugins and servers, and say what to do; 1 if something will fail."""
    from flareclust.doctor import examine

    found = examine(kit)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        for finding in found:
            say(f"{finding.state:<5}{finding.check}: {finding.found}")
            if finding.advice:
                say(f"     to do: {finding.advice}")
    if any(finding.state == "fail" for finding in found):
        raise typer.Exit(1)


app.command()(init)


@app.command("export")
def _export(
    result: Annotated[Path, typer.Argument(help="Folder with result.npz and result.json.")],
    to: Annotated[Path, typer.Option(help="The file to write: NAME.skops for scikit-learn, NAME.onnx for ONNX.")],
) -> None:
    """Write the model of a finished run, which assigns rows to the clusters, for scikit-learn or ONNX."""
    from flareclust.experiment.results.saved import read_result

    say(read_result(result).export(to))


@app.command("list")
def _list_algorithms(
    name: Annotated[str | None, typer.Argument(help="One algorithm, to see what its parameters do.")] = None,
    stages: Annotated[
        bool, typer.Option("--stages", help="List the phases of its jobs and the stages of their replies instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the algorithms, or the parameters of one, or its phases and stages."""
    from flareclust.experiment.reports import terminal
    from flareclust.protocol import registry

    known = registry.algorithms().values()
    here = [algorithm for algorithm in known if not algorithm.federated or algorithm.name in registry.executors()]
    one = None if name is None else registry.get(name)
    if stages:
        listed = [algorithm for algorithm in (here if one is None else [one]) if algorithm.federated]
        if not listed:
            raise UserError(f"{name} runs in this process only, without phases and stages")
        if as_json:
            typer.echo(json.dumps({algorithm.name: terminal.stage_rows(algorithm) for algorithm in listed}))
        else:
            for algorithm in listed:
                terminal.print_stages(algorithm)
    elif one is not None and as_json:
        typer.echo(json.dumps(terminal.algorithm_row(one) | {"parameters": terminal.parameter_rows(one)}))
    elif one is not None:
        terminal.print_parameters(one)
    elif as_json:
        typer.echo(json.dumps([terminal.algorithm_row(algorithm) for algorithm in here], default=str))
    else:
        terminal.print_algorithms(known)


@_data_app.command("list")
def _data_list() -> None:
    """List the data sets."""
    from flareclust.data import datasets
    from flareclust.experiment.reports import terminal

    terminal.print_pairs("data set", datasets.describe())


@_data_app.command("get")
def _data_get(
    name: Annotated[str, typer.Argument(help="A name from `flareclust data list`.")],
    folder: Annotated[Path | None, typer.Option(help="Where to put it; $FLARECLUST_DATA by default.")] = None,
) -> None:
    """Fetch a data set from its official address."""
    from flareclust.data import datasets

    say(datasets.get(name, folder))


@_jobs_app.command("export")
@takes("jobs export")
def jobs_export(
    *,
    algorithm: AlgorithmName,
    folder: Annotated[Path, typer.Argument(help="The job folder to write.")],
    k: str,
    criterion: str | None,
    params: list[str],
    schema: Path | None,
    profile: bool | None,
    byoc: bool,
    **asked: Any,
) -> None:
    """Write the NVFlare job of an algorithm, to be submitted with `nvflare job submit -j FOLDER`."""
    from flareclust.engines.options import JobOptions
    from flareclust.evaluation import selection
    from flareclust.experiment.results.profiled import exports_profile
    from flareclust.experiment.tables.typed_rows import exported_settings, outcome_facts
    from flareclust.platform.job import build_job, export_job
    from flareclust.protocol import registry

    number, own = selection.exported_k(registry.get(algorithm).name, k, criterion, parse_settings(params))
    options = JobOptions(k=number, **asked)
    if schema is not None:
        own = exported_settings(algorithm, own, schema, secure_sums=options.secure_sums) | own
        about = outcome_facts(schema)
        options = options.model_copy(update={"outcomes": about["outcomes"]})
        if about["outcome_hint"]:
            say(f"hint: {about['outcome_hint']}")
    options.check_outcomes(own, options.outcomes)
    options = options.model_copy(update={"profile": exports_profile(profile, algorithm, own, options, schema)})
    job = build_job(registry.get(algorithm), own, options, packaged=not byoc)
    with redirect_stdout(sys.stderr):
        path = export_job(job, folder)
    say(path)


@app.command("assign")
@takes("assign")
def _assign(
    *,
    result: Annotated[Path, typer.Argument(help="Folder with result.npz and result.json.")],
    data: Path | None,
    kit: Path | None,
    site: str,
    columns: tuple[str, ...] | None,
    schema: Path | None,
    new_rows: bool,
    salt: str,
    outliers: float | None,
    out: Path | None,
    **asked: Any,
) -> None:
    """Place a late site's rows in the clusters of a finished federation, without asking the other sites."""
    from flareclust.experiment.reports import terminal

    if (data is None) == (kit is None):
        raise UserError("say either --data FILE, for a file that is here, or --kit KIT, for a site of the federation")
    if schema is not None and (kit is not None or columns is not None):
        raise UserError(
            "--schema is for a file that is here, and says which columns are features; leave out --kit and --columns"
        )
    if kit is not None:
        if out is not None or outliers is not None:
            raise UserError(
                "--out and --outliers are for a file that is here (--data); with --kit labels stay at the site: leave them out"
            )
        from flareclust.engines.late_jobs import place_at, placed_rows
        from flareclust.engines.late_sites import read_finished, row_name_of

        placed = place_at(result, kit, [name.strip() for name in site.split(",")], new_rows=new_rows)
        terminal.print_placed(placed, placed_rows(placed), row_name_of(read_finished(result)[1]))
        return
    assert data is not None
    out = out or Path()
    from flareclust._foundation.own_files import make_folder, write_atomically
    from flareclust.data.labels import LABELS_FILE, is_labels_file, write_labels
    from flareclust.experiment.reports.placed import PAGE, placed_page
    from flareclust.experiment.tables.late_rows import moved_in, notes_on, place_file

    placed_file = place_file(result, data, site, columns, salt, schema, new_rows=new_rows, outliers=outliers)
    labels, _, table, id_name, row_name = placed_file
    for note in table.rows_read.notes(row_name).values():
        say(note)
    try:
        make_folder(out)
        if not is_labels_file(out / LABELS_FILE):
            raise UserError(f"{out / LABELS_FILE} is there and is none of ours; say --out FOLDER")
        write_labels(out, labels, None if id_name is None else table.ids, id_name, details=placed_file.details)
        notes, (moved, date) = notes_on(result, table), moved_in(result, site, table, labels)
        if outliers is not None:
            n, expected = int(sum(placed_file.details["outlier"])), outliers * len(labels)
            notes.append(
                f"outliers: {n:,} of {len(labels):,} {row_name}, {expected:,.1f} expected; labels.csv names them"
            )
        if moved is not None:
            with write_atomically(out / PAGE) as file:
                file.write(placed_page(moved, data.name, len(labels), date, notes))
    except OSError as error:
        raise UserError(f"{out} cannot be used as a folder: {error.strerror}") from None
    terminal.print_placement(labels, out, notes, moved, row_name)


@app.command("ui")
def _ui(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
    uri: Annotated[str | None, typer.Option(help="MLflow store; MLFLOW_TRACKING_URI or ./mlflow.db.")] = None,
    in_experiment: InExperiment = None,
) -> None:
    """Start MLflow's pages on the project's store, and print the links to its runs."""
    require("tracking", "flareclust ui")
    from flareclust.doctor import port_problem
    from flareclust.experiment.config import usual_experiment
    from flareclust.tracking import store
    from flareclust.tracking.runs import pages_of

    command, file = store.ui_command(uri, port), store.sqlite_file(store.resolve_uri(uri))
    if file is not None and not file.exists():
        raise UserError(f"there is no MLflow store {file}; go to the folder of a tracked run, or give --uri")
    if problem := port_problem(port):
        raise UserError(f"port {port} cannot be used ({problem}); give another one with --port")
    pages = pages_of(uri, in_experiment or usual_experiment(), port)
    raise typer.Exit(_served(command, port, [*(f"{what}: {page}" for what, page in pages.items()), "Ctrl-C ends it"]))


#: Seconds between two questions whether a port answers.
_PAUSE = 0.2


def _served(command: Sequence[str], port: int, lines: Sequence[str]) -> int:
    """Run a program until it ends, print lines once it answers at a port of this machine, and return its exit code.

    Ctrl-C ends it, too: an interrupt of this process, however it came, is passed on.
    """
    process = subprocess.Popen(command)
    try:
        while process.poll() is None and not answers("127.0.0.1", port):
            time.sleep(_PAUSE)
        if process.poll() is None:
            typer.echo("\n".join(lines))
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what NVFlare, Prefect and MLflow log.")
    ] = False,
) -> None:
    """Set what all commands share."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    if not verbose:
        quieten(handler)
    if version:
        typer.echo(f"flareclust {__version__}")
        raise typer.Exit


def main(args: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    run_app(app, args, "flareclust")
