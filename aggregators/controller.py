"""The path by which jobs name the controller; the class is in `flareclust.flare.controller`, in a higher layer."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module("flareclust.flare.controller"), name)
