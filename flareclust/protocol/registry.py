"""Every algorithm, one line each; jobs, command line, conformance suite and documentation read this table.

Other packages add lines through the entry point group `flareclust.algorithms`: each entry names an `Algorithm`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import did_you_mean
from flareclust.protocol.params import Params

if TYPE_CHECKING:
    from flareclust.aggregators.base import ClusteringAggregator
    from flareclust.executors.base import ClusteringExecutor


@dataclass(frozen=True)
class Algorithm:
    """One line of the registry.

    Attributes:
        name: what a user types.
        title: one line for tables.
        executor: import path of the `ClusteringExecutor`; None for a baseline that is not federated.
        aggregator: import path of the `ClusteringAggregator`, or of the function (X, k, seed, **params) -> centroids
            of a baseline.
        promises: names of the promises in `flareclust.testing` beyond those that hold for all.
        source: paper and algorithm numbers.
        baseline_params: import path of a baseline's parameters, where `aggregator` is a function.
    """

    name: str
    title: str
    executor: str | None
    aggregator: str
    promises: frozenset[str] = frozenset()
    source: str = ""
    baseline_params: str = "flareclust.protocol.params.Params"

    @property
    def federated(self) -> bool:
        """Return whether the algorithm works without pooling the rows."""
        return self.executor is not None

    @property
    def partial(self) -> bool:
        """Return whether the sites may have different columns."""
        return "partial-features" in self.promises

    def executor_class(self) -> "type[ClusteringExecutor]":
        """Import and return the executor."""
        if self.executor is None:
            raise UserError(f"{self.name} is not federated: it runs on pooled rows, in the in-process engine only")
        return _import(self.executor)  # type: ignore[no-any-return]

    def aggregator_class(self) -> "type[ClusteringAggregator]":
        """Import and return the aggregator."""
        return _import(self.aggregator)  # type: ignore[no-any-return]

    def function(self) -> Callable[..., FloatArray]:
        """Import and return the function of a baseline."""
        return _import(self.aggregator)  # type: ignore[no-any-return]

    def params_class(self) -> type[Params]:
        """Import and return the class of the algorithm's parameters."""
        return self.executor_class().params_class() if self.federated else _import(self.baseline_params)

    def parameters(self) -> dict[str, Any]:
        """Return the algorithm's own parameters (without k and seed) with their defaults, sites' side first."""
        return {name: field.default for name, field in self.params_class().own().items()}

    def check(self, k: int, seed: int = 0, params: Mapping[str, Any] | None = None) -> Params:
        """Return the parameters with these values.

        Raises:
            UserError: a parameter is unknown (with the nearest known one), has a value that it cannot have, or does not go
                with another one.
        """
        self.check_names(params or {})
        return self.params_class()(k=k, seed=seed, **(params or {}))

    def build(
        self, k: int, seed: int = 0, params: Mapping[str, Any] | None = None
    ) -> "tuple[ClusteringExecutor, ClusteringAggregator]":
        """Return both sides, each with the parameters that it reads.

        Raises:
            UserError: as `check`.
        """
        own = self.check(k, seed, params).own
        params = self.params_class().current(params or {})
        executor, aggregator = (
            side(k=k, seed=seed, **{name: value for name, value in params.items() if name in own(side.side)})
            for side in (self.executor_class(), self.aggregator_class())
        )
        return executor, aggregator

    def check_names(self, params: Iterable[str], others: Iterable[str] = ()) -> None:
        """Raise UserError for parameters that the algorithm does not have; the nearest name may be one of `others`."""
        self.params_class().check_names(self.name, params, others)


