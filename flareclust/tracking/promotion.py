"""Registered models: their versions in MLflow, and the rule by which one of them has an alias such as `champion`.

A new version takes the alias over if it is at least as good as the version that has it, and comes from at least as many
sites. What is compared is one metric of each version's own run, so each is judged by the rows of its own night. Models
with another number of clusters, or of another algorithm, are not compared: the metric says nothing about such a choice.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flareclust._foundation.errors import UserError
from flareclust.tracking.store import apart_from, connect, store_errors

#: Metrics that versions can be compared by, and the sign that makes the better value the larger one. Not inertia: it
#: grows with the number of rows, so a site with more patients than last night would look worse.
_METRICS: Mapping[str, int] = {
    "final/simplified_silhouette": 1,
    "final/davies_bouldin": -1,
    "final/ari": 1,
    "final/nmi": 1,
    "final/purity": 1,
    "final/accuracy": 1,
    "final/l2": -1,
    "final/mse_matched": -1,
}

METRIC = "final/simplified_silhouette"
#: How many sites a version comes from: those that took part to the end, the assessment too.
SITES = "final/sites_took_part"
#: How many centroids a version has, which can be fewer than k.
CENTROIDS = "final/centroids_found"
ALIAS = "champion"


@dataclass(frozen=True)
class _Version:
    """A version of a registered model, and what its run says: metrics by their names in MLflow, and the algorithm and k, if it does."""

    number: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    algorithm: str | None = None
    k: int | None = None


class Decision(NamedTuple):
    """Whether the new version takes the alias over, and why, in words that follow its name."""

    takes_over: bool
    reason: str


def decide(new: _Version, holder: _Version | None, metric: str = METRIC) -> Decision:
    """Return whether the new version takes the alias from the one that has it.

    - Nobody has it: yes.
    - The algorithms, k, or the numbers of centroids found differ: no, the two are not compared.
    - By the metric: if the new one is at least as good; equally good counts. If only one has the metric, that one; if
      neither has it, the alias stays, since nothing speaks for a change.
    - And, whatever the metric says, only if at least as many sites took part as for the one that has it.

    What a version does not say, as one whose run is gone, is not held against the other. UserError for a metric that is none
    of `_METRICS`.
    """
    check_metric(metric)
    if holder is None:
        return Decision(True, "is the first to have it")
    if holder.number == new.number:
        return Decision(True, "has it already")
    if unlike := _unlike(new, holder):
        keeps = f"version {holder.number} keeps it until somebody moves it by hand, on the model's page in MLflow"
        return Decision(False, f"{unlike}, so the two are not compared; {keeps}")
    decision = _by_metric(new, holder, metric)
    if decision.takes_over and (fewer := _fewer_sites(new, holder)):
        return Decision(False, f"{decision.reason}, but {fewer}; version {holder.number} keeps it")
    return decision


def _unlike(new: _Version, holder: _Version) -> str:
    """Return in which way the versions cannot be compared, in words that follow the new one's name; "" if they can."""
    if None not in (new.algorithm, holder.algorithm) and new.algorithm != holder.algorithm:
        return f"is of {new.algorithm}, and version {holder.number} is of {holder.algorithm}"
    if None not in (new.k, holder.k) and new.k != holder.k:
        return f"is of k={new.k}, and version {holder.number} is of k={holder.k}"
    mine, theirs = new.metrics.get(CENTROIDS), holder.metrics.get(CENTROIDS)
    if mine is not None and theirs is not None and mine != theirs:
        return f"has {mine:.0f} centroids, and version {holder.number} has {theirs:.0f}"
    return ""


def _by_metric(new: _Version, holder: _Version, metric: str) -> Decision:
    mine, theirs = new.metrics.get(metric), holder.metrics.get(metric)
    if mine is None:
        return Decision(False, f"has no {metric}; version {holder.number} keeps it")
    if theirs is None:
        return Decision(True, f"has {metric} {mine:.6g}, and version {holder.number} has none")
    if _METRICS[metric] * mine >= _METRICS[metric] * theirs:
        return Decision(True, f"has {metric} {mine:.6g}, at least as good as {theirs:.6g} of version {holder.number}")
    return Decision(False, f"has {metric} {mine:.6g}, worse than {theirs:.6g}; version {holder.number} keeps it")


