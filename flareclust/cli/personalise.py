"""The command `flareclust personalise`."""

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require_part
from flareclust.cli.entry import say
from flareclust.cli.settings import answer, takes

if TYPE_CHECKING:
    from flareclust.personal.result import PersonalResult


@takes("personalise")
def personalise(
    *,
    ctx: typer.Context,
    out: Path | None,
    export: Path | None,
    finished: list[Path] | None,
    track: bool | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Train one model per cluster of devices, and compare with one for all, one each, or IFCA."""
    require_part("personal", "flareclust personalise")
    if finished:
        given = {**_given(ctx, asked), "export": export, "track": track or None}
        _refuse("finished, which reads what was trained", given)
        result = _read(finished, out)
    elif export is not None:
        _refuse("export, which trains nothing", {"out": out, "track": track or None})
        return _export(export, _given(ctx, asked), as_json)
    else:
        _refuse("training here, without --export", {name: asked.pop(name) for name in ("clusters", "sites", "classes")})
        result = _train(asked, out, track is not False)
    answer(result.to_json(), as_json, _say_result, result)


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


def _say_result(result: "PersonalResult") -> None:
    last, sent = result.rounds()[-1], {way: result.bytes[way] / 1e6 for way in ("up", "down")}
    typer.echo(
        f"{result.settings['method']}: accuracy {result.final_accuracy:.3f} over {len(result.names)} devices "
        f"({last['least']:.3f} to {last['largest']:.3f}) after {len(result.accuracy)} rounds; "
        f"{sent['up']:.1f} MB up, {sent['down']:.1f} MB down; {result.seconds:.1f} s\nfiles: {result.folder}"
    )
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
