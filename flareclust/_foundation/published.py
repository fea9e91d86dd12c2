"""The paths by which jobs, kits and project files name classes, where these are in other modules now (docs/adr/0034-nvflare-in-one-package.md).

A module of each path is in `sys.modules` from the first import of the package on, as `os.path` is. It is empty: what is asked
of it is imported from its place then.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

#: By the path that stands in jobs and kits: the module with its classes.
_PLACES: Mapping[str, str] = MappingProxyType(
    {
        "flareclust.aggregators.base": "flareclust.federation.aggregator",
        "flareclust.aggregators.controller": "flareclust.platform.controller",
        "flareclust.executors.base": "flareclust.federation.executor",
        "flareclust.engines.admission": "flareclust.platform.admission",
        "flareclust.engines.log_streaming": "flareclust.platform.log_streaming",
        "flareclust.engines.server": "flareclust.platform.server",
        "flareclust.flare": "flareclust.platform",
        "flareclust.flare.client_selection": "flareclust.platform.client_selection",
        "flareclust.launcher": "flareclust.platform.launcher",
        "flareclust.privacy.filters": "flareclust.platform.filters",
        "flareclust.provision": "flareclust.platform.provision",
    }
)

_Class = TypeVar("_Class", bound=type)


class _Published(ModuleType):
    def __init__(self, path: str, place: str) -> None:
        super().__init__(path, f"Jobs and kits name by it what is in {place}.")
        self.__file__ = _file_of(path)  # NVFlare writes no class into a job whose file is not that of its module
        self.__loader__ = SourceFileLoader(path, _file_of(place))
        self.__spec__ = ModuleSpec(path, self.__loader__, origin=self.__file__)
        if any(other.startswith(f"{path}.") for other in _PLACES):
            self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(_PLACES[self.__name__]), name)


def _file_of(module: str) -> str:
    folder = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    return str(folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py"))


def register() -> None:
    """Make the paths importable in this process."""
    for path, place in _PLACES.items():
        sys.modules.setdefault(path, _Published(path, place))


def published(cls: _Class) -> _Class:
    """Have a class say that its module is the path by which jobs name it: NVFlare writes that into a job."""
    cls.__module__ = next(path for path, place in _PLACES.items() if place == cls.__module__)
    return cls
