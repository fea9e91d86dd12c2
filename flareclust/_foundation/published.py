"""Import paths that kits and jobs name, and that stay valid wherever the code behind them is."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def published(path: str) -> Callable[[Class], Class]:
    """Return a decorator for a class that jobs and kits name under the module `path`, not under its own."""

    import_module(path)  # NVFlare looks for the file of a class by the name of its module

    def rename(cls: Class) -> Class:
        cls.__module__ = path
        return cls

    return rename


def found_in(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a published module whose classes are in another one, in a higher layer."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(module), name)

    return find
