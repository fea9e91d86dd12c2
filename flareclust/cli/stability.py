"""The command `flareclust stability`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say
from flareclust.cli.settings import (
    AlgorithmName,
    AsJson,
    K,
    Overwrite,
    PolicyFile,
    Reading,
    SecureSums,
    Seed,
    Settings,
    no_data,
    parse_settings,
    split_names,
    with_tables,
)

_Data = Annotated[
    str | None, typer.Option(help="A name from `flareclust data list`, a file, or a folder with a file per site.")
]
_Repeats = Annotated[
    int,
    typer.Option(help="Repeats with other seeds, and again with resampled rows; at most so many sites left out."),
]
_Null = Annotated[int, typer.Option(help="Runs on rows without clusters to compare with, at least 19; 0 for none.")]
_NullReference = Annotated[
    str, typer.Option(help="These rows: box (uniform, with the covariance of the real ones) or permuted (columns).")
]
_Criterion = Annotated[
    str | None,
    typer.Option(help="What selects k from a range, as in `flareclust run`, and what --null compares."),
]
_Partition = Annotated[
    str | None, typer.Option(help="How rows are assigned to sites, as in `flareclust run`; iid by default.")
]
_NSites = Annotated[int | None, typer.Option("--n-sites", help="Number of sites; 10 by default.")]
_Out = Annotated[
    Path | None, typer.Option(help="A folder for the files of the run; its report.html has the stability.")
]


@with_tables
def stability(
    *,
    algorithm: AlgorithmName,
    data: _Data = None,
    k: K = None,
    repeats: _Repeats = 20,
    null: _Null = 0,
    null_reference: _NullReference = "box",
    criterion: _Criterion = None,
    partition: _Partition = None,
    n_sites: _NSites = None,
    reading: Reading,
    seed: Seed = 0,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nothing changes it
    secure_sums: SecureSums = False,
    policy: PolicyFile = None,
    out: _Out = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Repeat a clustering with other seeds, other rows and one site less, and say which clusters come back."""
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.results.artifacts import REPORT, check_unused
    from flareclust.studies.stability import stability as repeat

    given: dict[str, Any] = {
        "criterion": criterion,
        "partition": partition,
        "n_sites": n_sites,
        **reading._asdict(),
        "columns": split_names(reading.columns),
        "policy": policy,
    }
    if out is not None and not overwrite:
        check_unused(out)
    if data is None:
        raise UserError(no_data("stability"))
    own = parse_settings(settings)
    if taken := sorted(
        own.keys() & {*given, "data", "k", "seed", "secure_sums", "repeats", "null", "engine", "out", "track"}
    ):
        raise UserError(f"--set is for settings of the algorithm; {taken[0]} is no such setting")
    given = {name: value for name, value in given.items() if value is not None}
    with redirect_stdout(sys.stderr), terminal.repeats_progress() as on_done:
        found = repeat(
            algorithm,
            data,
            k,
            repeats=repeats,
            null=null,
            null_reference=null_reference,
            out=out,
            on_done=on_done,
            seed=seed,
            secure_sums=secure_sums,
            **given,
            **own,
        )
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False))
    else:
        terminal.print_stability(found.result, found.warnings)
        if out is not None:
            say(f"report: {out.absolute() / REPORT}")
