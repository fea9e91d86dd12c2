"""What an experiment is: everything that decides its result, checked before anything starts."""

import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo, field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import check_choice
from flareclust.data.partition_specs import parse
from flareclust.evaluation.criteria import RULES, current_rule
from flareclust.evaluation.selection import parse_k
from flareclust.experiment.conflicts import conflict
from flareclust.experiment.fields import ExperimentFields
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry

#: What stands for the data of sites that have their own.
OWN_ROWS = "sites"


#: The settings of a run that have a name of their own in Python and on the command line.
OPTIONS = (
    *(
        "k",
        "seed",
        "data",
        "partition",
        "n_sites",
        "columns",
        "schema",
        "truth",
        "criterion",
        "engine",
        "kit",
        "policy",
    ),
    *("min_sites", "task_timeout", "secure_sums", "profile", "match_to", "out", "track"),
    *("cohort", "dropout"),
)


class Experiment(ExperimentFields):
    """One federated clustering of one data set."""

    @model_validator(mode="before")
    @classmethod
    def _own_rows(cls, values: Any) -> Any:
        """Fill in what provisioned sites leave no choice about, and refuse what they decide themselves."""
        if isinstance(values, dict) and values.get("kit") and values.get("engine") not in ("poc", "production"):
            raise ValueError("a kit is for the engine production (or poc); say --engine production, or engine=")
        if isinstance(values, dict) and values.get("policy") and values.get("engine") in ("poc", "production"):
            raise ValueError(
                "the sites of a provisioned federation have policies of their own (flareclust site policy KIT); leave out policy"
            )
        if not isinstance(values, dict) or values.get("engine") != "production":
            return values
        own = ("columns", "id_column", "truth")
        for name, only in (("data", OWN_ROWS), ("partition", "none"), *((name, None) for name in own)):
            if values.get(name, only) != only:
                raise ValueError(
                    f"the sites of a provisioned federation say themselves which rows they bring; leave out {name}"
                )
        if not values.get("kit"):
            raise ValueError(
                "the engine production needs the kit of the admin who submits the job, such as "
                "kits/clinics/prod_00/lead@hub.org (--kit, or kit=)"
            )
        return values | {"data": OWN_ROWS, "partition": "none"}

    @field_validator("k_range")
    @classmethod
    def _in_order(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        return None if value is None else parse_k(f"{value[0]}..{value[1]}")[1]

    @field_validator("criterion")
    @classmethod
    def _known_rule(cls, value: str) -> str:
        return check_choice("criterion", current_rule(value), RULES)

    @field_validator("policy")
    @classmethod
    def _checked_policy(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else Policy.of(value).to_json()

    @field_validator("register_as")
    @classmethod
    def _name_for_mlflow(cls, value: str | None) -> str | None:
        if value is not None and (not value.strip() or set(value) & set("/:.%\"'`\\")):
            raise ValueError(
                f"a model's name may not be empty or hold any of / : . % quotes and backslashes, got {value!r}"
            )
        return value

    @field_validator("algorithm")
    @classmethod
    def _known_algorithm(cls, value: str) -> str:
        return registry.get(value).name

    @field_validator("params")
    @classmethod
    def _current_names(cls, value: dict[str, Any], known: ValidationInfo) -> dict[str, Any]:
        return (
            registry.get(known.data["algorithm"]).params_class().current(value) if "algorithm" in known.data else value
        )

    @field_validator("partition")
    @classmethod
    def _known_partition(cls, value: str) -> str:
        parse(value)
        return value

    @model_validator(mode="after")
    def _known_parameters(self) -> "Experiment":
        registry.get(self.algorithm).check_names(self.params, OPTIONS)
        if problem := conflict(self):
            raise ValueError(problem)
        return self

    def key(self, *more: str) -> str:
        """Return a fingerprint of the experiment and `more`: equal for a retry, different for another run."""
        text = json.dumps([self.model_dump(mode="json"), *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def folder_name(experiment: Experiment, stamp: str) -> Path:
    """Return where a run's files go unless the user says so: `flareclust-runs/feca-iid-s0-<stamp>`."""
    partition = experiment.partition.replace(":", "-").replace(",", "-")
    name = f"{experiment.algorithm}-{partition}-s{experiment.seed}-{stamp}-{uuid.uuid4().hex[:6]}"
    return Path("flareclust-runs") / name


def make_experiment(**settings: Any) -> Experiment:
    """Return the Experiment, or raise UserError with what is wrong in plain words.

    k may be a range "5..25"; None for data, partition, n_sites, columns, kit, criterion or mlflow_experiment leaves them out.
    """
    settings = {Experiment.new_name(name, settings): value for name, value in settings.items()}
    for name in ("data", "partition", "n_sites", "columns", "kit", "criterion", "mlflow_experiment"):
        if settings.get(name, "") is None:
            del settings[name]
    if settings.get("engine") == "poc":
        settings |= _of_poc(settings)
    if isinstance(settings.get("k"), str | tuple | list | range):
        settings["k"], settings["k_range"] = parse_k(settings["k"])
    return Experiment(**settings)


def _of_poc(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the running POC's sites have; raise UserError where something else was asked for."""
    from flareclust.engines.poc import federation as poc

    federation = poc.find(Path(settings.get("kit") or poc.DEFAULT))
    own: dict[str, Any] = {"data": federation.data, "partition": federation.partition, "n_sites": federation.n_sites}
    own["table_schema"] = federation.schema
    for name, value in own.items():
        if settings.get(name) not in (None, value):
            raise UserError(
                f"the POC's sites have {name.removeprefix('table_')} {value}, not {settings[name]}; leave it out, or start another POC "
                "(flareclust poc down, flareclust poc up)"
            )
    return own
