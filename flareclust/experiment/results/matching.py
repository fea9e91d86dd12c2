"""Clusters of a new result under the numbers that they had in an earlier one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.evaluation.continuity import Clusters, compare
from flareclust.experiment.results.picture import is_embedded
from flareclust.preparation import result as partial
from flareclust.preparation.placement import thresholds_of
from flareclust.preparation.scaling import as_clustered, of_directions
from flareclust.protocol import cluster_arrays

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result


def renumbered(result: "Result", order: Sequence[int]) -> "Result":
    """Return a result whose cluster r is what was cluster `order[r]`, in everything that it says of its clusters.

    It is in no file yet, whatever `result` is.

    Raises:
        UserError: `order` is not the numbers of the clusters in another order.
    """
    if sorted(order) != list(range(result.centroids_found)):
        raise UserError(f"order: expected the numbers 0 to {result.centroids_found - 1}, each once; got {list(order)}")
    numbers = cluster_arrays.inverse(order)
    arrays = cluster_arrays.renumbered_arrays({**result.arrays, "centroids": result.centroids}, order)
    site_labels = {
        site: cluster_arrays.renumbered_labels(labels, numbers) for site, labels in result.site_labels.items()
    }
    outcome = result.outcome
    if outcome is not None:
        labels = {site: cluster_arrays.renumbered_labels(own, numbers) for site, own in outcome.labels.items()}
        outcome = replace(outcome, arrays=cluster_arrays.renumbered_arrays(outcome.arrays, order), labels=labels)
    before = result.job_numbers or range(result.centroids_found)
    rows = result.saved_rows
    return replace(
        result,
        centroids=arrays["centroids"],
        labels=cluster_arrays.renumbered_labels(result.labels, numbers),
        site_labels=site_labels,
        arrays=arrays,
        outcome=outcome,
        saved_rows=None if rows is None else tuple(rows[r] for r in order),
        job_numbers=tuple(before[r] for r in order),
        centroids_file=None,
        stability=tuple(replace(result.stability[r], cluster=c) for c, r in enumerate(order) if result.stability),
    )


def matched(result: "Result", earlier: "Result", name: str) -> "Result":
    """Return a result under the numbers of an earlier one, with what became of its clusters and warnings where they changed.

    Distances are in the space in which the earlier clusters were computed.

    Args:
        result: the new one.
        earlier: whose numbers are kept.
        name: of the earlier one, for texts.

    Raises:
        UserError: the two cannot be compared; the text says why.
    """
    if problem := _why_not(result, earlier):
        raise UserError(f"the clusters cannot be matched to those of {name}: {problem}")
    arrays = {**earlier.arrays, "centroids": earlier.centroids}
    found_rows = earlier.metrics.get("inertia"), (earlier.assessed or {}).get("rows")
    old = Clusters(
        as_clustered(arrays, earlier.centroids), earlier.cluster_rows, thresholds_of(arrays, *found_rows, times=1.0)
    )
    new = Clusters(as_clustered(arrays, _in_columns(result, earlier)), result.cluster_rows)
    found = compare(old, new)
    metrics = {**result.metrics, "drift_centroids": found.moved_most, "drift_shares": found.shares_moved}
    return replace(
        renumbered(result, found.order),
        matched_to=name,
        continuity=found,
        metrics=metrics,
        warnings=[*result.warnings, *found.changes(name), *found.drift(name)],
    )


def _why_not(result: "Result", earlier: "Result") -> str:
    """Return why the clusters of two results cannot be compared, in a few words; "" if they can."""
    both = result, earlier
    if any(partial.is_partial(one.arrays) for one in both):
        return "sites of one of them had different columns"
    if any(is_embedded(one.arrays) for one in both):
        return "its columns come from a network, which each run trains anew"
    if of_directions(result.arrays) != of_directions(earlier.arrays):
        return "one is of directions (metric=cosine), the other is not"
    own, others = result.columns, earlier.columns
    if own is not None and others is not None and set(own) != set(others):
        more, less = sorted(set(own) - set(others)), sorted(set(others) - set(own))
        said = [f"only {where} has {some(names, 6)}" for where, names in (("the new one", more), ("it", less)) if names]
        return f"the columns differ: {', and '.join(said)}"
    d, before = result.centroids.shape[1], earlier.centroids.shape[1]
    return "" if d == before else f"it has {before} columns, and the new one {d}"


def _in_columns(result: "Result", earlier: "Result") -> FloatArray:
    """Return the new centroids (k, d) with columns in the order of the earlier result."""
    if result.columns is None or earlier.columns is None:
        return result.centroids
    return np.ascontiguousarray(result.centroids[:, [result.columns.index(name) for name in earlier.columns]])
