"""Which runs describe their clusters, and why others do not."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import UserError
from flareclust.data.schema.columns import read_schema
from flareclust.engines.options import JobOptions
from flareclust.evaluation.noisy_profiles import NoisyProfiles, noisy_profiles_of
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.protocol import registry

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

#: Up to so many columns with names are described unless a run says otherwise; images have more, and pixels say nothing.
MOST_COLUMNS = 60


def is_profiled(experiment: Experiment, prepared: Prepared) -> bool:
    """Return whether a run asks its sites for profiles: as it says, or where columns have names and are not too many.

    Many small sites are asked for them only where it says so, since they are asked one by one.
    """
    params = {**prepared.params, **experiment.params}
    if registry.get(experiment.algorithm).why_no_profile(params, secure_sums=experiment.secure_sums):
        return False
    if experiment.profile is not None:
        return experiment.profile
    if experiment.engine == "devices":
        return False
    columns = prepared.columns if prepared.dataset is None else prepared.dataset.columns
    return columns is not None and len(columns) <= MOST_COLUMNS


def exports_profile(
    asked: bool | None, algorithm: str, params: Mapping[str, Any], options: JobOptions, schema: Path | None
) -> bool:
    """Return whether an exported job asks its sites for profiles: as it says, or where its schema has not too many features.

    Raises:
        UserError: it says so, and the algorithm has none with these settings.
    """
    why = registry.get(algorithm).why_no_profile(params, secure_sums=options.secure_sums)
    if asked and why:
        raise UserError(f"{why}; leave out --profile")
    by_default = schema is not None and len(read_schema(schema).features) <= MOST_COLUMNS
    return not why and (by_default if asked is None else asked)


def shown_noisy_profiles(result: "Result") -> NoisyProfiles | None:
    """Return the profiles of a result under differential privacy where they are shown; None where not, and of other results."""
    asked = result.experiment.get("profile")
    if asked is False or (asked is None and not (result.columns and len(result.columns) <= MOST_COLUMNS)):
        return None
    return noisy_profiles_of(result.arrays, result.centroids, result.columns)


def why_no_profiles(result: "Result") -> str:
    """Return why a result has no profiles, in one sentence."""
    none, secure_sums = "the clusters have no profile", bool(result.experiment.get("secure_sums"))
    if failed := [warning for warning in result.warnings if warning.startswith(none)]:
        return failed[0]
    problem = registry.get(result.algorithm).why_no_profile(result.params, secure_sums=secure_sums)
    return f"{none}: {problem or 'the run did not ask for it; run it with --profile (profile=True)'}"


def kept_from_profiles(result: "Result") -> str:
    """Return why a setting of a run keeps its clusters from being described, in one sentence; "" where none does.

    Of columns that a run describes unless it says otherwise, for algorithms that have profiles.
    """
    params, secure = result.params, bool(result.experiment.get("secure_sums"))
    algorithm, columns = registry.get(result.algorithm), result.columns or ()
    usual = 0 < len(columns) <= MOST_COLUMNS and result.experiment.get("profile") is not False
    kept = usual and not algorithm.why_no_profile({}) and algorithm.why_no_profile(params, secure_sums=secure)
    return why_no_profiles(result) if kept else ""
