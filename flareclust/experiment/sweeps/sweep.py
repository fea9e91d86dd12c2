"""A sweep: a grid of experiments over algorithms with their settings, data, partitions, k and seeds; read from a TOML file.

`read_sweep` reads and checks the file, `trials` makes the list that a `flareclust.experiment.sweeps.trials.Runner` runs.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.settings import setting
from flareclust._foundation.validation import check_choice, check_int
from flareclust.data.partition_specs import parse
from flareclust.engines.options import Quorum
from flareclust.experiment.config import Engine, Experiment, make_experiment, usual_experiment
from flareclust.experiment.prepare import Source, prepare
from flareclust.experiment.sweeps.trials import Trial, data_name, experiment_trial, is_known, load_source
from flareclust.experiment.tables.typed_rows import settled_settings
from flareclust.protocol import registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MOST_WORKERS, _SEEDS = 64, 2**32
#: More trials than this are taken for a typing error.
_MOST_TRIALS = 100_000


class _Choice(NamedTuple):
    """One algorithm with one value for each of its settings that the sweep names."""

    name: str
    label: str
    params: Mapping[str, Any]


def _check_different(what: str, values: Sequence[Any]) -> None:
    """Raise UserError for an empty list, or one with a value twice."""
    if not values:
        raise UserError(f"{what}: expected at least one value, got an empty list")
    if doubles := [text for text, count in Counter(map(repr, values)).items() if count > 1]:
        raise UserError(f"{what}: {', '.join(doubles)} is there more than once; its trials would be the same")


def _check_number(lists: str, trials: int) -> None:
    if trials > _MOST_TRIALS:
        raise UserError(f"{lists} make {trials} trials, and at most {_MOST_TRIALS} can be run; shorten them")


def _listed(value: Any) -> list[Any]:
    """Return a list as it is, and another value as a list of one."""
    return list(value) if isinstance(value, list) else [value]


def _expand(algorithms: Sequence[str | Mapping[str, Any]]) -> list[_Choice]:
    """Return every algorithm with every combination of its settings' values."""
    return [choice for entry in algorithms for choice in _choices(entry)]


def _choices(entry: str | Mapping[str, Any]) -> list[_Choice]:
    """Return an algorithm with the combinations, which the settings with several values tell apart: `kfed k_local=3`.

    Raises:
        UserError: the algorithm or a setting is unknown, a list of values is empty, or a label cannot be used.
    """
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise UserError(f"each of algorithms must be a name, or a table with a name, got {entry!r}")
    name, label = entry["name"], entry.get("label", entry["name"])
    if not isinstance(label, str) or not label.strip() or set(label) & set("/'\"`\\\n"):
        raise UserError(f"label must be a text without slashes, quotes and backslashes, got {label!r}")
    grid = {key: _listed(value) for key, value in entry.items() if key not in ("name", "label")}
    registry.get(name).check_names(grid)
    for key, values in grid.items():
        _check_different(f"{key} of {label}", values)
    _check_number(f"the lists of {label}", math.prod(map(len, grid.values())))
    several = [key for key, values in grid.items() if len(values) > 1]
    combined = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [_Choice(name, " ".join([label, *(f"{key}={_text(p[key])}" for key in several)]), p) for p in combined]


def _text(value: Any) -> str:
    return "+".join(map(_text, value)) if isinstance(value, list) else str(value)


#: The runners, each with the extra that it needs; threads need none.
_RUNNERS = {"threads": None, "processes": "flows", "dask": "dask", "ray": "ray"}
_CLUSTERS = ("dask", "ray")


@dataclass(frozen=True)
class SweepRunner:
    """A runner, and the address of the cluster that it uses; without one, a cluster on this machine is started."""

    name: str = "threads"
    address: str | None = None

    @property
    def local(self) -> bool:
        """Return whether trials run in threads of this process."""
        return self.name == "threads"

    def require(self) -> None:
        """Raise UserError where a package of the runner is missing."""
        if extra := _RUNNERS[self.name]:
            require(extra, f"the runner {self.name!r}")


#: Threads of this process.
THREADS = SweepRunner()


