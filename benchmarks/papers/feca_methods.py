"""What FeCA's tables compare, as trials: the methods with their settings, FeCA without its steps, and with other k.

Readings where the paper is open:
1. k-means, at the clients as on the pooled rows, has one greedy k-means++ start, as the spread of the paper's own
   figures shows; lines `-n10` have ten.
2. Dirichlet(a): clients of equal size, each with a class mix from Dir(a, ..., a).
3. Purity is that of all rows; the rows belong to their nearest recovered centroid, with k-FED too (C.5).
4. Figures are population standard deviations over the seeds. "MSE" is (mean l2)^2 / 15, which is how Tables 5 and 10
   follow from Tables 1 and 6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.core.disclosure import disclosable_clusters
from flareclust.core.lloyd import cluster_statistics, kmeans, labels_of, recompute_centroids
from flareclust.data.datasets import Dataset
from flareclust.data.partition import partition
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.engines.pooled import run_pooled
from flareclust.evaluation import metrics
from flareclust.executors.feca import (
    FeCAExecutor,
    FeCAParams,
    LocalClusters,
    empirical_radii,
    relabel,
    remove_one_fit_many,
)
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import OneTable
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.protocol.params import both, site
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.task import Task


@dataclass(frozen=True)
class Method:
    """An algorithm of the registry with settings, under the name that tables use for it."""

    name: str
    algorithm: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        """Return the settings in short: `n_init=10`."""
        return ", ".join(f"{key}={value}" for key, value in self.params.items()) or "defaults"

    def experiment(self, dataset: Dataset, split: str) -> Experiment:
        """Return the experiment of this method on a data set over ten clients, with seed 0."""
        return Experiment(
            algorithm=self.algorithm,
            data=dataset.name,
            partition=split,
            engine="inprocess",
            params=dict(self.params),
        )

    def trials(self, dataset: Dataset, split: str, seeds: int) -> list[study_trials.Trial]:
        """Return a run per seed, in the cell (data, split, method)."""
        cell = {"data": dataset.name, "split": split, "method": self.name}
        first = self.experiment(dataset, split)
        return [
            study_trials.experiment_trial(first.model_copy(update={"seed": s}), cell, OneTable(dataset))
            for s in range(seeds)
        ]


FECA = Method("feca", "feca")
CENTRAL = Method("central", "central", {"n_init": 1})
CENTRAL_10 = Method("central-n10", "central", {"n_init": 10})


def kfed(k_local: int) -> Method:
    """Return k-FED with k' = `k_local`."""
    return Method(f"kfed-k{k_local}", "kfed", {"k_local": k_local, "labels_by": "nearest"})


#: The methods that the paper compares with FeCA, k-FED aside.
BASELINES = (
    Method("mavg", "mavg"),
    *(Method(f"ffcm-v{v}-r{r}", "ffcm", {"version": f"v{v}", "rounds": r}) for v in (1, 2) for r in (1, 10)),
)

#: What the paper does not have.
OURS = (
    Method("feca-n10", "feca", {"n_init": 10}),
    Method("pooled", "pooled"),
    Method("portfolio", "portfolio", {"polish": 0}),
    Method("portfolio-p3", "portfolio", {"polish": 3, "split_merge": 0}),
)


# ---- FeCA without its steps, and with different k ----


class AblatedParams(FeCAParams):
    """Parameters of FeCA without its steps."""

    k_local: int | None = both(None, "k', the number of clusters of the local k-means; None for k.", ge=1)
    remove: bool = site(True, "Whether one-fit-many centroids are removed.")

    @property
    def n_local(self) -> int:
        """Return k'."""
        return self.k_local or self.k


