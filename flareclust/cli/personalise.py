"""The command `flareclust personalise`."""

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say
from flareclust.cli.settings import AsJson, Seed, split_names, with_tables

if TYPE_CHECKING:
    from flareclust.personal.result import PersonalResult


class _Training(NamedTuple):
    """What is trained, and where."""

    data: Annotated[str, typer.Option(help="A data set with classes from `flareclust data list`, or a file.")] = (
        "digits"
    )
    label: Annotated[
        str | None,
        typer.Option(
            help="The column of a file, or of the sites' rows, that holds the class, an integer; `class` by default."
        ),
    ] = None
    k: Annotated[int | None, typer.Option("--k", help="Number of clusters, for kfed, ifca and pow-d-kfed.")] = None
    method: Annotated[
        str, typer.Option(help="kfed (one-shot clustering, then a model per cluster), ifca, global or local.")
    ] = "kfed"
    model: Annotated[str, typer.Option(help="mlp (the extra deep), or linear, which needs no extra.")] = "mlp"
    devices: Annotated[int, typer.Option(help="Number of devices.")] = 10
    partition: Annotated[
        str, typer.Option(help="How rows are assigned to devices: iid, dirichlet:0.3, clusters:2, owners ...")
    ] = "iid"
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 50
    select: Annotated[
        str,
        typer.Option(help="Which devices train in a round: all, or --per-round of them by random, pow-d, pow-d-kfed."),
    ] = "all"
    per_round: Annotated[
        int | None, typer.Option(help="With --select: how many train in a round; with kfed, in each cluster.")
    ] = None
    candidates: Annotated[
        int | None, typer.Option(help="Of pow-d: how many are asked for their loss; twice --per-round by default.")
    ] = None
    k_local: Annotated[int, typer.Option(help="k', clusters of a device, for kfed and pow-d-kfed.")] = 1
    scale: Annotated[
        str, typer.Option(help="none, or standard: columns have mean 0 and variance 1 over all devices.")
    ] = "none"
    averaging: Annotated[str, typer.Option(help="Of ifca: models or gradients.")] = "models"
    lr: Annotated[float, typer.Option(help="Step size.")] = 0.01
    updates: Annotated[int, typer.Option(help="Local updates of a round; of linear, passes over the rows.")] = 10
    batch: Annotated[int, typer.Option(help="Rows of an update of mlp.")] = 10
    hidden: Annotated[int, typer.Option(help="Hidden units of mlp.")] = 200
    test_share: Annotated[float, typer.Option(help="Share of each device's rows held out for tests.")] = 0.2
    seed: Seed = 0
    engine: Annotated[
        str, typer.Option(help="inprocess; or simulator: NVFlare jobs for the clustering and for each cluster.")
    ] = "inprocess"
    min_sites: Annotated[
        int | None, typer.Option(help="Of jobs: sites of a cluster that a round needs; more than half by default.")
    ] = None


@with_tables
def personalise(
    *,
    ctx: typer.Context,
    training: _Training,
    out: Annotated[Path | None, typer.Option(help="Folder for the files; by default flareclust-runs/...")] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Train nothing; write jobs for provisioned sites here: one per cluster, or one of ifca or global."
        ),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="With --export, for kfed and pow-d-kfed: the folder with the result of `flareclust run kfed` at the sites."
        ),
    ] = None,
    sites: Annotated[
        str | None,
        typer.Option(help="With --export, for ifca and global: the sites' names, with commas; all by default."),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="With --export: number of classes; by default the largest of a job's sites.")
    ] = None,
    finished: Annotated[
        list[Path] | None,
        typer.Option(
            help="Train nothing; write the result of a downloaded job to --out. Once per job of kfed's clusters."
        ),
    ] = None,
    track: Annotated[
        bool | None, typer.Option("--track/--no-track", help="Log the run to MLflow, as by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train one model per cluster of devices, and compare with one for all, one each, or IFCA."""
    settings = training._asdict()
    of_jobs = {"clusters": clusters and str(clusters), "sites": split_names(sites), "classes": classes}
    if finished:
        _refuse(
            "finished, which reads what was trained",
            {**_given(ctx, {**settings, **of_jobs}), "export": export, "track": track or None},
        )
        _say_result(_read(finished, out), as_json)
    elif export is not None:
        _refuse("export, which trains nothing", {"out": out, "track": track or None})
        _export(export, _given(ctx, {**settings, **of_jobs}), as_json)
    else:
        _refuse("training here, without --export", of_jobs)
        _say_result(_train(settings, out, track is not False), as_json)


def _given(ctx: typer.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, at their defaults or not."""
    sources = {name: ctx.get_parameter_source(name) for name in options}  # by its name: typer brings an enum of its own
    given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
    return {name: value for name, value in options.items() if name in given}


def _refuse(what: str, options: Mapping[str, Any]) -> None:
    """Raise UserError where an option is given that has no effect."""
    if given := [name for name, value in options.items() if value is not None]:
        raise UserError(
            f"{', '.join(given)}: without effect in {what}; leave {'it' if len(given) == 1 else 'them'} out"
        )


def _train(settings: Mapping[str, Any], out: Path | None, track: bool) -> "PersonalResult":
    from flareclust.personal.result import default_folder
    from flareclust.studies.personalised import personalise as train

    with redirect_stdout(sys.stderr):
        return train(**settings, out=out or default_folder(f"personal-{settings['method']}"), track=track)


def _read(finished: list[Path], out: Path | None) -> "PersonalResult":
    from flareclust.personal.jobs import read_jobs
    from flareclust.personal.result import default_folder, save

    with redirect_stdout(sys.stderr):
        result = read_jobs(finished)
        return save(result, out or default_folder(f"personal-{result.settings['method']}"))


def _export(folder: Path, settings: Mapping[str, Any], as_json: bool) -> None:
    from flareclust.personal.jobs import export_jobs
    from flareclust.personal.settings import ExportSettings

    with redirect_stdout(sys.stderr):
        written = export_jobs(ExportSettings(**settings), folder)
    if as_json:
        typer.echo(json.dumps({"jobs": [str(path) for path in written]}))
        return
    for path in written:
        say(path)


def _say_result(result: "PersonalResult", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
        return
    last = result.rounds()[-1]
    sent = {way: result.bytes[way] / 1e6 for way in ("up", "down")}
    typer.echo(
        f"{result.settings['method']}: accuracy {result.final_accuracy:.3f} over {len(result.names)} devices "
        f"({last['least']:.3f} to {last['largest']:.3f}) after {len(result.accuracy)} rounds; "
        f"{sent['up']:.1f} MB up, {sent['down']:.1f} MB down; {result.seconds:.1f} s\nfiles: {result.folder}"
    )
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
