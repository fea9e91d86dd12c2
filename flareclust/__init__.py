"""Federated clustering for NVIDIA FLARE.

The public surface: `run` a federation from Python, get a `recipe` for NVFlare's own environments, list the
`algorithms`, and read a `Result`. Everything else may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flareclust._foundation.version import __version__ as __version__

if TYPE_CHECKING:
    from flareclust._foundation.errors import FlareclustError as FlareclustError
    from flareclust._foundation.errors import JobFailed as JobFailed
    from flareclust._foundation.errors import UserError as UserError
    from flareclust.api import run as run
    from flareclust.core.fuzzy import memberships as memberships
    from flareclust.engines.recipe import recipe as recipe
    from flareclust.experiment.result import Result as Result
    from flareclust.protocol.registry import Algorithm as Algorithm
    from flareclust.protocol.registry import algorithms as algorithms

# Imported on first use: a site's process loads this package too, and needs a few modules of it only.
_PUBLIC = {
    "run": "flareclust.api",
    "recipe": "flareclust.engines.recipe",
    "algorithms": "flareclust.protocol.registry",
    "memberships": "flareclust.core.fuzzy",
    "Algorithm": "flareclust.protocol.registry",
    "Result": "flareclust.experiment.result",
    "FlareclustError": "flareclust._foundation.errors",
    "UserError": "flareclust._foundation.errors",
    "JobFailed": "flareclust._foundation.errors",
}

__all__ = [
    "Algorithm",
    "FlareclustError",
    "JobFailed",
    "Result",
    "UserError",
    "__version__",
    "algorithms",
    "memberships",
    "recipe",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'flareclust' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """List the public names, whether imported yet or not."""
    return __all__