def parse_runner(text: object) -> SweepRunner:
    """Return the runner that a text names: `threads`, `processes`, `dask`, `ray`, `dask:ADDRESS` or `ray:ADDRESS`; else raise
    UserError.
    """
    if not isinstance(text, str):
        raise UserError(f"runner must be a text, got {text!r}")
    name, colon, address = text.partition(":")
    check_choice("runner", name, tuple(_RUNNERS))
    if colon and name not in _CLUSTERS:
        raise UserError(f"the runner {name!r} takes no address, got {text!r}; only {' and '.join(_CLUSTERS)} do")
    if colon and not address:
        raise UserError(f"the address of the {name} cluster is missing in {text!r}, such as dask:tcp://127.0.0.1:8786")
    return SweepRunner(name, address or None)


class Sweep(Quorum):
    """A sweep as its file has it. Values that are lists are tried one by one."""

    renamed: ClassVar[Mapping[str, str]] = {"schema": "table_schema"}

    name: str = Field(description="Name of the study; its MLflow parent run is called so.")
    data: str | list[str] = Field(
        description='Data sets\' names, table files, or with partition "none" folders with one file per site.'
    )
    algorithms: list[str | dict[str, Any]] = Field(
        description="Names, or tables with `name`, maybe `label`, and settings; a setting's list is tried value by value."
    )
    seeds: int | list[int] = Field(default=10, description="n for 0 ... n-1, or a list.")
    n_sites: int = setting("n_sites", 10, ge=1)
    partitions: str | list[str] = setting("partition", "iid")
    k: int | list[int] | None = Field(
        default=None, description="Numbers of clusters; None for those that are known of the data sets."
    )
    table_schema: str | None = setting("table_schema")
    id_column: str | None = setting("id_column")
    truth: str | None = setting("truth")
    engine: Engine = Field(
        default="inprocess",
        description="inprocess or simulator; baselines that are not federated always run in-process.",
    )
    profile: bool = setting("profile", False)
    mlflow_experiment: str = Field(default_factory=usual_experiment, description="Name of the MLflow experiment.")
    workers: int = Field(default=2, ge=1, description="Trials that run side by side.")
    runner: str = Field(default="threads", description="Where they run, see `parse_runner`.")

    @field_validator("name", "mlflow_experiment", mode="before")
    @classmethod
    def _name(cls, value: Any, about: Any) -> Any:
        if not isinstance(value, str) or not value.strip() or set(value) & set("'\"`\\\n"):
            raise UserError(f"{about.field_name} must be a text without quotes and backslashes, got {value!r}")
        return value

    @field_validator("data", "partitions", mode="before")
    @classmethod
    def _texts(cls, value: Any, about: Any) -> Any:
        texts = _listed(value)
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise UserError(f"{about.field_name} must be a text or a list of at least one, got {value!r}")
        named = data_name if about.field_name == "data" else parse
        _check_different(about.field_name, [str(named(text)) for text in texts])
        return value

    @field_validator("seeds", "k", mode="before")
    @classmethod
    def _integers(cls, value: Any, about: Any) -> Any:
        name = about.field_name
        if name == "seeds" and isinstance(value, list):
            _check_different(name, [check_int("each of seeds", seed, minimum=0) for seed in value])
            if max(value) >= _SEEDS:
                raise UserError(f"each of seeds must be less than {_SEEDS}, got {max(value)}")
        elif value is not None or name == "seeds":
            _check_different(name, [check_int(name, one, minimum=1) for one in _listed(value)])
        return value

    @field_validator("workers")
    @classmethod
    def _workers(cls, value: int) -> int:
        if value > _MOST_WORKERS:
            raise UserError(f"workers must be at most {_MOST_WORKERS}, got {value}")
        return value

    @field_validator("runner", mode="before")
    @classmethod
    def _runner(cls, value: Any) -> Any:
        parse_runner(value)
        return value

    @field_validator("engine", mode="before")
    @classmethod
    def _engine(cls, value: Any) -> Any:
        return check_choice("engine", value, ("inprocess", "simulator"))

    @field_validator("algorithms", mode="before")
    @classmethod
    def _algorithms(cls, value: Any) -> Any:
        if not isinstance(value, list) or not value:
            raise UserError(f"algorithms must be a list of at least one name or table, got {value!r}")
        _check_different("the labels in algorithms", [choice.label for choice in _expand(value)])
        return value

    @model_validator(mode="after")
    def _as_a_whole(self) -> "Sweep":
        if not any(parse(text).name in ("none", "owners") for text in _listed(self.partitions)):
            self.check_enough(self.n_sites, f"n_sites={self.n_sites}")
        _check_number("these lists", self.n_trials)
        return self

    @property
    def n_trials(self) -> int:
        """Return how many trials the lists make."""
        seeds = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        lists = (_listed(self.data), _listed(self.partitions), _listed(self.k), _expand(self.algorithms))
        return seeds * math.prod(len(one) for one in lists)

    @property
    def seed_list(self) -> list[int]:
        """Return all seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


def read_sweep(
    path: str | Path, workers: int | None = None, in_experiment: str | None = None, runner: str | None = None
) -> Sweep:
    """Read a sweep's TOML file; files of data are looked for beside it, and arguments stand in place of what the file says.

    Raises:
        UserError: the file cannot be read, or a key is unknown, missing or has a value that it cannot have.
    """
    path = Path(path)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"the sweep {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UserError(f"{path} is not a TOML file: it is nested too deep") from None
    except ValueError as error:  # both of TOML and of UTF-8
        raise UserError(f"{path} is not a TOML file: {error}") from None
    if isinstance(data := settings.get("data"), str | list):
        beside = [_beside(path.parent, one) if isinstance(one, str) else one for one in _listed(data)]
        settings["data"] = beside if isinstance(data, list) else beside[0]
    if isinstance(schema := settings.get("schema"), str):
        settings["schema"] = _beside(path.parent, schema)
    given = {"workers": workers, "mlflow_experiment": in_experiment, "runner": runner}
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        return Sweep(**settings)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def trials(sweep: Sweep) -> list[Trial]:
    """Return the sweep's trials, all cells of one seed before the next seed; each data set is loaded once.

    Everything that can be checked without running is checked here, for the first seed.

    Raises:
        UserError: data cannot be loaded or split as asked, k is not known, or an algorithm refuses a setting.
    """
    points = product(_listed(sweep.data), _listed(sweep.k), _listed(sweep.partitions), _expand(sweep.algorithms))
    loaded: dict[tuple[str, bool, bool], tuple[Source, str]] = {}
    sizes: dict[tuple[str, int | None, str], tuple[int, int]] = {}
    by_seed: dict[int, list[Trial]] = {seed: [] for seed in sweep.seed_list}
    for data, k, partition, choice in points:
        cell = _cell(sweep, data, k, partition, choice)
        try:
            experiment = _experiment(sweep, data, k, partition, choice)
            kept = data, parse(partition).name == "none", experiment.rows.gaps
            if kept not in loaded:
                loaded[kept] = load_source(experiment)
            source, digest = loaded[kept]
            if (data, k, partition) not in sizes:
                prepared = prepare(experiment, source)
                sizes[data, k, partition] = prepared.k, len(prepared.sites)
            number, m = sizes[data, k, partition]
            experiment.check_enough(m)
            settled = registry.get(choice.name).parameters() | settled_settings(experiment)
            if (algorithm := registry.get(choice.name)).federated:
                algorithm.build(number, experiment.seed, experiment.params)
        except UserError as error:
            raise UserError(f"{'/'.join(cell.values())}: {error}") from None
        for seed, made in by_seed.items():
            trial = experiment_trial(experiment.model_copy(update={"seed": seed}), cell, source, **settled)
            # The same file in another folder is the same data, and a changed file of the same name is not.
            of = {"data": data_name(data), "data_digest": digest, "n_sites": m}  # which sites' own files decide
            made.append(replace(trial, params={**trial.params, **of}))
    return [trial for made in by_seed.values() for trial in made]


def _experiment(sweep: Sweep, data: str, k: int | None, partition: str, choice: _Choice) -> Experiment:
    algorithm = registry.get(choice.name)
    shared = {name: getattr(sweep, name) for name in Sweep.model_fields.keys() & Experiment.model_fields.keys()}
    cell: dict[str, Any] = {"algorithm": choice.name, "params": dict(choice.params), "seed": sweep.seed_list[0]}
    cell |= {"data": data, "k": k, "partition": partition}
    cell |= {"engine": sweep.engine if algorithm.federated else "inprocess"}
    return make_experiment(**shared | cell | {"profile": sweep.profile and not algorithm.why_no_profile(choice.params)})


def _cell(sweep: Sweep, data: str, k: int | None, partition: str, choice: _Choice) -> dict[str, str]:
    cell = {"algorithm": choice.label, "partition": str(parse(partition))}
    if len(_listed(sweep.data)) > 1:
        cell["data"] = data_name(data)
    if len(_listed(sweep.k)) > 1:
        cell["k"] = str(k)
    return cell


def _beside(folder: Path, text: str) -> str:
    return str(folder / text) if not is_known(text) and (folder / text).exists() else text
