"""The command `flareclust fetch`: the result of a job at a server, as `run` gives that of its own."""

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from flareclust.cli.settings import takes


@takes("fetch")
def fetch(
    *,
    job: Annotated[str, typer.Argument(help="The job's id, as `nvflare job submit` prints it.")],
    kit: str,
    expect_sites: Sequence[str] | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Wait for a job that was exported and submitted, and write its result as `run` writes that of its own."""
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.results import artifacts
    from flareclust.experiment.results.fetched import result_of_job
    from flareclust.platform.provisioned import fetch_job

    folder = out or Path("flareclust-runs") / job
    if not overwrite:
        artifacts.check_unused(folder)
    artifacts.check_out(folder)
    with redirect_stdout(sys.stderr):
        outcome, about, date = fetch_job(job, Path(kit), expect_sites=expect_sites)
        result = artifacts.keep(replace(result_of_job(outcome, about, kit=kit, **asked), date=date), folder)
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
    else:
        terminal.print_result(result)