BUILT_IN = (
    Algorithm(
        "portfolio",
        "Portfolio: one upload, several merges, the one with the smallest inertia",
        "flareclust.executors.portfolio.PortfolioExecutor",
        "flareclust.aggregators.portfolio.PortfolioAggregator",
        frozenset({"never-worse", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "flareclust; members after Xu et al. 2024, Dennis et al. 2021, Garst and Reinders 2024",
    ),
    Algorithm(
        "feca",
        "FeCA: one-shot aggregation of refined centroids with radii",
        "flareclust.executors.feca.FeCAExecutor",
        "flareclust.aggregators.feca.FeCAAggregator",
        frozenset({"one-shot", "recovers-iid", "translation"}),
        "Xu et al. 2024, Jigsaw Game: Federated Clustering, Algorithms 1-5",
    ),
    Algorithm(
        "kfed",
        "k-FED: one-shot clustering where each site sees few clusters",
        "flareclust.executors.kfed.KFedExecutor",
        "flareclust.aggregators.kfed.KFedAggregator",
        frozenset({"one-shot", "recovers-non-iid", "uneven-k", "small-sites"}),
        "Dennis et al. 2021, Heterogeneity for the Win, Algorithms 1-2",
    ),
    Algorithm(
        "fkm",
        "FKM: federated k-means in rounds, with clusters that sites may lack",
        "flareclust.executors.fkm.FKMExecutor",
        "flareclust.aggregators.fkm.FKMAggregator",
        frozenset({"iterative", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Garst and Reinders 2024, Federated K-Means Clustering, Algorithm 1",
    ),
    Algorithm(
        "lloyd",
        "Distributed Lloyd: sums and counts per cluster, as on the pooled rows",
        "flareclust.executors.lloyd.LloydExecutor",
        "flareclust.aggregators.lloyd.LloydAggregator",
        frozenset({"iterative", "equals-central", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Lloyd 1982; in rounds as in Dennis et al. 2021, section 4.2",
    ),
    Algorithm(
        "dkmpp",
        "Distributed k-means++: seeds of all sites, clustered at the server",
        "flareclust.executors.dkmpp.DKMPPExecutor",
        "flareclust.aggregators.dkmpp.DKMPPAggregator",
        frozenset({"one-shot", "recovers-iid", "small-sites", "translation"}),
        "Armacki and Kar, Toward Understanding the Improved Robustness to Initialization, Algorithm 2",
    ),
    Algorithm(
        "pooled",
        "Pooled centroids: k-means on all sites' centroids, weighted by their rows",
        "flareclust.executors.pooled.PooledExecutor",
        "flareclust.aggregators.pooled.PooledAggregator",
        frozenset({"one-shot", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "the plain baseline of one-shot methods",
    ),
    Algorithm(
        "mavg",
        "Match averaging: sites' centroids matched to the first site's and averaged",
        "flareclust.executors.mavg.MAvgExecutor",
        "flareclust.aggregators.mavg.MAvgAggregator",
        frozenset({"one-shot", "recovers-iid", "translation"}),
        "baseline of Xu et al. 2024, section 6",
    ),
    Algorithm(
        "ffcm",
        "Federated fuzzy c-means, averaged (v1) or clustered again (v2)",
        "flareclust.executors.ffcm.FFCMExecutor",
        "flareclust.aggregators.ffcm.FFCMAggregator",
        frozenset({"iterative", "recovers-iid", "recovers-non-iid", "translation"}),
        "Stallmann and Wilbik 2022, Towards Federated Clustering; baseline of Xu et al. 2024",
    ),
    Algorithm(
        "minibatch",
        "Mini-batch k-means as NVFlare's own recipe does it",
        "flareclust.executors.minibatch.MiniBatchExecutor",
        "flareclust.aggregators.minibatch.MiniBatchAggregator",
        frozenset({"iterative", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "nvflare.app_opt.sklearn, KMeansAssembler",
    ),
    Algorithm(
        "masked",
        "Masked: federated k-means where sites have different columns",
        "flareclust.executors.masked.MaskedExecutor",
        "flareclust.aggregators.masked.MaskedAggregator",
        frozenset({"partial-features", "recovers-partial", "recovers-iid", "small-sites", "translation", "uneven-k"}),
        "Maritan and Schenato, Distributed Clustering in Partially Overlapping Feature Spaces, Algorithm 1",
    ),
    Algorithm(
        "proxy",
        "Proxy: one-shot merging of synthetic clusters where sites have different columns",
        "flareclust.executors.proxy.ProxyExecutor",
        "flareclust.aggregators.proxy.ProxyAggregator",
        frozenset(
            {
                "one-shot",
                "partial-features",
                "recovers-partial",
                "recovers-iid",
                "small-sites",
                "translation",
                "uneven-k",
            }
        ),
        "Maritan and Schenato, Distributed Clustering in Partially Overlapping Feature Spaces, Algorithm 2",
    ),
    Algorithm(
        "fkm-common",
        "FKM on the columns that all sites have: a baseline for masked and proxy",
        "flareclust.executors.fkm_partial.FKMCommonExecutor",
        "flareclust.aggregators.fkm_partial.FKMCommonAggregator",
        frozenset({"iterative", "partial-features", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Garst and Reinders 2024, Algorithm 1, on common columns",
    ),
    Algorithm(
        "fkm-imputed",
        "FKM with means in place of the columns that a site lacks: a baseline for masked and proxy",
        "flareclust.executors.fkm_partial.FKMImputedExecutor",
        "flareclust.aggregators.fkm_partial.FKMImputedAggregator",
        frozenset({"iterative", "partial-features", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Garst and Reinders 2024, Algorithm 1, after imputation of means",
    ),
    Algorithm(
        "dp-lloyd",
        "DP Lloyd: few rounds of noisy sums and counts, differentially private at every site",
        "flareclust.executors.dp_lloyd.DPLloydExecutor",
        "flareclust.aggregators.dp_lloyd.DPLloydAggregator",
        frozenset({"differentially-private"}),
        "Blum et al. 2005, section 5; start after Su et al. 2016, section 4",
    ),
    Algorithm(
        "dp-oneshot",
        "DP one-shot: one message of noisy counts on a grid, or of noisy centroids",
        "flareclust.executors.dp_oneshot.DPOneShotExecutor",
        "flareclust.aggregators.dp_oneshot.DPOneShotAggregator",
        frozenset({"differentially-private", "one-shot"}),
        "grid after Su et al. 2016, section 4; centroids after Blum et al. 2005, section 5",
    ),
    Algorithm(
        "kpod",
        "k-POD on the pooled rows with their gaps: the baseline for different columns, not federated",
        None,
        "flareclust.core.kpod.kpod",
        frozenset({"partial-features"}),
        "Chi, Chi and Baraniuk 2016, k-POD: A Method for k-Means Clustering of Missing Data",
        "flareclust.engines.pooled.KPodParams",
    ),
    Algorithm(
        "central",
        "k-means on the pooled rows: the baseline, not federated",
        None,
        "flareclust.core.central.central_kmeans",
        source="scikit-learn KMeans",
        baseline_params="flareclust.engines.pooled.CentralParams",
    ),
)


_BUILT_IN_BY_NAME = {algorithm.name: algorithm for algorithm in BUILT_IN}


def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms by name: the built-in ones and those of installed packages."""
    table = {algorithm.name: algorithm for algorithm in BUILT_IN}
    for entry in entry_points(group="flareclust.algorithms"):
        try:
            added = entry.load()
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"the algorithm of entry point {entry.name!r} ({entry.value}) cannot be loaded: {error}"
            ) from error
        if not isinstance(added, Algorithm) or added.name in table:
            raise UserError(f"entry point {entry.name!r} must name an Algorithm with a name of its own, got {added!r}")
        table[added.name] = added
    return table


def get(name: str) -> Algorithm:
    """Return the algorithm called `name`, or raise UserError with the nearest name."""
    if (
        name in _BUILT_IN_BY_NAME
    ):  # without a look at all packages installed, which takes longer than a small federation
        return _BUILT_IN_BY_NAME[name]
    table = algorithms()
    if name not in table:
        raise UserError(f"unknown algorithm {name!r}{did_you_mean(name, table)}; known: {', '.join(table)}")
    return table[name]


def name_of(executor: type) -> str | None:
    """Return the name of the algorithm with this executor; None where none is registered."""
    path = f"{executor.__module__}.{executor.__qualname__}"
    builtin = (algorithm.name for algorithm in BUILT_IN if algorithm.executor == path)
    name = next(builtin, None)
    return name or next((added.name for added in algorithms().values() if added.executor == path), None)


def _import(path: str) -> Any:
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise UserError(f"{path} needs the package {error.name!r}, which is not installed") from error
