"""The command `flareclust stability`."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say
from flareclust.cli.settings import AlgorithmName, no_data, parse_settings, takes


@takes("stability")
def stability(
    *,
    algorithm: AlgorithmName,
    data: str | None,
    params: list[str],
    table_schema: str | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Repeat a clustering with other seeds, other rows and one site less, and say which clusters come back."""
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.results.artifacts import check_unused
    from flareclust.experiment.results.disclosure import REPORT
    from flareclust.studies.stability import stability as repeat

    if out is not None and not overwrite:
        check_unused(out)
    if data is None:
        raise UserError(no_data("stability"))
    own = parse_settings(params)
    if taken := sorted(own.keys() & {*asked, "data", "out", "schema", "engine", "track"}):
        raise UserError(f"--set is for settings of the algorithm; {taken[0]} is no such setting")
    given = {name: value for name, value in {**asked, "schema": table_schema}.items() if value is not None}
    with redirect_stdout(sys.stderr), terminal.repeats_progress() as on_done:
        found = repeat(algorithm, data, out=out, on_done=on_done, **given, **own)
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False))
    else:
        terminal.print_stability(found.result, found.warnings)
        if out is not None:
            say(f"report: {out.absolute() / REPORT}")