class AblatedExecutor(FeCAExecutor):
    """FeCA's site with k' clusters where the federation has k, and with or without the removal of Algorithm 2."""

    params: AblatedParams

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Run Algorithm 2, as far as it is wanted, and Algorithm 4."""
        k_local = self.params.n_local
        if len(rows.X) < k_local:
            raise Refusal(f"has fewer rows than {k_local=}")
        found = recompute_centroids(rows.X, kmeans(rows.X, k_local, rows.rng, n_init=1, aborted=rows.aborted))
        statistics = cluster_statistics(rows.X, found.labels, found.centroids)
        clusters = LocalClusters(found.centroids, found.counts, statistics.sse)
        origin: list[tuple[int, ...]] = [(i,) for i in range(len(found.counts))]
        if self.params.remove:
            clusters, origin = remove_one_fit_many(clusters)
        labels = relabel(found.labels, origin)
        sendable = disclosable_clusters(rows.X, labels, clusters.centroids, rows.context.min_count)
        reach = statistics.max_distance[[sources[0] for sources in origin]]
        centroids = clusters.centroids[sendable]
        return {"centroids": centroids, "radii": empirical_radii(centroids, reach[sendable])}


class AblatedAggregator(FeCAAggregator):
    """FeCA's server, to which sites may send k' clusters."""

    params: AblatedParams

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries that a reply can have."""
        return {**super().limits(round_), "k": max(self.params.k, self.params.n_local)}


ABLATED = Algorithm(
    "feca-ablated",
    "FeCA without a step, or with other k at the sites",
    f"{AblatedExecutor.__module__}.{AblatedExecutor.__qualname__}",
    f"{AblatedAggregator.__module__}.{AblatedAggregator.__qualname__}",
)


@dataclass(frozen=True)
class OnSites:
    """A run where rows are assigned otherwise, or the algorithm is not of the registry; measured on all rows.

    Attributes:
        algorithm: what runs.
        params: its settings.
        k: number of clusters.
        split: how the rows that take part are assigned to the clients.
        n_sites: how many there are.
        share: part of all rows that each client has; None to assign all of them.
        polish: whether the labels are those after one step of Lloyd's algorithm on all rows (Appendix D).
    """

    algorithm: Algorithm
    params: Mapping[str, Any] = field(default_factory=dict)
    k: int = 15
    split: str = "iid"
    n_sites: int = 10
    share: float | None = None
    polish: bool = False

    def trial(self, dataset: Dataset, cell: Mapping[str, str], seed: int) -> study_trials.Trial:
        """Return the run in a cell."""
        decides = {
            "algorithm": self.algorithm.name,
            "params": dict(self.params),
            "data": dataset.name,
            "k": self.k,
            "split": self.split,
            "n_sites": self.n_sites,
            "share": self.share,
            "polish": self.polish,
        }
        return study_trials.Trial(cell, seed, decides, lambda: self.measure(dataset, seed))

    def measure(self, dataset: Dataset, seed: int) -> study_trials.TrialResult:
        """Deal the rows, run, and compare with the truth."""
        rng = stream(seed, 0, "partition")
        rows = np.arange(len(dataset.X))
        if self.share is not None:
            rows = rng.permutation(rows)[: round(self.share * len(rows)) * self.n_sites]
        y = None if dataset.y is None else dataset.y[rows]
        index = partition(self.split, dataset.X[rows], y, self.n_sites, rng)
        sites = {site: dataset.X[rows[own]] for site, own in index.items()}
        options = JobOptions(k=self.k, seed=seed)
        if self.algorithm.federated:
            outcome = run_inprocess(self.algorithm, self.params, sites, options)
        else:
            outcome = run_pooled(self.algorithm, self.params, sites, options, index)
        labels = labels_of(dataset.X, outcome.centroids)
        if self.polish:
            labels = one_lloyd_step(dataset.X, outcome.centroids)
        final: dict[str, float | None] = dict(
            metrics.truth_metrics(outcome.centroids, labels, y=dataset.y, true_centroids=dataset.centroids)
        )
        final["centroids_found"] = float(len(outcome.centroids))
        return study_trials.TrialResult(
            final, {"bytes_up": float(outcome.bytes_up), "seconds_merge": outcome.seconds_merge}
        )


def one_lloyd_step(X: FloatArray, centroids: FloatArray) -> Any:
    """Return the labels (n,) of the rows after the centroids (k, d) have moved to the means of their rows once."""
    labels = labels_of(X, centroids)
    means = np.stack([X[labels == r].mean(axis=0) if (labels == r).any() else c for r, c in enumerate(centroids)])
    return labels_of(X, means)
