"""The parameters and metrics of one run: parameters that are set, one unit per name of a metric."""

from collections.abc import Mapping
from typing import Any

from flareclust._foundation.typing import Array
from flareclust.experiment.config import Experiment
from flareclust.features.scaling import scaling_of
from flareclust.protocol import registry
from flareclust.protocol.outcome import numbers_of_sites

#: What decides a run and is always logged; other options only where they differ from their defaults.
_ALWAYS = ("algorithm", "data", "k", "partition", "n_sites", "seed", "engine")
#: Options that say how a run is kept and tried again, not what it is.
_KEPT = ("params", "tracking_uri", "mlflow_experiment", "retries")

#: Beginnings of the names of numbers with a length of the data in them: their unit is another one where columns were scaled.
_LENGTHS = ("inertia", "shift", "moved", "mean_square")
#: Numbers of a round that say the same as `cost/*` where there is one round.
_COST = ("bytes_up", "bytes_down", "seconds_merge")


def run_params(experiment: Experiment) -> dict[str, Any]:
    """Return what MLflow shows as parameters: what decides the run, options that were set, settings that have a value."""
    fields = Experiment.model_fields
    values = experiment.model_dump(mode="json", exclude=set(_KEPT))
    params = {name: values[name] for name in _ALWAYS}
    if experiment.partition == "none":
        del params["n_sites"]  # as many as have brought rows; the metrics say how many took part
    params |= {name: value for name, value in values.items() if name not in _ALWAYS and value != fields[name].default}
    settings = registry.get(experiment.algorithm).parameters() | experiment.params
    params |= {f"param.{name}": value for name, value in settings.items()}
    return {name: value for name, value in params.items() if value is not None}


def in_units(values: Mapping[str, float | None], arrays: Mapping[str, Array]) -> dict[str, float | None]:
    """Return numbers under names that each have one unit: `inertia_scaled` where columns were scaled.

    Args:
        values: by name.
        arrays: of the result.
    """
    scaled = scaling_of(arrays) is not None or bool(arrays.get("standardized", False))
    return {f"{name}_scaled" if scaled and name.startswith(_LENGTHS) else name: v for name, v in values.items()}


def round_numbers(record: Mapping[str, object], arrays: Mapping[str, Array], rounds: int) -> dict[str, float | None]:
    """Return a round's numbers for MLflow: the counts of sites in place of their names.

    Args:
        record: of the round.
        arrays: of the result.
        rounds: how many rounds the run has; with one, `cost/*` has its traffic.
    """
    sites, refused = numbers_of_sites(record)
    diagnostics = record["diagnostics"]
    assert isinstance(diagnostics, dict)
    own = {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
    if rounds == 1:
        own = {name: value for name, value in own.items() if name not in _COST}
    return {**in_units(diagnostics, arrays), **own, "sites": float(sites), "refused": float(refused)}
