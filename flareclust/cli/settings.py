"""Options that several commands share, tables of them, and settings of algorithms as `--set` takes them."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError

AlgorithmName = Annotated[str, typer.Argument(help="See `flareclust list`.")]
K = Annotated[
    str | None,
    typer.Option("--k", help="Number of clusters, or a range 5..25 to choose from; known for the named data sets."),
]
Seed = Annotated[int, typer.Option(help="Decides the partition and every random choice.")]
Settings = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting of the algorithm.")]
SecureSums = Annotated[bool, typer.Option("--secure-sums", help="Sites mask their sums; the server learns the total.")]
InExperiment = Annotated[
    str | None,
    typer.Option("--experiment", help="Name of the MLflow experiment; MLFLOW_EXPERIMENT_NAME or flareclust."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the result that is in the --out folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
PolicyFile = Annotated[
    Path | None,
    typer.Option(help="What simulated sites let out, a YAML file; real sites: flareclust site policy."),
]


class Reading(NamedTuple):
    """How the tables of a run are read."""

    columns: Annotated[str | None, typer.Option(help="Columns of the files to use, with commas; all by default.")] = (
        None
    )
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Schema by which your own tables are read (flareclust schema draft); NAME.mapping.yaml beside a table says how it differs."
        ),
    ] = None
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="The column with ids, where no schema says it: no feature, but in labels.csv."),
    ] = None
    truth: Annotated[
        str | None, typer.Option(help="The column with known classes, to compare the clusters with; no feature.")
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of an experiment by these options."""
        schema = None if self.schema is None else str(self.schema.absolute())
        own = {"columns": split_names(self.columns), "table_schema": schema}
        return {**own, "id_column": self.id_column, "truth": self.truth}


class OfJob(NamedTuple):
    """What a job has beside its algorithm, k and seed."""

    settings: Settings = []  # noqa: RUF012 - typer reads the default, nothing changes it
    min_sites: Annotated[int | None, typer.Option(help="Sites a round needs; more than half by default.")] = None
    task_timeout: Annotated[int, typer.Option(help="Seconds a site has for one task.")] = 600
    secure_sums: SecureSums = False

    def options(self) -> dict[str, Any]:
        """Return these options but for the settings of the algorithm."""
        return {name: value for name, value in self._asdict().items() if name != "settings"}


def with_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of each of its parameters that is a table: a NamedTuple, whose fields are options."""
    options, tables = list[Parameter](), {}
    for parameter in signature(command).parameters.values():
        if hasattr(parameter.annotation, "_fields"):
            tables[parameter.name] = parameter.annotation
            options += signature(parameter.annotation).parameters.values()
        else:
            options.append(parameter)
    shape = Signature([option.replace(kind=Parameter.KEYWORD_ONLY) for option in options])

    @wraps(command)
    def run(**given: Any) -> None:
        bound = shape.bind(**given)
        bound.apply_defaults()
        values = bound.arguments
        made = {name: table(*map(values.pop, table._fields)) for name, table in tables.items()}
        command(**values, **made)

    run.__signature__ = shape  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Return `key=value` pairs as a dict; values are JSON where they can be, else text.

    Raises:
        UserError: a pair has no `=`, or a key comes twice.
    """
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


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names in "a, b", None for None."""
    return None if text is None else tuple(name.strip() for name in text.split(","))
