"""The command that repeats a run."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import as_text
from flareclust.experiment.config import Experiment
from flareclust.experiment.tables.typed_rows import settled_settings

#: Options of `flareclust run` by the fields of an experiment, and what they are where they need not be given.
_OPTIONS = {
    "data": ("--data", ("sites",)),
    "partition": ("--partition", ("iid",)),
    "n_sites": ("--n-sites", (10,)),
    "seed": ("--seed", (0,)),
    "engine": ("--engine", ("simulator",)),
    "kit": ("--kit", ()),
    "criterion": ("--criterion", ("calinski-harabasz",)),
    "id_column": ("--id", ()),
    "truth": ("--truth", ()),
    "table_schema": ("--schema", ()),
    "min_sites": ("--min-sites", ()),
    "task_timeout": ("--task-timeout", (600,)),
    "match_to": ("--match-to", ()),
    "cohort": ("--cohort", ()),
    "dropout": ("--dropout", (0.0,)),
}


#: Those that `flareclust stability` does not have: it runs in one process, and describes no clusters.
_NOT_OF_STUDIES = ("engine", "kit", "min_sites", "task_timeout", "match_to", "cohort", "dropout", "profile")


def study_command(experiment: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return the command line that repeats a study of stability with the settings asked for; empty where there is none."""
    if any(experiment.get(name) not in (None, *_OPTIONS.get(name, ("", ()))[1]) for name in _NOT_OF_STUDIES[2:]):
        return ""
    without = {name: value for name, value in experiment.items() if name not in _NOT_OF_STUDIES}
    more = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return command_of(without, "stability", more)


def command_of(experiment: Mapping[str, Any], command: str = "run", more: Sequence[str] = ()) -> str:
    """Return the command line that runs an experiment again, with more options; empty for rows that were in memory."""
    if not experiment or experiment.get("data") == "own data":
        return ""
    words = ["flareclust", command, str(experiment["algorithm"])]
    k_range = experiment.get("k_range")
    if k_range or experiment.get("k"):
        words += ["--k", f"{k_range[0]}..{k_range[1]}" if k_range else str(experiment["k"])]
    for name, (option, usual) in _OPTIONS.items():
        value = experiment.get(name)
        apart = experiment.get("partition") == "none" and name == "n_sites"
        own = (experiment.get("engine"), name) in (("production", "partition"), ("poc", "data"))
        if value is not None and value not in usual and not apart and not own:
            words += [option, _from_here(str(value)) if name == "table_schema" else str(value)]
    if experiment.get("columns"):
        words += ["--columns", ",".join(experiment["columns"])]
    if experiment.get("secure_sums"):
        words.append("--secure-sums")
    if experiment.get("policy"):
        words += ["--policy", "policy.yaml"]
    if experiment.get("profile") is not None:
        words.append("--profile" if experiment["profile"] else "--no-profile")
    for name, value in _given(experiment).items():
        words += ["--set", f"{name}={as_text(value)}"]
    return shlex.join([*words, *more])


def _given(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the algorithm, without those that a run of the same experiment settles again by itself."""
    params = experiment.get("params") or {}
    try:
        again = settled_settings(Experiment(**experiment))
    except UserError:  # the schema is no longer there, or the result is of a version with other settings
        return dict(params)
    again = json.loads(json.dumps(again))  # as the results have them: lists in place of tuples
    return {name: value for name, value in params.items() if name not in again or again[name] != value}


def _from_here(path: str) -> str:
    """Return a path relative to the working directory, where it is in it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
