"""The command `flareclust log`."""

from pathlib import Path
from typing import Annotated

import typer

from flareclust._foundation.extras import require


def log(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a sweep.")],
    uri: Annotated[str | None, typer.Option(help="MLflow store; MLFLOW_TRACKING_URI or ./mlflow.db.")] = None,
    alias: Annotated[
        str | None, typer.Option(help="Offer this alias of the registered model to the run's version.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="With --alias: the metric that decides.")] = None,
) -> None:
    """Log a finished run or sweep to MLflow that is not there, or only in part."""
    require("tracking", "flareclust log")
    from flareclust.tracking.run_logging import log_folder

    for path, logged in log_folder(folder, uri, alias, metric).items():
        verb = "is already in MLflow as" if logged.known else "was logged as"
        typer.echo(f"{path} {verb} run {logged.run_id}")
        if logged.decision:
            typer.echo(logged.decision)
