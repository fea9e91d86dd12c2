"""Compare a federation's outcome with the truth, where there is one, and make a `Result` of it.

What is measured round by round, and the paper's measures of algorithms for sites with different columns, need the rows in this
process, as a study has them. In a real federation nobody sees them; there the aggregator's own numbers are all that is known of a round.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import numpy as np

from flareclust._foundation.display import in_unit
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import assign
from flareclust.core.missing.distances import nearest
from flareclust.core.rounds import HISTORY
from flareclust.evaluation import metrics as measures
from flareclust.evaluation.noisy_profiles import noisy_profiles_of
from flareclust.executors.local_clusters import LocalClustersParams, local_clusters
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared, in_places, names_of, tables_of
from flareclust.experiment.results.ended import Ended, left_out
from flareclust.experiment.results.picture import is_embedded, shown_images
from flareclust.experiment.results.result import Result
from flareclust.federation.site import rows_shown
from flareclust.preparation import result as partial
from flareclust.preparation.scaling import as_clustered, filled, of_directions
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol import cluster_arrays
from flareclust.protocol.outcome import Outcome, is_round
from flareclust.protocol.task import StepName, Task

#: What the measures E1, E2 (Algorithm 1) and E4, E5 (Algorithm 2) of the paper are called for each algorithm.
_AGGREGATION: Mapping[str, str] = {"masked": "e1", "proxy": "e4"}
_ACCURACY: Mapping[str, str] = {"proxy": "e5"}


def evaluate(experiment: Experiment, prepared: Prepared, outcome: Outcome, seconds: float) -> Result:
    """Compare the outcome with the truth, where there is one, and put everything into a `Result`; `seconds` is the wall time
    from before the data were loaded until now.
    """
    noisy = noisy_profiles_of(outcome.arrays, outcome.centroids, None) is not None
    if (noisy or cluster_arrays.MEANS in outcome.arrays) and len(prepared.units) == outcome.centroids.shape[1]:
        outcome = replace(outcome, arrays={**outcome.arrays, cluster_arrays.UNITS: np.array(prepared.units)})
    if cluster_arrays.OUTCOME_FORM in outcome.arrays:
        names = np.array(prepared.outcome_names, dtype=np.str_)
        outcome = replace(outcome, arrays={**outcome.arrays, cluster_arrays.OUTCOME_NAMES: names})
    ended = Ended(experiment, prepared, outcome)
    return Result(
        algorithm=experiment.algorithm,
        engine=experiment.engine,
        seed=experiment.seed,
        k=ended.k,
        n_sites=len(prepared.sites) or len(outcome.sites),
        params=ended.params,
        rounds=outcome.n_rounds,
        seconds={"total": seconds, "local_max": outcome.seconds_local, "merge": outcome.seconds_merge},
        bytes={"up": outcome.bytes_up, "down": outcome.bytes_down},
        centroids_found=len(outcome.centroids),
        metrics=dict(outcome.metrics) | _truth(ended),
        centroids_file=None,
        warnings=ended.warnings(),
        centroids=outcome.centroids,
        ids=prepared.ids,
        labels=ended.labels,
        site_labels=outcome.labels,
        site_rows=ended.places,
        arrays=outcome.arrays,
        sites=_shown(prepared, outcome),
        true_centroids=_true_centroids(ended),
        columns=ended.names,
        job=outcome.job or None,
        experiment=experiment.model_dump(mode="json", exclude={"tracking_uri"}),
        outcome=outcome,
        left_out={site: in_unit(why, experiment.row_name) for site, why in left_out(outcome).items()},
        assessed=ended.assessed,
        schema=prepared.schema,
        words=prepared.words,
        date=datetime.now().astimezone().date().isoformat(),
    )


def _truth(ended: Ended) -> dict[str, float | None]:
    """Return the metrics from what is known of the true clusters; none for rows of sites of their own."""
    outcome, labels = ended.outcome, ended.labels
    if (dataset := ended.prepared.dataset) is None:
        return {}
    known = labels >= 0
    y = dataset.y[known] if dataset.y is not None and known.any() else None
    true = _true_centroids(ended)
    found = measures.truth_metrics(outcome.centroids, labels[known], y=y, true_centroids=true)
    metrics: dict[str, float | None] = {**found, **_partial_truth(ended)}
    if dataset.centroids is not None and "received_radii" in outcome.arrays and not of_directions(outcome.arrays):
        received = outcome.arrays["received_centroids"], outcome.arrays["received_radii"]
        metrics["sigma_max"] = _finite(float(measures.sigma(*received, dataset.centroids).max()))
    return metrics


def _true_centroids(ended: Ended) -> FloatArray | None:
    """Return the true centroids in the order of the result's columns; None where it has no such or not all entries."""
    dataset, arrays = ended.prepared.dataset, ended.outcome.arrays
    if dataset is None or dataset.centroids is None:
        return None
    if of_directions(arrays):
        return as_clustered(arrays, dataset.centroids)
    if not partial.is_partial(arrays):
        return dataset.centroids
    known, names = names_of(dataset), partial.columns_of(arrays).names
    if not arrays[partial.MASK].all() or set(names) != set(known):
        return None
    return dataset.centroids[:, [known.index(name) for name in names]]


