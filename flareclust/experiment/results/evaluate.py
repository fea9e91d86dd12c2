"""Compare a federation's outcome with the truth, where there is one, and make a `Result` of it.

What is measured round by round, and the paper's measures of algorithms for sites with different columns, need the rows in this
process, as a study has them. In a real federation nobody sees them; there the aggregator's own numbers are all that is known of a round.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.aggregators.described import ROWS_BY_SITE
from flareclust.aggregators.odd_columns import odd_between_sites
from flareclust.aggregators.scaled import MISSING_CELLS, ROWS_IN_ALL
from flareclust.core.lloyd import assign
from flareclust.core.missing.grouping import nearest
from flareclust.core.rounds import HISTORY
from flareclust.data.datasets import Dataset
from flareclust.data.tables import Table
from flareclust.data.words import DAYS
from flareclust.evaluation import selection as choice
from flareclust.evaluation.agreement import missing_cells
from flareclust.evaluation.criteria import USUAL, current_rule
from flareclust.evaluation.metrics import (
    accuracy,
    ari,
    correct_aggregation,
    cosine,
    l2_distance,
    majority_class,
    optimal_centroids,
    relative_distance,
    sigma,
    truth_metrics,
)
from flareclust.evaluation.noisy_profiles import noisy_profiles_of
from flareclust.executors.local_clusters import LocalClustersExecutor
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared, arrays_of, in_places, names_of, tables_of
from flareclust.experiment.results.coverage import (
    MOST_NAMED,
    assessed_rows,
    coverage_warnings,
    dropped_warnings,
    left_out,
)
from flareclust.experiment.results.picture import is_embedded, shown_images
from flareclust.experiment.results.result import Result
from flareclust.features import result as partial
from flareclust.features.columns import decides_distances, outweighing
from flareclust.features.scaling import OPEN_GAPS, as_clustered, filled, of_directions, scaling_of
from flareclust.federation.exchanges import refusal_texts
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol import registry
from flareclust.protocol.cluster_arrays import MEANS, UNITS
from flareclust.protocol.outcome import Outcome, is_round

#: Davies-Bouldin index above which clusters are five times as wide as their centroids are apart, and none to speak of.
_OVERLAP = 10.0

#: Share of the rows beyond the bounds of the sites' policies above which a result has a warning.
_MOST_CLIPPED = 0.05

#: Beyond so many refusals those with the same reason are one warning.
_MOST_REFUSALS = 1000

#: What the measures E1, E2 (Algorithm 1) and E4, E5 (Algorithm 2) of the paper are called for each algorithm.
_AGGREGATION: Mapping[str, str] = {"masked": "e1", "proxy": "e4"}
_ACCURACY: Mapping[str, str] = {"proxy": "e5"}


def evaluate(experiment: Experiment, prepared: Prepared, outcome: Outcome, seconds: float) -> Result:
    """Compare the outcome with the truth, where there is one, and put everything into a `Result`.

    Args:
        experiment: what was asked.
        prepared: what it ran on.
        outcome: what the engine returned.
        seconds: wall time from before the data were loaded until now.
    """
    dataset = prepared.dataset
    described = MEANS in outcome.arrays or noisy_profiles_of(outcome.arrays, outcome.centroids, None) is not None
    if described and len(prepared.units) == outcome.centroids.shape[1]:
        outcome = replace(outcome, arrays={**outcome.arrays, UNITS: np.array(prepared.units)})
    labels = _pooled_labels(prepared, outcome)
    metrics = dict(outcome.metrics) | _truth(experiment, prepared, outcome, labels)
    algorithm, places = registry.get(experiment.algorithm), _rows_of(prepared, outcome)
    assessed, k = assessed_rows(experiment, prepared, outcome, places), choice.chosen_k(outcome.arrays) or prepared.k
    warnings = [
        *_warnings(k, outcome, places),
        *_ties(experiment, outcome),
        *coverage_warnings(experiment, outcome, assessed),
        *dropped_warnings(experiment, prepared, outcome),
        *_columns(experiment, prepared, outcome),
        *partial.warnings(outcome.arrays, sum(int((found < 0).sum()) for found in outcome.labels.values())),
    ]
    return Result(
        algorithm=experiment.algorithm,
        engine=experiment.engine,
        seed=experiment.seed,
        k=k,
        n_sites=len(prepared.sites) or len(outcome.sites),
        params=algorithm.parameters() | dict(prepared.params) | experiment.params | _choosing(experiment),
        rounds=outcome.n_rounds,
        seconds={"total": seconds, "local_max": outcome.seconds_local, "merge": outcome.seconds_merge},
        bytes={"up": outcome.bytes_up, "down": outcome.bytes_down},
        centroids_found=len(outcome.centroids),
        metrics=metrics,
        centroids_file=None,
        warnings=warnings,
        centroids=outcome.centroids,
        ids=prepared.ids,
        labels=labels,
        site_labels=outcome.labels,
        site_rows=places,
        arrays=outcome.arrays,
        sites=_shown(prepared, outcome),
        true_centroids=None if dataset is None else _comparable(dataset, outcome),
        columns=_names(prepared, outcome),
        job=outcome.job or None,
        experiment=experiment.model_dump(mode="json", exclude={"tracking_uri"}),
        outcome=outcome,
        left_out=left_out(outcome),
        assessed=assessed,
        schema=prepared.schema,
        words=prepared.words,
    )


def _truth(experiment: Experiment, prepared: Prepared, outcome: Outcome, labels: IntArray) -> dict[str, float | None]:
    """Return the metrics from what is known of the true clusters; none for rows of sites of their own."""
    if (dataset := prepared.dataset) is None:
        return {}
    known = labels >= 0
    y = dataset.y[known] if dataset.y is not None and known.any() else None
    true_centroids = _comparable(dataset, outcome)
    metrics: dict[str, float | None] = {
        **truth_metrics(outcome.centroids, labels[known], y=y, true_centroids=true_centroids)
    }
    policy = None if experiment.policy is None else Policy.of(experiment.policy)
    if partial.is_partial(outcome.arrays):
        identity = experiment.algorithm, experiment.params, experiment.seed
        metrics |= _partial_truth(*identity, prepared, outcome, labels, policy)
    if dataset.centroids is not None and "received_radii" in outcome.arrays and not of_directions(outcome.arrays):
        received = outcome.arrays["received_centroids"], outcome.arrays["received_radii"]
        metrics["sigma_max"] = _finite(float(sigma(*received, dataset.centroids).max()))
    return metrics


def _names(prepared: Prepared, outcome: Outcome) -> tuple[str, ...] | None:
    """Return the names of the centroids' columns, where they have any."""
    return partial.columns_of(outcome.arrays).names if partial.is_partial(outcome.arrays) else prepared.columns


