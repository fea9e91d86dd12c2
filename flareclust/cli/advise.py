"""The command `flareclust advise`."""

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say
from flareclust.cli.settings import answer, parse_settings, takes

if TYPE_CHECKING:
    from flareclust.studies.advice import Advice


@takes("advise")
def advise(
    *,
    data: Annotated[str, typer.Argument(help="A folder with a file per site, a file, or a name from `data list`.")],
    params: list[str],
    table_schema: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Say whether k-means, a Gaussian mixture or a tree suits a table, and why; nothing leaves this machine."""
    from flareclust.studies.advice import advise as compare

    own = parse_settings(params)
    if unknown := sorted(own.keys() - {"scale", "missing"}):
        raise UserError(f"--set takes scale and missing here, which all algorithms have; got {unknown[0]}")
    given = {name: value for name, value in {**asked, "schema": table_schema}.items() if value is not None}
    with redirect_stdout(sys.stderr):
        found = compare(data, on_done=lambda algorithm: say(f"{algorithm} is done"), **given, **own)
    answer(found.to_json(), as_json, _print, found)


def _print(found: "Advice") -> None:
    """Print a line per algorithm, and in three sentences which suits the rows, why, and what to look at."""
    from rich.console import Console

    from flareclust.experiment.reports import terminal

    lines = []
    for one in found.candidates:
        bic, border = ("-" if value is None else f"{value:.2f}" for value in (one.bic, one.border))
        shares = f"{one.stability:.2f}", bic, f"{one.unlabelled:.0%}", border
        lines.append((one.algorithm, one.k, *shares))
    heads = terminal.numbers("clusters", "stability", "BIC of a row", "in no cluster", "border")
    Console().print(terminal.table_of("algorithm", *heads, rows=lines))
    say(
        "stability: how alike clusters of two draws of 80 % of the rows are, at most 1; border: density where clusters meet, in parts of their middle"
    )
    if found.n_rows < found.all_rows:
        say(f"{found.n_rows:,} of {found.all_rows:,} rows were looked at, drawn at random")
    for note in found.warnings:
        say(f"note: {note}")
    for sentence in found.sentences:
        say(f"{sentence[0].upper()}{sentence[1:]}.")
