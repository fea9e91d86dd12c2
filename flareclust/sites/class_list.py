"""Which classes a job may name: the exact import paths of ours that exported jobs name, in a kit's `class_allow_list`.

NVFlare calls whatever a job names under an entry of that list, with the job's arguments, function or class. So an entry
for a package, such as `flareclust.`, is an entry for each of its functions and for what its modules have imported
(docs/adr/0015-exact-classes.md).
"""

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import did_you_mean
from flareclust.protocol.registry import BUILT_IN, algorithms
from flareclust.protocol.schema import plain

#: NVFlare's names in a kit's resources, and what they mean there.
CLASSES, MODE = "class_allow_list", "class_list_enforcement_mode"
_EVERYTHING, _WARN, _ENFORCE = "*", "warn", "enforce"

#: What a server runs beside the aggregators of algorithms: the workflow, what counts the rows of late sites, and NVFlare's
#: FedAvg with a choice of clients, and what trains personalised models.
_SERVER = (
    "flareclust.aggregators.controller.ClusteringController",
    "flareclust.aggregators.placed.PlacedAggregator",
    "flareclust.flare.client_selection.SelectiveFedAvg",
    "flareclust.personal.aggregator.FedAvgAggregator",
    "flareclust.personal.aggregator.IFCAAggregator",
)

#: What a site runs beside the executors: what a job says of secure sums, and what the site puts into each job by itself where
#: its operator lets error logs go to the server; and what trains personalised models.
_SITE = (
    "flareclust.privacy.job_sums.SecureSums",
    "flareclust.engines.log_streaming.LogStreamer",
    "flareclust.personal.executor.FedAvgExecutor",
    "flareclust.personal.executor.IFCAExecutor",
)

#: What the classes of an algorithm are made from; by their names, for this module is part of what they are made of.
_BASES = ("flareclust.federation.executor.ClusteringExecutor", "flareclust.federation.aggregator.ClusteringAggregator")

_ADVICE = "flareclust site allow KIT"


def of_sites() -> tuple[str, ...]:
    """Return the classes of ours that jobs have at sites."""
    return (*_SITE, *(algorithm.executor for algorithm in BUILT_IN if algorithm.executor is not None))


def of_server() -> tuple[str, ...]:
    """Return the classes of ours that jobs name at the server."""
    return (*_SERVER, *(algorithm.aggregator for algorithm in BUILT_IN if algorithm.federated))


def of_plugins(names: Collection[str]) -> tuple[str, ...]:
    """Return the classes, of both sides, of algorithms that other packages have registered.

    Raises:
        UserError: an algorithm is unknown, with the nearest known one, is none of another package, or names no class.
    """
    plugins, found = installed_plugins(), list[str]()
    for name in names:
        if name in {algorithm.name for algorithm in BUILT_IN}:
            raise UserError(f"{name} is an algorithm of flareclust, whose classes are allowed without --plugin")
        if name not in plugins:
            known = ", ".join(plugins) or "none is installed here"
            raise UserError(
                f"no installed package has the algorithm {name!r}{did_you_mean(name, plugins)}; known: {known}"
            )
        line = algorithms()[name]
        for side, base in zip((line.executor_class(), line.aggregator_class()), _BASES, strict=True):
            if not (isinstance(side, type) and base in map(_path, side.__mro__)):
                expected = base.rpartition(".")[2]
                raise UserError(f"{name}: expected a subclass of {expected}, got {side!r}; only classes are allowed")
            found.append(_path(side))
    return tuple(found)


def installed_plugins() -> list[str]:
    """Return the names of the federated algorithms that other packages have registered here."""
    built_in = {algorithm.name for algorithm in BUILT_IN}
    return [name for name, algorithm in algorithms().items() if algorithm.federated and name not in built_in]


def _path(side: type) -> str:
    return f"{side.__module__}.{side.__qualname__}"


def reaches_functions(entry: str) -> bool:
    """Return whether an entry lets jobs call functions of flareclust, at once or through NVFlare's own functions.

    NVFlare compares an entry with the whole path, and with its beginning up to a dot; a dot at the end of the entry
    makes no difference to that. So a module without a dot at its end is as much a prefix as a package with one.
    """
    package, _, rest = entry.partition(".")
    if package == "flareclust":
        return entry not in {*of_sites(), *of_server()} and not of_another_version(entry)
    return not rest.rpartition(".")[2].lstrip("_")[:1].isupper() if package == "nvflare" else entry == _EVERYTHING


def of_another_version(entry: str) -> bool:
    """Return whether an entry names a class of flareclust that is not there in this version, so that nothing can be called."""
    module, _, name = entry.rpartition(".")
    if entry.partition(".")[0] != "flareclust" or not name[:1].isupper():
        return False
    try:
        return find_spec(module) is None or not hasattr(import_module(module), name)
    except (ImportError, ValueError):  # what it would be a module of is not there, or no package
        return True


def open_entries(resources: Mapping[str, Any]) -> list[str]:
    """Return what in a kit's resources lets jobs call functions of flareclust."""
    listed = resources.get(CLASSES, [])
    found = [repr(entry) for entry in listed if isinstance(entry, str) and reaches_functions(entry)]
    return [*found, f"{MODE} {_WARN!r}"] if resources.get(MODE) == _WARN else found


def problem_of(resources: Mapping[str, Any], file: Path) -> str | None:
    """Return why no job may run under a kit's resources, in words that follow the site's name; None if one may."""
    found = open_entries(resources)
    if not found:
        return None
    shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    return f"lets jobs call every function of flareclust ({shown} in local/{file.name}); run `{_ADVICE}` there"


def unlisted(resources: Mapping[str, Any], named: Iterable[str], file: Path) -> str | None:
    """Return that a kit's list lacks an import path that a job's settings name, in words that follow the site's name.

    None where the list has all of them as they are, and where there is no list, with which jobs may name any class.
    """
    allowed = resources.get(CLASSES)
    missing = [] if not allowed else [path for path in named if path not in allowed]
    if not missing:
        return None
    return f"does not allow {plain(missing[0])[:80]}; its operator adds it to {CLASSES} in local/{file.name}"


def enforced(resources: dict[str, Any]) -> list[str]:
    """Have NVFlare hold jobs to the list, where a kit says it should only warn; return what changes, a line each."""
    if resources.get(MODE) != _WARN:
        return []
    resources[MODE] = _ENFORCE
    return [f"{MODE}: {_ENFORCE} instead of {_WARN}, with which the list keeps nothing out"]
