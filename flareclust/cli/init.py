"""The command `flareclust init`: commented files to start from."""

from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say


class _Kind(str, Enum):
    """What there are files for."""

    consortium = "consortium"
    schedule = "schedule"
    sweep = "sweep"
    team = "team"


#: The file of each kind, and the command that uses it.
_FILES = {
    _Kind.consortium: ("project.yml", "nvflare provision -p {file} -w kits"),
    _Kind.schedule: (
        "prefect.yaml",
        "prefect work-pool create flareclust --type process && prefect --no-prompt deploy --all",
    ),
    _Kind.sweep: ("sweep.toml", "flareclust sweep {file}"),
    _Kind.team: ("compose.yaml", "docker compose --file {file} up --detach"),
}


def init(
    what: Annotated[
        _Kind, typer.Argument(help="A provisioned federation, Prefect's deployments, a sweep, or servers for a team.")
    ],
    folder: Annotated[Path, typer.Argument(help="Where to write the file.")] = Path(),
) -> None:
    """Write a commented project.yml, prefect.yaml, sweep.toml or compose.yaml to start from; it overwrites nothing."""
    name, command = _FILES[what]
    file, text = folder / name, files("flareclust.cli.templates").joinpath(name).read_text(encoding="utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UserError(f"{file} is there already; name another folder") from None
    say(f"{file}: put in your own names and values, then: {command.format(file=file)}")