def _comparable(dataset: Dataset, outcome: Outcome) -> FloatArray | None:
    """Return the true centroids in the order of the result's columns; None where it has no such or not all entries."""
    if dataset.centroids is None:
        return None
    if of_directions(outcome.arrays):
        return as_clustered(outcome.arrays, dataset.centroids)
    if not partial.is_partial(outcome.arrays):
        return dataset.centroids
    known, names = names_of(dataset), partial.columns_of(outcome.arrays).names
    if not outcome.arrays[partial.MASK].all() or set(names) != set(known):
        return None
    return dataset.centroids[:, [known.index(name) for name in names]]


def _choosing(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that a range of k has added to those of the experiment."""
    if experiment.k_range is None or experiment.algorithm != choice.CHOOSER:
        return {}
    return choice.settings(experiment.k_range, experiment.criterion, experiment.params)


def _pooled_labels(prepared: Prepared, outcome: Outcome) -> IntArray:
    """Return the labels (n,) in the order of the data set, or of the sites' names; -1 where a site gave none, or no site has the row."""
    places = _rows_of(prepared, outcome)
    n = sum(map(len, places.values())) if prepared.dataset is None else len(prepared.dataset.X)
    labels = np.full(n, -1, dtype=np.int64)
    for site, found in outcome.labels.items():
        labels[places[site]] = found
    return labels


def _rows_of(prepared: Prepared, outcome: Outcome) -> Mapping[str, IntArray]:
    """Return the places of each site's rows in the data: where they were split from, or one site after the other by name.

    Rows in files that gave no labels are not counted; nobody here knows how many there are.
    """
    if prepared.index is not None:
        return prepared.index
    places, at = {}, 0
    for site, rows in sorted(prepared.sites.items()):
        n = len(outcome.labels.get(site, () if isinstance(rows, Path) else rows))
        places[site] = np.arange(at, at + n)
        at += n
    return places


def _shown(prepared: Prepared, outcome: Outcome) -> dict[str, FloatArray]:
    """Return the rows of the sites that a picture can show: those that fit the centroids, or images with labels."""
    d = outcome.centroids.shape[1]
    if partial.is_partial(outcome.arrays) and (
        not outcome.arrays["column_masks"].all() or "columns_in_all" in outcome.arrays
    ):
        return {}
    rows = arrays_of(prepared, skip_unreadable=True)
    if is_embedded(outcome.arrays):
        return shown_images(rows, outcome.labels, outcome.arrays)
    rows = {site: filled({**outcome.arrays, "centroids": outcome.centroids}, X) for site, X in rows.items()}
    return {site: X for site, X in rows.items() if len(X) and X.shape[1] == d and np.isfinite(X).all()}


def _columns(experiment: Experiment, prepared: Prepared, outcome: Outcome) -> list[str]:
    """Return warnings about columns that sites may not mean alike, and about one that decides the distances."""
    arrays, d = outcome.arrays, outcome.centroids.shape[1]
    names = _names(prepared, outcome) or tuple(f"column {j + 1}" for j in range(d))
    gaps = []
    if MISSING_CELLS in arrays:
        rows = arrays[ROWS_IN_ALL] if ROWS_IN_ALL in arrays else arrays[ROWS_BY_SITE] @ arrays["column_masks"]
        gaps = [missing_cells(names, arrays[MISSING_CELLS], rows, left_open=OPEN_GAPS in arrays)]
    found = [sentence for sentence in gaps if sentence]
    # Columns of categories go by number, or by name where sites have different columns.
    valued = {column for group in prepared.params.get("categories") or () for column in group}
    categories = np.array([j in valued or name in valued for j, name in enumerate(names)])
    if not prepared.parted:
        dates = [name for name, unit in zip(names, prepared.units, strict=False) if unit == DAYS]
        found += odd_between_sites(arrays, names, categories, left_out(outcome), dates)
    return found + _outweighing(experiment, prepared, outcome)


def _outweighing(experiment: Experiment, prepared: Prepared, outcome: Outcome) -> list[str]:
    """Return a warning about a column that decides the distances, where nothing was scaled."""
    arrays = outcome.arrays
    algorithm = registry.get(experiment.algorithm)
    if (
        prepared.columns is None
        or "scale" not in algorithm.parameters()
        or scaling_of(arrays) is not None
        or of_directions(arrays)
    ):
        return []
    widest = outweighing(prepared.columns, np.ptp(outcome.centroids, axis=0))
    return [] if widest is None else [decides_distances(widest, "scale=standard")]


def _warnings(k: int, outcome: Outcome, places: Mapping[str, IntArray]) -> list[str]:
    refusals = [f"{site} {reason}" for site, reason in sorted(outcome.refused.items())]
    warnings = [*(refusal_texts(outcome.refused) if len(refusals) > _MOST_REFUSALS else refusals), *outcome.warnings]
    if len(outcome.centroids) < k:
        small = sorted(site for site, rows in places.items() if 0 < len(rows) < k)
        more = f" and {len(small) - MOST_NAMED} more" if len(small) > MOST_NAMED else ""
        named = ", ".join(small[:MOST_NAMED]) + more
        why = f": {named} {'has' if len(small) == 1 else 'have'} fewer rows than k" if small else ""
        warnings.append(f"{len(outcome.centroids)} centroids were found where k={k} were asked for{why}")
    clipped = outcome.metrics.get("clipped_share")
    if clipped is not None and clipped > _MOST_CLIPPED:
        warnings.append(
            f"about {clipped:.0%} of the rows are beyond the bounds of the sites' policies and were moved to them; clusters there "
            "are misplaced unless the bounds are widened (differential_privacy: bounds)"
        )
    overlap = outcome.metrics.get("davies_bouldin")
    if overlap is not None and overlap > _OVERLAP:
        warnings.append(
            f"the clusters lie on top of one another (Davies-Bouldin index {overlap:.0f}): several centroids are nearly the "
            "same; look at the picture, and try fewer clusters or other settings"
        )
    return warnings


def _ties(experiment: Experiment, outcome: Outcome) -> list[str]:
    """Return warnings where the rule that chose k likes others as much, or nearly, or may prefer one beyond the range."""
    rule = experiment.criterion if experiment.k_range else str(experiment.params.get("criterion", USUAL))
    judged = (say(outcome.arrays, current_rule(rule)) for say in (choice.tie, choice.at_end))
    return [sentence for sentence in judged if sentence]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _partial_truth(
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
    if dataset is None or dataset.y is None or index is None or not partial.is_partial(outcome.arrays):
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
    columns = partial.columns_of(outcome.arrays)
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
    columns, tables = partial.columns_of(outcome.arrays), tables_of(prepared, skip_unreadable=True)
    numbers, groups = outcome.arrays["received_site"], outcome.arrays["received_group"]
    true = np.full(len(groups), -1, dtype=np.int64)
    for i in np.unique(numbers):
        site = columns.sites[i]
        if site not in classes:
            return None
        try:
            seen = tables[site] if session is None else session.microaggregated(tables[site])
            shown = Table(executor.shown(seen, columns.sent())[0])
            clusters = executor.local_clustering(site, SiteRows(shown, stream(seed, 0, site), context=context))
            local = clusters.labels
            if session is not None:
                local = nearest(executor.shown(tables[site], columns.sent())[0], clusters.centroids, executor.phi)
        except Refusal:
            return None
        true[numbers == i] = majority_class(local, classes[site], int((numbers == i).sum()))
    return correct_aggregation(groups, true)


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
            numbers["ari"] = ari(labels, y)
        if true is not None:
            numbers["l2"] = l2_distance(centroids, true)
        known = records[r]["diagnostics"]
        assert isinstance(known, dict)
        records[r] = {**records[r], "diagnostics": {**known, **numbers}}
    return replace(outcome, rounds=records)


def _rows_with_truth(outcome: Outcome, prepared: Prepared) -> tuple[FloatArray, IntArray | None]:
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
