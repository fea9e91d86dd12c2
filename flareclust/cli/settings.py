"""Options that several commands share, and settings of algorithms as `--set` takes them."""

from typing import Annotated, Any

import typer

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import from_text

Seed = Annotated[int, typer.Option(help="Decides the partition and every random choice.")]
Settings = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting of the algorithm.")]
SecureSums = Annotated[bool, typer.Option("--secure-sums", help="Sites mask their sums; the server learns the total.")]
InExperiment = Annotated[
    str | None,
    typer.Option("--experiment", help="Name of the MLflow experiment; MLFLOW_EXPERIMENT_NAME or flareclust."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the result that is in the --out folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Return `key=value` pairs as a dict; values are JSON where they can be, else text.

    Raises:
        UserError: a pair has no `=`, or a key comes twice.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"--set expects key=value, got {shown(pair)}")
        if key in settings:
            raise UserError(f"--set names {shown(key)} twice")
        settings[key] = from_text(value)
    return settings


def no_data(command: str) -> str:
    """Return what a command says that lacks its data."""
    return (
        f"which data? Name a folder with a file for each site (--data FOLDER --partition none), a file, or a data set to try "
        f"flareclust with: flareclust {command} ... --data digits (others: flareclust data list)"
    )
