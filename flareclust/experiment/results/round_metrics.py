"""Round by round: how good the centroids of every round were, where this process sees the rows.

In a real federation nobody does; there the aggregator's own numbers are all that is known of a round.
"""

from dataclasses import replace

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import assign
from flareclust.core.rounds import HISTORY
from flareclust.evaluation.metrics import ari, l2_distance
from flareclust.experiment.prepared import Prepared, arrays_of
from flareclust.features.scaling import filled
from flareclust.features.space import as_clustered
from flareclust.protocol.outcome import Outcome, is_round


def with_round_metrics(outcome: Outcome, prepared: Prepared) -> Outcome:
    """Return the outcome with `pooled_inertia`, `ari` and `l2` of every round's centroids among its diagnostics.

    For algorithms that keep the centroids of their rounds. The last two need the truth. Rows belong to the nearest
    centroid here, whatever labels the algorithm itself gives.
    """
    if HISTORY not in outcome.arrays:
        return outcome
    history = outcome.arrays[HISTORY]
    X, y = _rows(outcome, prepared)
    rounds = [r for r, record in enumerate(outcome.rounds) if is_round(record)][-len(history) :]
    if not len(X) or X.shape[1] != history.shape[2] or len(rounds) < len(history):
        return outcome
    X = as_clustered(outcome.arrays, X)
    true = None if prepared.dataset is None else prepared.dataset.centroids
    records = list(outcome.rounds)
    for r, padded in zip(rounds, history, strict=True):
        centroids = padded[~np.isnan(padded).any(axis=1)]
        labels, squared = assign(X, as_clustered(outcome.arrays, centroids))
        numbers = {"pooled_inertia": float(squared.sum())}
        if y is not None:
            numbers["ari"] = ari(labels, y)
        if true is not None:
            numbers["l2"] = l2_distance(centroids, true)
        known = records[r]["diagnostics"]
        assert isinstance(known, dict)
        records[r] = {**records[r], "diagnostics": {**known, **numbers}}
    return replace(outcome, rounds=records)


def _rows(outcome: Outcome, prepared: Prepared) -> tuple[FloatArray, IntArray | None]:
    """Return the rows (n, d) of the sites that took part, and their true labels (n,) where they are known."""
    d = outcome.centroids.shape[1]
    arrays = arrays_of(prepared, skip_unreadable=True)
    sites = [site for site in outcome.sites if site in arrays and site not in outcome.refused]
    sites = [site for site in sites if arrays[site].shape[1] == d and len(arrays[site])]
    X = (
        np.concatenate([filled({**outcome.arrays, "centroids": outcome.centroids}, arrays[site]) for site in sites])
        if sites
        else np.empty((0, d))
    )
    dataset, index = prepared.dataset, prepared.index
    if dataset is None or dataset.y is None or index is None or not sites:
        return X, None
    return X, dataset.y[np.concatenate([index[site] for site in sites])]
