"""The axes of a sweep: lists of values, and algorithms with every combination of their settings' values."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.protocol import registry

#: More trials than this are taken for a typing error.
MOST_TRIALS = 100_000


@dataclass(frozen=True)
class Choice:
    """One algorithm with one value for each of its settings that the sweep names."""

    name: str
    label: str
    params: Mapping[str, Any]


def expand(algorithms: Sequence[str | Mapping[str, Any]]) -> list[Choice]:
    """Return every algorithm with every combination of its settings' values.

    Combinations are distinguished by the settings that have several values: `kfed k_local=3`.

    Raises:
        UserError: an algorithm or a setting is unknown, a list of values is empty, or a label cannot be used.
    """
    return [choice for entry in algorithms for choice in _choices(entry)]


def check_different(what: str, values: Sequence[Any]) -> None:
    """Raise UserError for an empty list, or one with a value twice."""
    if not values:
        raise UserError(f"{what}: expected at least one value, got an empty list")
    if doubles := [text for text, count in Counter(map(repr, values)).items() if count > 1]:
        raise UserError(f"{what}: {', '.join(doubles)} is there more than once; its trials would be the same")


def listed(value: Any) -> list[Any]:
    """Return a list as it is, and another value as a list of one."""
    return list(value) if isinstance(value, list) else [value]


def _choices(entry: str | Mapping[str, Any]) -> list[Choice]:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise UserError(f"each of algorithms must be a name, or a table with a name, got {entry!r}")
    name, label = entry["name"], entry.get("label", entry["name"])
    if not isinstance(label, str) or not label.strip() or set(label) & set("/'\"`\\\n"):
        raise UserError(f"label must be a text without slashes, quotes and backslashes, got {label!r}")
    grid = {key: listed(value) for key, value in entry.items() if key not in ("name", "label")}
    registry.get(name).check_names(grid)
    for key, values in grid.items():
        check_different(f"{key} of {label}", values)
    if (number := math.prod(map(len, grid.values()))) > MOST_TRIALS:
        raise UserError(
            f"the lists of {label} make {number} trials, and at most {MOST_TRIALS} can be run; shorten them"
        )
    several = [key for key, values in grid.items() if len(values) > 1]
    combined = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [Choice(name, " ".join([label, *(f"{key}={_text(p[key])}" for key in several)]), p) for p in combined]


def _text(value: Any) -> str:
    return "+".join(map(_text, value)) if isinstance(value, list) else str(value)
