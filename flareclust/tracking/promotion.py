"""Which version of a registered model has an alias such as `champion`: the rule, without MLflow.

A new version takes the alias over if it is at least as good as the version that has it, and comes from at least as many
sites. What is compared is one metric of each version's own run, so each is judged by the rows of its own night. Models
with another number of clusters, or of another algorithm, are not compared: the metric says nothing about such a choice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from flareclust._foundation.errors import UserError

#: Metrics that versions can be compared by, and the sign that makes the better value the larger one. Not inertia: it
#: grows with the number of rows, so a site with more patients than last night would look worse.
METRICS: Mapping[str, int] = {
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
class Version:
    """A version of a registered model.

    Attributes:
        number: as MLflow counts them.
        metrics: of its run, by their names in MLflow; finite, since MLflow gets no others.
        algorithm: of its run; None where the run does not say, or is gone.
        k: number of clusters that its run was to find; None likewise.
    """

    number: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    algorithm: str | None = None
    k: int | None = None


@dataclass(frozen=True)
class Decision:
    """Whether the new version takes the alias over, and why, in words that follow its name."""

    takes_over: bool
    reason: str


def decide(new: Version, holder: Version | None, metric: str = METRIC) -> Decision:
    """Return whether the new version takes the alias from the one that has it.

    - Nobody has it: yes.
    - The algorithms, k, or the numbers of centroids found differ: no, the two are not compared.
    - By the metric: if the new one is at least as good; equally good counts. If only one has the metric, that one; if
      neither has it, the alias stays, since nothing speaks for a change.
    - And, whatever the metric says, only if at least as many sites took part as for the one that has it.

    What a version does not say, as one whose run is gone, is not held against the other.

    Args:
        new: the version that was just registered.
        holder: the version that has the alias, None if there is none.
        metric: one of `METRICS`.

    Raises:
        UserError: versions cannot be compared by this metric.
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


def _unlike(new: Version, holder: Version) -> str:
    """Return in which way the versions cannot be compared, in words that follow the new one's name; "" if they can."""
    if None not in (new.algorithm, holder.algorithm) and new.algorithm != holder.algorithm:
        return f"is of {new.algorithm}, and version {holder.number} is of {holder.algorithm}"
    if None not in (new.k, holder.k) and new.k != holder.k:
        return f"is of k={new.k}, and version {holder.number} is of k={holder.k}"
    mine, theirs = new.metrics.get(CENTROIDS), holder.metrics.get(CENTROIDS)
    if mine is not None and theirs is not None and mine != theirs:
        return f"has {mine:.0f} centroids, and version {holder.number} has {theirs:.0f}"
    return ""


def _by_metric(new: Version, holder: Version, metric: str) -> Decision:
    mine, theirs = new.metrics.get(metric), holder.metrics.get(metric)
    if mine is None:
        return Decision(False, f"has no {metric}; version {holder.number} keeps it")
    if theirs is None:
        return Decision(True, f"has {metric} {mine:.6g}, and version {holder.number} has none")
    if METRICS[metric] * mine >= METRICS[metric] * theirs:
        return Decision(True, f"has {metric} {mine:.6g}, at least as good as {theirs:.6g} of version {holder.number}")
    return Decision(False, f"has {metric} {mine:.6g}, worse than {theirs:.6g}; version {holder.number} keeps it")


def _fewer_sites(new: Version, holder: Version) -> str:
    """Return that fewer sites took part than for the holder; "" if they did not, or the holder does not say."""
    mine, theirs = new.metrics.get(SITES), holder.metrics.get(SITES)
    if theirs is None or (mine is not None and mine >= theirs):
        return ""
    return (
        f"comes from {'an unknown number of' if mine is None else format(mine, '.0f')} sites and that from {theirs:.0f}"
    )


def check_metric(metric: str) -> str:
    """Return a metric that versions can be compared by, or raise UserError."""
    if metric not in METRICS:
        raise UserError(f"versions cannot be compared by {metric!r}; choose one of {', '.join(METRICS)}")
    return metric


def check_alias(alias: str) -> str:
    """Return a name that MLflow takes as an alias, or raise UserError; it would only say so when the job is done."""
    if not re.fullmatch(r"[\w-]{1,255}", alias, re.ASCII) or re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise UserError(
            f"{alias!r} cannot be an alias: use letters, digits, - and _, and neither 'latest' nor v1, v2, ..."
        )
    return alias
