"""The command `flareclust personalise`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say
from flareclust.cli.settings import AsJson, Seed


def personalise(
    data: Annotated[
        str, typer.Option(help="A data set with classes from `flareclust data list`, or a file.")
    ] = "digits",
    label: Annotated[str | None, typer.Option(help="The column of a file that holds the class, an integer.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Number of clusters, for kfed and ifca.")] = None,
    method: Annotated[
        str, typer.Option(help="kfed (one-shot clustering, then a model per cluster), ifca, global or local.")
    ] = "kfed",
    model: Annotated[str, typer.Option(help="mlp (the extra deep), or linear, which needs no extra.")] = "mlp",
    devices: Annotated[int, typer.Option(help="Number of devices.")] = 10,
    partition: Annotated[
        str, typer.Option(help="How rows are assigned to devices: iid, dirichlet:0.3, clusters:2, owners ...")
    ] = "iid",
    rounds: Annotated[int, typer.Option(help="How often all devices train.")] = 50,
    k_local: Annotated[int, typer.Option(help="k', clusters of a device, for kfed.")] = 1,
    averaging: Annotated[str, typer.Option(help="Of ifca: models or gradients.")] = "models",
    lr: Annotated[float, typer.Option(help="Step size.")] = 0.01,
    updates: Annotated[int, typer.Option(help="Local updates of a round; of linear, passes over the rows.")] = 10,
    batch: Annotated[int, typer.Option(help="Rows of an update of mlp.")] = 10,
    hidden: Annotated[int, typer.Option(help="Hidden units of mlp.")] = 200,
    test_share: Annotated[float, typer.Option(help="Share of each device's rows held out for tests.")] = 0.2,
    seed: Seed = 0,
    engine: Annotated[
        str, typer.Option(help="inprocess; or simulator: NVFlare jobs for the clustering and for each cluster.")
    ] = "inprocess",
    min_sites: Annotated[
        int | None, typer.Option(help="Of jobs: sites of a cluster that a round needs; more than half by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the files; by default flareclust-runs/...")] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Train nothing; write a job for provisioned sites per cluster of --clusters here."),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(help="With --export: the folder with the result of `flareclust run kfed` at the sites."),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="With --export: number of classes; by default the largest of a cluster's sites.")
    ] = None,
    track: Annotated[bool, typer.Option(help="Log the run to MLflow.")] = True,
    as_json: AsJson = False,
) -> None:
    """Train one model per cluster of devices, and compare with one for all, one each, or IFCA."""
    if export is not None or clusters is not None:
        if export is None or clusters is None:
            raise UserError("--export and --clusters go together: where to write, and the result of k-FED at the sites")
        _export(
            export,
            clusters,
            classes,
            min_sites,
            k=k or 1,
            label=label,
            model=model,
            rounds=rounds,
            lr=lr,
            updates=updates,
            batch=batch,
            hidden=hidden,
            test_share=test_share,
            seed=seed,
        )
        return
    from flareclust.personal.result import default_folder
    from flareclust.studies.personalised import personalise as train

    with redirect_stdout(sys.stderr):
        result = train(
            data,
            k,
            label=label,
            method=method,
            model=model,
            devices=devices,
            partition=partition,
            rounds=rounds,
            k_local=k_local,
            averaging=averaging,
            lr=lr,
            updates=updates,
            batch=batch,
            hidden=hidden,
            test_share=test_share,
            seed=seed,
            engine=engine,
            min_sites=min_sites,
            out=out or default_folder(f"personal-{method}"),
            track=track,
        )
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
        return
    last = result.rounds()[-1]
    sent = {way: result.bytes[way] / 1e6 for way in ("up", "down")}
    typer.echo(
        f"{method}: accuracy {result.final_accuracy:.3f} over {len(result.names)} devices ({last['least']:.3f} to {last['largest']:.3f}) after "
        f"{rounds} rounds; {sent['up']:.1f} MB up, {sent['down']:.1f} MB down; {result.seconds:.1f} s\nfiles: {result.folder}"
    )
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _export(folder: Path, clusters: Path, classes: int | None, min_sites: int | None, **settings: Any) -> None:
    from flareclust.personal.export import export_jobs
    from flareclust.personal.settings import PersonalSettings

    with redirect_stdout(sys.stderr):
        written = export_jobs(PersonalSettings(**settings), clusters, folder, classes, min_sites)
    for path in written:
        say(path)
