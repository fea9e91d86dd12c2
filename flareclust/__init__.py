"""Federated clustering for NVIDIA FLARE.

The public surface: `run` a federation, `read_table`, `select_k`, `sweep` over a grid of experiments, `stability` of clusters, `advise` on the algorithm, `personalise` models, `load_result`, the estimators of
`flareclust.estimators`, a `recipe` for NVFlare's own environments, `Devices` for the rows of many small sites, and the table of `algorithms`. Everything else may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flareclust._foundation import published as _published
from flareclust._foundation.version import __version__ as __version__

_published.register()

if TYPE_CHECKING:
    from flareclust._foundation.errors import FlareclustError as FlareclustError
    from flareclust._foundation.errors import JobFailed as JobFailed
    from flareclust._foundation.errors import UserError as UserError
    from flareclust.api import run as run
    from flareclust.core.fuzzy import memberships as memberships
    from flareclust.data.devices import Devices as Devices
    from flareclust.estimators import FederatedKMeans as FederatedKMeans
    from flareclust.experiment.results.result import Result as Result
    from flareclust.experiment.tables.typed_files import read_table as read_table
    from flareclust.personal.result import PersonalResult as PersonalResult
    from flareclust.platform.recipe import recipe as recipe
    from flareclust.protocol.registry import Algorithm as Algorithm
    from flareclust.protocol.registry import algorithms as algorithms
    from flareclust.studies.advice import Advice as Advice
    from flareclust.studies.advice import advise as advise
    from flareclust.studies.personalised import personalise as personalise
    from flareclust.studies.select import KSelected as KSelected
    from flareclust.studies.select import select_k as select_k
    from flareclust.studies.stability import Stability as Stability
    from flareclust.studies.stability import stability as stability
    from flareclust.studies.sweeps import SweepResult as SweepResult
    from flareclust.studies.sweeps import sweep as sweep
    from flareclust.tracking.load import load_result as load_result

# Imported on first use: a site's process loads this package too, and needs a few modules of it only.
_PUBLIC = {
    "run": "flareclust.api",
    "read_table": "flareclust.experiment.tables.typed_files",
    "select_k": "flareclust.studies.select",
    "sweep": "flareclust.studies.sweeps",
    "advise": "flareclust.studies.advice",
    "Advice": "flareclust.studies.advice",
    "stability": "flareclust.studies.stability",
    "Stability": "flareclust.studies.stability",
    "load_result": "flareclust.tracking.load",
    "personalise": "flareclust.studies.personalised",
    "PersonalResult": "flareclust.personal.result",
    "FederatedKMeans": "flareclust.estimators",
    "KSelected": "flareclust.studies.select",
    "SweepResult": "flareclust.studies.sweeps",
    "recipe": "flareclust.platform.recipe",
    "algorithms": "flareclust.protocol.registry",
    "memberships": "flareclust.core.fuzzy",
    "Algorithm": "flareclust.protocol.registry",
    "Devices": "flareclust.data.devices",
    "Result": "flareclust.experiment.results.result",
    "FlareclustError": "flareclust._foundation.errors",
    "UserError": "flareclust._foundation.errors",
    "JobFailed": "flareclust._foundation.errors",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604 - names, by their modules


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'flareclust' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """List the public names, whether imported yet or not."""
    return __all__
