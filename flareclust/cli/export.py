"""`flareclust export`."""

from pathlib import Path
from typing import Annotated

import typer

from flareclust.cli.entry import say


def export(
    result: Annotated[Path, typer.Argument(help="Folder with result.npz and result.json.")],
    to: Annotated[Path, typer.Option(help="The file to write: NAME.skops for scikit-learn, NAME.onnx for ONNX.")],
) -> None:
    """Write the model of a finished run, which assigns rows to the clusters, for scikit-learn or ONNX."""
    from flareclust.experiment.results.saved import read_result

    say(read_result(result).export(to))
