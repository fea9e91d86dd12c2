"""Which version of a registered model has an alias such as `champion`: the rule, without MLflow.

A new version takes the alias over if it is at least as good as the version that has it. What is compared is one
metric of each version's own run, so each is judged by the rows of its own night.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from flareclust.errors import UserError

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
ALIAS = "champion"


@dataclass(frozen=True)
class Version:
    """A version of a registered model.

    Attributes:
        number: as MLflow counts them.
        metrics: of its run, by their names in MLflow; finite, since MLflow gets no others.
    """

    number: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """Whether the new version takes the alias over, and why, in words that follow its name."""

    takes_over: bool
    reason: str


def decide(new: Version, holder: Version | None, metric: str = METRIC) -> Decision:
    """Return whether the new version takes the alias from the one that has it.

    - Nobody has it: yes.
    - Both have the metric: if the new one is at least as good; equally good counts.
    - Only one has it: that one.
    - Neither has it: no, since nothing speaks for a change.

    Args:
        new: the version that was just registered.
        holder: the version that has the alias, None if there is none.
        metric: one of `METRICS`.

    Raises:
        UserError: versions cannot be compared by this metric.
    """
    sign = METRICS[check_metric(metric)]
    if holder is None:
        return Decision(True, "is the first to have it")
    if holder.number == new.number:
        return Decision(True, "has it already")
    mine, theirs = new.metrics.get(metric), holder.metrics.get(metric)
    if mine is None:
        return Decision(False, f"has no {metric}; version {holder.number} keeps it")
    if theirs is None:
        return Decision(True, f"has {metric} {mine:.6g}, and version {holder.number} has none")
    if sign * mine >= sign * theirs:
        return Decision(True, f"has {metric} {mine:.6g}, at least as good as {theirs:.6g} of version {holder.number}")
    return Decision(False, f"has {metric} {mine:.6g}, worse than {theirs:.6g}; version {holder.number} keeps it")


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