def _shown(prepared: Prepared, outcome: Outcome) -> dict[str, FloatArray]:
    """Return the rows of the sites that a picture can show: those that fit the centroids, or images with labels."""
    d, arrays = outcome.centroids.shape[1], outcome.arrays
    if partial.is_partial(arrays) and (not arrays["column_masks"].all() or "columns_in_all" in arrays):
        return {}
    rows = {site: table.X for site, table in tables_of(prepared, skip_unreadable=True).items()}
    if is_embedded(arrays):
        return shown_images(rows, outcome.labels, arrays)
    rows = {site: filled({**arrays, "centroids": outcome.centroids}, X) for site, X in rows.items()}
    return {site: X for site, X in rows.items() if len(X) and X.shape[1] == d and np.isfinite(X).all()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _partial_truth(ended: Ended) -> dict[str, float | None]:
    """Return `cosine`, `relative_distance`, and what of `e1`, `e2`, `e4`, `e5` the algorithm has; fractions from 0 to 1.

    Only of sites with different columns that split a data set with classes; else there is nothing to compare with. A row at a
    site without a label is an error.
    """
    prepared, outcome, labels, name = ended.prepared, ended.outcome, ended.labels, ended.experiment.algorithm
    dataset, index = prepared.dataset, prepared.index
    if dataset is None or dataset.y is None or index is None or not partial.is_partial(outcome.arrays):
        return {}
    columns = partial.columns_of(outcome.arrays)
    tables = {
        site: table
        for site, table in tables_of(prepared, skip_unreadable=True).items()
        if site not in outcome.refused and site in columns.sites and table.columns is not None
    }
    if not tables:
        return {}
    classes = {site: dataset.y[index[site]] for site in tables}
    # Rows (n_i, D) in all columns, NaN for those that a site lacks.
    rows = [in_places(table, columns.names) for table in tables.values()]
    true = measures.optimal_centroids(rows, list(classes.values()))
    metrics: dict[str, float | None] = {
        "cosine": _finite(measures.cosine(outcome.centroids, true)),
        "relative_distance": _finite(measures.relative_distance(outcome.centroids, true)),
    }
    taken = np.concatenate([index[site] for site in tables])
    known = labels[taken] >= 0
    if name in _AGGREGATION:
        metrics[_AGGREGATION[name]] = _aggregation(ended, classes)
    if known.any():
        right = measures.accuracy(labels[taken][known], dataset.y[taken][known])
        metrics[_ACCURACY.get(name, "e2")] = right * float(known.mean())
    return metrics


def _aggregation(ended: Ended, classes: Mapping[str, IntArray]) -> float | None:
    """Return the share of local clusters that went to the right group; the sites' clustering is repeated for it."""
    experiment, prepared, outcome = ended.experiment, ended.prepared, ended.outcome
    executor, _ = ended.algorithm.build(prepared.k, experiment.seed, experiment.params)
    assert isinstance(executor.params, LocalClustersParams)
    session = None if experiment.policy is None else SiteSession(Policy.of(experiment.policy), "")
    columns, tables = partial.columns_of(outcome.arrays), tables_of(prepared, skip_unreadable=True)
    numbers, groups = outcome.arrays["received_site"], outcome.arrays["received_group"]
    true = np.full(len(groups), -1, dtype=np.int64)
    for i in np.unique(numbers):
        site = columns.sites[i]
        if site not in classes:
            return None
        try:
            task = Task(StepName.CLUSTER, 0, columns.sent(), site)
            clusters = local_clusters(executor.params, site, rows_shown(executor, task, tables[site], session))
            local = clusters.labels
            if session is not None:
                own = rows_shown(executor, task, tables[site]).X
                local = nearest(own, clusters.centroids, executor.params.distance)
        except Refusal:
            return None
        true[numbers == i] = measures.majority_class(local, classes[site], int((numbers == i).sum()))
    return measures.correct_aggregation(groups, true)


def with_round_metrics(outcome: Outcome, prepared: Prepared) -> Outcome:
    """Return the outcome with `pooled_inertia`, `ari` and `l2` of every round's centroids among its diagnostics.

    For algorithms that keep the centroids of their rounds. The last two need the truth. Rows belong to the nearest
    centroid here, whatever labels the algorithm itself gives.
    """
    if HISTORY not in outcome.arrays:
        return outcome
    history = outcome.arrays[HISTORY]
    X, y = _rows_with_truth(outcome, prepared)
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
            numbers["ari"] = measures.ari(labels, y)
        if true is not None:
            numbers["l2"] = measures.l2_distance(centroids, true)
        known = records[r]["diagnostics"]
        assert isinstance(known, dict)
        records[r] = {**records[r], "diagnostics": {**known, **numbers}}
    return replace(outcome, rounds=records)


def _rows_with_truth(outcome: Outcome, prepared: Prepared) -> tuple[FloatArray, IntArray | None]:
    """Return the rows (n, d) of the sites that took part, and their true labels (n,) where they are known.

    Rows whose gaps nothing fills (`missing=drop-rows`) are none of them, as they had no part in the clusters.
    """
    d, tables = outcome.centroids.shape[1], tables_of(prepared, skip_unreadable=True)
    sites = [site for site in outcome.sites if site in tables and site not in outcome.refused]
    sites = [site for site in sites if tables[site].X.shape[1] == d and len(tables[site].X)]
    if not sites:
        return np.empty((0, d)), None
    model = {**outcome.arrays, "centroids": outcome.centroids}
    names = partial.columns_of(model).names if partial.is_partial(model) else None
    X = np.concatenate([filled(model, in_places(tables[site], names) if names else tables[site].X) for site in sites])
    complete = ~np.isnan(X).any(axis=1)
    dataset, index = prepared.dataset, prepared.index
    if dataset is None or dataset.y is None or index is None:
        return X[complete], None
    return X[complete], dataset.y[np.concatenate([index[site] for site in sites])[complete]]