def _fewer_sites(new: _Version, holder: _Version) -> str:
    """Return that fewer sites took part than for the holder; "" if they did not, or the holder does not say."""
    mine, theirs = new.metrics.get(SITES), holder.metrics.get(SITES)
    if theirs is None or (mine is not None and mine >= theirs):
        return ""
    number = "an unknown number of" if mine is None else f"{mine:.0f}"
    return f"comes from {number} sites and that from {theirs:.0f}"


def check_metric(metric: str) -> str:
    """Return a metric that versions can be compared by, or raise UserError."""
    if metric not in _METRICS:
        raise UserError(f"versions cannot be compared by {metric!r}; choose one of {', '.join(_METRICS)}")
    return metric


def check_alias(alias: str) -> str:
    """Return a name that MLflow takes as an alias, or raise UserError; it would only say so when the job is done."""
    if not re.fullmatch(r"[\w-]{1,255}", alias, re.ASCII) or re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise UserError(
            f"{alias!r} cannot be an alias: use letters, digits, - and _, and neither 'latest' nor v1, v2, ..."
        )
    return alias


def register(client: Any, run_id: str, model: Any, model_name: str) -> int:
    """Enter a run's LoggedModel in the registry under a name, and return its version; a second call returns the same one."""
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

    with apart_from("RESOURCE_ALREADY_EXISTS"):
        client.create_registered_model(model_name)
    known = client.search_model_versions(f"name = '{model_name}' and run_id = '{run_id}'")
    if known:
        return int(known[0].version)
    # Not models:/<id> as the source: the SQL registry looks that up in MLflow's global store, whichever it is.
    entry = client.create_model_version(model_name, model.artifact_location, run_id=run_id, model_id=model.model_id)
    # Links the logged model's page to the registry; MLflow's fluent interface does the same.
    links = json.loads(model.tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    links.append({"name": model_name, "version": entry.version})
    client.set_logged_model_tags(model.model_id, {MLFLOW_MODEL_VERSIONS: json.dumps(links)})
    return int(entry.version)


def _known(call: Callable[..., Any], *names: str) -> Any:
    """Return what MLflow answers; None where there is no such thing."""
    with apart_from("RESOURCE_DOES_NOT_EXIST"):
        return call(*names)


def version(client: Any, model_name: str, number: int) -> _Version:
    """Return a version with what its run says of it, nothing where the run is gone; UserError where there is no such version."""
    entry = _version_entry(client, model_name, number)
    run = _known(client.get_run, entry.run_id) if entry.run_id else None
    if run is None:
        return _Version(number)
    k = "" if "k_range" in run.data.params else run.data.params.get("k", "")  # of a range each run chooses its own
    return _Version(number, dict(run.data.metrics), run.data.params.get("algorithm"), int(k) if k.isdecimal() else None)


def _version_entry(client: Any, model_name: str, number: int) -> Any:
    """Return MLflow's entry of a version; UserError where there is none."""
    if (entry := _known(client.get_model_version, model_name, str(number))) is None:
        raise UserError(f"MLflow has no version {number} of the model {model_name!r}")
    return entry


def holder(client: Any, model_name: str, alias: str) -> _Version | None:
    """Return the version that has the alias; None if there is none, or no such model."""
    # Not get_model_version_by_alias, which answers an alias that nobody has as it answers a malformed one.
    model = _known(client.get_registered_model, model_name)
    if model is None or alias not in model.aliases:
        return None
    return version(client, model_name, int(model.aliases[alias]))


def run_of(uri: str, name: str) -> str:
    """Return the id of the run of "<model>@<alias>" or "<model>/<version>"; UserError where there is none."""
    model, at, which = name.rpartition("@") if "@" in name else name.rpartition("/")
    if not model or not at or (at == "/" and not which.isdecimal()):
        raise UserError(f"expected models:/<name>@<alias> or models:/<name>/<version>, got {'models:/' + name!r}")
    with store_errors(uri):
        client = connect(uri)
        if at == "@":
            if (found := holder(client, model, which)) is None:
                raise UserError(f"MLflow has no version of the model {model!r} with the alias {which!r}")
            which = str(found.number)
        entry = _version_entry(client, model, int(which))
    if not entry.run_id:
        raise UserError(f"version {which} of the model {model!r} was not registered by a run")
    return str(entry.run_id)
