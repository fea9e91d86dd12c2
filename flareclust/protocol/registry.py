"""Every algorithm, one line each; jobs, command line, conformance suite and documentation read this table.

Other packages add lines through the entry point group `flareclust.algorithms`: each entry names an `Algorithm`.
"""

from importlib.metadata import entry_points

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import did_you_mean
from flareclust.protocol.algorithm import Algorithm
from flareclust.protocol.built_in import BUILT_IN

__all__ = ["BUILT_IN", "Algorithm", "algorithms", "get", "name_of"]

_BUILT_IN_BY_NAME = {algorithm.name: algorithm for algorithm in BUILT_IN}


def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms by name: the built-in ones and those of installed packages."""
    table = {algorithm.name: algorithm for algorithm in BUILT_IN}
    for entry in entry_points(group="flareclust.algorithms"):
        try:
            added = entry.load()
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"the algorithm of entry point {entry.name!r} ({entry.value}) cannot be loaded: {error}"
            ) from error
        if not isinstance(added, Algorithm) or added.name in table:
            raise UserError(f"entry point {entry.name!r} must name an Algorithm with a name of its own, got {added!r}")
        table[added.name] = added
    return table


def get(name: str) -> Algorithm:
    """Return the algorithm called `name`, or raise UserError with the nearest name."""
    if name in _BUILT_IN_BY_NAME:  # a look at all packages installed takes longer than a small federation
        return _BUILT_IN_BY_NAME[name]
    table = algorithms()
    if name not in table:
        raise UserError(f"unknown algorithm {name!r}{did_you_mean(name, table)}; known: {', '.join(table)}")
    return table[name]


def name_of(executor: type) -> str | None:
    """Return the name of the algorithm with this executor; None where none is registered."""
    path = f"{executor.__module__}.{executor.__qualname__}"
    builtin = (algorithm.name for algorithm in BUILT_IN if algorithm.executor == path)
    name = next(builtin, None)
    return name or next((added.name for added in algorithms().values() if added.executor == path), None)
