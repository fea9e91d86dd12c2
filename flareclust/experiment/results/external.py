"""The paper's measures of algorithms for sites with different columns, where the true classes are known.

They need the rows of all sites in this process, as a study has them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, never_abort
from flareclust.core.missing.grouping import nearest
from flareclust.evaluation.metrics import (
    accuracy,
    correct_aggregation,
    cosine,
    majority_class,
    optimal_centroids,
    relative_distance,
)
from flareclust.executors.local_clusters import LocalClustersExecutor
from flareclust.experiment.prepared import Prepared, in_places, tables_of
from flareclust.features.result import columns_of, is_partial
from flareclust.privacy.context import SiteContext
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome

#: What the measures E1, E2 (Algorithm 1) and E4, E5 (Algorithm 2) of the paper are called for each algorithm.
_AGGREGATION: Mapping[str, str] = {"masked": "e1", "proxy": "e4"}
_ACCURACY: Mapping[str, str] = {"proxy": "e5"}


def partial_truth(
    name: str,
    params: Mapping[str, Any],
    seed: int,
    prepared: Prepared,
    outcome: Outcome,
    labels: IntArray,
    policy: Policy | None = None,
) -> dict[str, float | None]:
    """Return `cosine`, `relative_distance`, and what of `e1`, `e2`, `e4`, `e5` the algorithm has; fractions from 0 to 1.

    Args:
        name: of the algorithm.
        params: its settings.
        seed: of the job.
        prepared: has a data set with classes; else there is nothing to compare with.
        outcome: of the federation.
        labels: of the rows of the data set (n,), -1 where there is none; a row at a site without one is an error.
        policy: that the sites were held to.
    """
    dataset, index = prepared.dataset, prepared.index
    if dataset is None or dataset.y is None or index is None or not is_partial(outcome.arrays):
        return {}
    rows, classes = _in_all_columns(prepared, outcome)
    if not rows:
        return {}
    true = optimal_centroids(list(rows.values()), [classes[site] for site in rows])
    metrics: dict[str, float | None] = {
        "cosine": _finite(cosine(outcome.centroids, true)),
        "relative_distance": _finite(relative_distance(outcome.centroids, true)),
    }
    taken = np.concatenate([index[site] for site in rows])
    known = labels[taken] >= 0
    if name in _AGGREGATION:
        metrics[_AGGREGATION[name]] = _aggregation(name, params, seed, prepared, outcome, classes, policy)
    if known.any():
        right = accuracy(labels[taken][known], dataset.y[taken][known])
        metrics[_ACCURACY.get(name, "e2")] = right * float(known.mean())
    return metrics


def _in_all_columns(prepared: Prepared, outcome: Outcome) -> tuple[dict[str, FloatArray], dict[str, IntArray]]:
    """Return the rows (n_i, D) of the sites that took part, NaN for what they lack, and the rows' classes (n_i,)."""
    columns = columns_of(outcome.arrays)
    assert prepared.index is not None
    assert prepared.dataset is not None
    assert prepared.dataset.y is not None
    rows, classes = {}, {}
    for site, table in tables_of(prepared, skip_unreadable=True).items():
        if site in outcome.refused or site not in columns.sites or table.columns is None:
            continue
        rows[site] = in_places(table, columns.names)
        classes[site] = prepared.dataset.y[prepared.index[site]]
    return rows, classes


def _aggregation(
    name: str,
    params: Mapping[str, Any],
    seed: int,
    prepared: Prepared,
    outcome: Outcome,
    classes: Mapping[str, IntArray],
    policy: Policy | None,
) -> float | None:
    """Return the share of local clusters that went to the right group; the sites' clustering is repeated for it."""
    executor, _ = registry.get(name).build(prepared.k, seed, params)
    assert isinstance(executor, LocalClustersExecutor)
    session, context = None, SiteContext(executor.min_count)
    if policy is not None:
        session, context = SiteSession(policy, ""), context.under(policy)
    columns, tables = columns_of(outcome.arrays), tables_of(prepared, skip_unreadable=True)
    numbers, groups = outcome.arrays["received_site"], outcome.arrays["received_group"]
    true = np.full(len(groups), -1, dtype=np.int64)
    for i in np.unique(numbers):
        site = columns.sites[i]
        if site not in classes:
            return None
        try:
            seen = tables[site] if session is None else session.microaggregated(tables[site])
            rows, _ = executor.shown(seen, columns.sent())
            clusters = executor.local_clustering(site, rows, stream(seed, 0, site), never_abort, context)
            local = clusters.labels
            if session is not None:
                local = nearest(executor.shown(tables[site], columns.sent())[0], clusters.centroids, executor.phi)
        except Refusal:
            return None
        true[numbers == i] = majority_class(local, classes[site], int((numbers == i).sum()))
    return correct_aggregation(groups, true)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
