"""Clusters of a new result under the numbers that they had in an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import IntArray
from flareclust.evaluation.continuity import Clusters, compare
from flareclust.experiment.results.picture import is_embedded
from flareclust.preparation import result as partial
from flareclust.preparation.placement import reach_of
from flareclust.preparation.scaling import as_clustered, of_directions
from flareclust.protocol import cluster_arrays

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result


def _renumbered(result: "Result", order: Sequence[int]) -> "Result":
    """Return a result whose cluster r is what was cluster `order[r]`, in everything that it says of its clusters.

    It is in no file yet, whatever `result` is.

    Raises:
        UserError: `order` is not the numbers of the clusters in another order.
    """
    if sorted(order) != list(range(result.centroids_found)):
        raise UserError(f"order: expected the numbers 0 to {result.centroids_found - 1}, each once; got {list(order)}")
    numbers = cluster_arrays.inverse(order)
    arrays = cluster_arrays.renumbered_arrays({**result.arrays, "centroids": result.centroids}, order)

    def relabelled(by_site: Mapping[str, IntArray]) -> dict[str, IntArray]:
        return {site: cluster_arrays.renumbered_labels(labels, numbers) for site, labels in by_site.items()}

    if (outcome := result.outcome) is not None:
        own = cluster_arrays.renumbered_arrays(outcome.arrays, order)
        outcome = replace(outcome, arrays=own, labels=relabelled(outcome.labels))
    before, rows = result.job_numbers or range(result.centroids_found), result.saved_rows
    return replace(
        result,
        centroids=arrays["centroids"],
        labels=cluster_arrays.renumbered_labels(result.labels, numbers),
        site_labels=relabelled(result.site_labels),
        arrays=arrays,
        outcome=outcome,
        saved_rows=None if rows is None else tuple(rows[r] for r in order),
        job_numbers=tuple(before[r] for r in order),
        centroids_file=None,
        stability=tuple(replace(result.stability[r], cluster=c) for c, r in enumerate(order) if result.stability),
    )


def matched(result: "Result", earlier: "Result", name: str) -> "Result":
    """Return a result under the numbers of an earlier one, with what became of its clusters and warnings where they changed.

    Distances are in the space in which the earlier clusters were computed; `name` is that of the earlier one, for texts.

    Raises:
        UserError: the two cannot be compared; the text says why.
    """
    if problem := _why_not(result, earlier):
        raise UserError(f"the clusters cannot be matched to those of {name}: {problem}")
    arrays, centroids = {**earlier.arrays, "centroids": earlier.centroids}, result.centroids
    if result.columns is not None and earlier.columns is not None:
        centroids = np.ascontiguousarray(centroids[:, [result.columns.index(name) for name in earlier.columns]])
    reach = reach_of(arrays, earlier.metrics.get("inertia"), (earlier.assessed or {}).get("rows"))
    old = Clusters(as_clustered(arrays, earlier.centroids), earlier.cluster_rows, reach)
    found = compare(old, Clusters(as_clustered(arrays, centroids), result.cluster_rows))
    metrics = {**result.metrics, "drift_centroids": found.moved_most, "drift_shares": found.shares_moved}
    return replace(
        _renumbered(result, found.order),
        matched_to=name,
        continuity=found,
        metrics=metrics,
        warnings=[*result.warnings, *found.changes(name), *found.drift(name, result.row_name)],
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
    if differ := columns_differ(result.columns, earlier.columns):
        return differ
    d, before = result.centroids.shape[1], earlier.centroids.shape[1]
    return "" if d == before else f"it has {before} columns, and the new one {d}"


def columns_differ(own: Sequence[str] | None, others: Sequence[str] | None) -> str:
    """Return which columns only one of a run and an earlier result has, in a few words; "" for none, or where one has no names."""
    if own is None or others is None or set(own) == set(others):
        return ""
    more, less = sorted(set(own) - set(others)), sorted(set(others) - set(own))
    said = [f"only {where} has {some(names, 6)}" for where, names in (("the new one", more), ("it", less)) if names]
    return f"the columns differ: {', and '.join(said)}"
