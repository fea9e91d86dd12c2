"""Rows of clusters as pages and terminals show them: under a policy without those that it withholds, nor totals from which they follow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import IntArray
from flareclust.evaluation.profiles import profiles_of
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result


def floor_of(result: "Result") -> int:
    """Return the fewest rows that a run's own policy lets a site show of a cluster; 0 without one, and under differential privacy."""
    policy = result.experiment.get("policy")
    private = "differentially-private" in registry.get(result.algorithm).promises
    return 0 if policy is None or private else Policy.of(policy).min_count


def shown_labels(result: "Result") -> Mapping[str, IntArray]:
    """Return the labels (n,) by site as far as they are here; under a policy -1 for rows whose number in their cluster it withholds.

    That is a number below the floor at its site, also with secure sums: sites leave it out of these, too.
    """
    k, floor, labels = result.centroids_found, floor_of(result), result.site_labels
    if not floor:
        return labels
    counts = {site: np.bincount(own[own >= 0], minlength=k) for site, own in labels.items()}
    return {site: np.where((own >= 0) & (counts[site] >= floor)[own], own, -1) for site, own in labels.items()}


def counts_by_site(result: "Result") -> Mapping[str, IntArray]:
    """Return the rows of each cluster (k,) by site, of `shown_labels`, else as the sites have described them; {} if unknown."""
    k, profiles = result.centroids_found, profiles_of(result.arrays, result.columns)
    if result.site_labels and not result.experiment.get("secure_sums"):
        labels = sorted(shown_labels(result).items())
        return {site: np.bincount(own[own >= 0], minlength=k) for site, own in labels}
    return {} if profiles is None else profiles.site_rows or {}


def shown_sizes(result: "Result") -> IntArray | None:
    """Return the rows of each cluster (k,) that may be shown, None where they are unknown; under a policy those of `shown_labels`."""
    rows, floor = result.cluster_rows, floor_of(result)
    if rows is None or not floor:
        return rows
    if not result.site_labels:
        return np.where(rows < floor, 0, rows)
    labels = np.concatenate(list(shown_labels(result).values()))
    return np.bincount(labels[labels >= 0], minlength=len(rows))


def withholds(result: "Result") -> bool:
    """Return whether `shown_sizes` lacks rows, so that a total of all rows would tell how many."""
    rows, shown = result.cluster_rows, shown_sizes(result)
    return rows is not None and shown is not None and int(shown.sum()) < int(rows.sum())


def size_text(rows: int, floor: int) -> str:
    """Return a number of rows as text: few where a policy withholds it."""
    return "few" if floor and not rows else f"{rows:,}"
