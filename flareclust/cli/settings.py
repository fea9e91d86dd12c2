"""Options that several commands share, those of `flareclust._foundation.options` as a command's, and settings as `--set` takes them."""

import json
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from operator import getitem
from typing import Annotated, Any

import typer

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.options import COMMANDS, Option

AlgorithmName = Annotated[str, typer.Argument(help="See `flareclust list`.")]
InExperiment = Annotated[
    str | None,
    typer.Option("--experiment", help="Name of the MLflow experiment; MLFLOW_EXPERIMENT_NAME or flareclust."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def answer(found: object, as_json: bool, show: Callable[..., object], *given: object) -> None:
    """Print what a command has found as one JSON object if that is asked for, else have what is `given` shown to a person."""
    if as_json:
        typer.echo(json.dumps(found, allow_nan=False))
    else:
        show(*given)


def takes(words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives the command of these words its options, in the place of its `**asked`.

    Its parameters that are called as one of them get the value of that option, `asked` gets the others.
    """
    options = COMMANDS[words]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = []
        for parameter in signature(command).parameters.values():
            if parameter.kind is Parameter.VAR_KEYWORD:
                parameters += [_parameter(name, option) for name, option in options.items()]
            elif parameter.name not in options:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        shape = Signature(parameters)

        @wraps(command)
        def run(**given: Any) -> None:
            bound = shape.bind(**given)
            bound.apply_defaults()
            for name, option in options.items():
                if option.read is not None and bound.arguments[name] is not None:
                    bound.arguments[name] = option.read(bound.arguments[name])
            command(**bound.arguments)

        run.__signature__ = shape  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _parameter(name: str, option: Option) -> Parameter:
    shown_as: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "envvar": option.envvar}
    kind: Any = option.kind | None if option.default is None else option.kind
    annotation = getitem(Annotated, (kind, typer.Option(*option.flags, **shown_as)))
    default = Parameter.empty if option.default is ... else option.default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Return `key=value` pairs as a dict, values as JSON where they can be; raise UserError for no `=`, and for a key twice."""
    from flareclust._foundation.settings import from_text

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
