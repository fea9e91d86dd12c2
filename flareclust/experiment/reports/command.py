"""The command that repeats a run."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.options import COMMANDS
from flareclust._foundation.settings import as_text
from flareclust.engines.options import RunSettings
from flareclust.experiment.config import NO_KIT, OWN_ROWS, Experiment
from flareclust.experiment.tables.typed_rows import settled_settings

#: The settings that a command has with their values, in this order.
_VALUED = (
    *("data", "partition", "n_sites", "seed", "engine", "kit", "criterion", "id_column", "truth", "table_schema"),
    *("query", "password"),
    *(name for name in RunSettings.model_fields if name not in ("seed", "secure_sums")),
    *("match_to", "start_from", "title", "row_name", "cohort", "dropout", "expect_sites", "wait_for", "wait_seconds"),
    "columns",
)


#: What stands in a command for the file of a policy that was given as a mapping.
UNNAMED_POLICY = "policy.yaml"

#: Those that `flareclust stability` does not have: it runs in one process, and describes no clusters.
_NOT_OF_STUDIES = tuple(name for name in (*_VALUED, "profile") if name not in COMMANDS["stability"])


def study_command(experiment: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return the command line that repeats a study of stability with the settings asked for; empty where there is none."""
    if any(_is_given(experiment, name) for name in _NOT_OF_STUDIES if name not in ("engine", "kit")):
        return ""
    without = {name: value for name, value in experiment.items() if name not in _NOT_OF_STUDIES}
    more = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return command_of(without, "stability", more)


def command_of(experiment: Mapping[str, Any], command: str = "run", more: Sequence[str] = ()) -> str:
    """Return the command line that runs an experiment again, with more options; empty for rows that were in memory, and for jobs of
    others."""
    if not experiment or experiment.get("data") == "own data" or experiment.get("kit") == NO_KIT:
        return ""
    words, k_range = ["flareclust", command, str(experiment["algorithm"])], experiment.get("k_range")
    if k_range or experiment.get("k"):
        words += ["--k", f"{k_range[0]}..{k_range[1]}" if k_range else str(experiment["k"])]
    for name in _VALUED:
        apart = experiment.get("partition") == "none" and name == "n_sites"
        own = (experiment.get("engine"), name) in (("production", "partition"), ("poc", "data"))
        if _is_given(experiment, name) and not apart and not own:
            value = experiment[name]
            value = str(value) if isinstance(value, str | int | float) else ",".join(value)
            if name == "table_schema" and Path(value).is_relative_to(Path.cwd()):
                value = str(Path(value).relative_to(Path.cwd()))
            words += [COMMANDS["run"][name].flag(name), value]
    if experiment.get("secure_sums"):
        words.append("--secure-sums")
    if experiment.get("policy"):
        words += ["--policy", experiment.get("policy_file") or UNNAMED_POLICY]
    if experiment.get("profile") is not None:
        words.append("--profile" if experiment["profile"] else "--no-profile")
    for name, value in _given(experiment).items():
        words += ["--set", f"{name}={as_text(value)}"]
    return shlex.join([*words, *more])


def _is_given(experiment: Mapping[str, Any], name: str) -> bool:
    """Return whether a setting is not what it is without the option; data are named even where they are the default."""
    return experiment.get(name) not in (None, OWN_ROWS if name == "data" else Experiment.model_fields[name].default)


def _given(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the algorithm, without those that a run of the same experiment settles again by itself."""
    params = dict(experiment.get("params") or {})
    if experiment.get("start_from"):
        params.pop("start", None)  # its centroids
    try:
        again = settled_settings(Experiment(**experiment))
    except UserError:  # the schema is no longer there, or the result is of a version with other settings
        return params
    again = json.loads(json.dumps(again))  # as the results have them: lists in place of tuples
    return {name: value for name, value in params.items() if name not in again or again[name] != value}
