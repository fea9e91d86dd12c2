"""Every algorithm, one line each; jobs, command line, conformance suite and documentation read this table.

Other packages add lines through the entry point group `flareclust.algorithms`: each entry names an `Algorithm`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import did_you_mean
from flareclust.protocol.params import Params
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.aggregator import ClusteringAggregator
    from flareclust.federation.executor import ClusteringExecutor


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
        when: when to use it, for tables.
        in_parts: whether a site can compute it from rows in parts on a Dask cluster of its own.
    """

    name: str
    title: str
    executor: str | None
    aggregator: str
    promises: frozenset[str] = frozenset()
    source: str = ""
    baseline_params: str = "flareclust.protocol.params.Params"
    when: str = ""
    in_parts: bool = False

    @property
    def federated(self) -> bool:
        """Return whether the algorithm works without pooling the rows."""
        return self.executor is not None

    @property
    def partial(self) -> bool:
        """Return whether the sites may have different columns."""
        return "partial-features" in self.promises

    def why_no_profile(self, params: Mapping[str, Any], *, secure_sums: bool = False) -> str:
        """Return why the clusters of a result are not described, in words; empty where they are.

        A profile is of the clusters that a site may describe, an update of other rows: their difference would be a row or two.
        """
        if not self.federated:
            return f"{self.name} is not federated and describes no clusters"
        if "differentially-private" in self.promises:  # described by what was released
            return ""
        if self.partial:
            return f"{self.name} is for sites with different columns, and profiles need the same ones"
        if secure_sums and StepName.PROFILE_TOTALS not in self.executor_class().job_steps():
            return (
                f"with secure_sums, profiles are totals over all rows, and of {self.name} sites also send local clusters, which leave "
                "out rows: the difference would disclose these"
            )
        if secure_sums and params.get("missing", "refuse") != "refuse":
            return f"with secure_sums and missing={params['missing']}, a profile would count filled cells as known ones"
        if params.get("trim_rows"):
            return "with trim_rows, a profile less the sums of the rounds would disclose the rows that are trimmed"
        return ""

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
        """Return both sides, each with the parameters that it reads; UserError as `check`."""
        own = self.check(k, seed, params).own
        executor, aggregator = (
            side(k=k, seed=seed, **{name: value for name, value in (params or {}).items() if name in own(side.side)})
            for side in (self.executor_class(), self.aggregator_class())
        )
        return executor, aggregator

    def check_names(self, params: Iterable[str], others: Collection[str] = ()) -> None:
        """Raise UserError for parameters that the algorithm does not have; the nearest name may be one of `others`."""
        self.params_class().check_names(self.name, params, others)


def _import(path: str) -> Any:
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise UserError(f"{path} needs the package {error.name!r}, which is not installed") from error


def _sides(name: str) -> tuple[str, str]:
    """Return the import paths of both sides of a built-in algorithm, from `module.Name` of their files and classes."""
    return f"flareclust.executors.{name}Executor", f"flareclust.aggregators.{name}Aggregator"


_OF_DIFFERENT_COLUMNS = frozenset(
    {"partial-features", "recovers-partial", "recovers-iid", "small-sites", "translation", "uneven-k"}
)

BUILT_IN = (
    Algorithm(
        "portfolio",
        "Portfolio: one upload, several merges, the one with the smallest inertia",
        *_sides("portfolio.Portfolio"),
        frozenset({"never-worse", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "flareclust; members after Xu et al. 2024, Dennis et al. 2021, Garst and Reinders 2024",
        when="first choice; about 20 exchanges, or two with polish=0",
    ),
    Algorithm(
        "feca",
        "FeCA: one-shot aggregation of refined centroids with radii",
        *_sides("feca.FeCA"),
        frozenset({"one-shot", "recovers-iid", "translation"}),
        "Xu et al. 2024, Jigsaw Game: Federated Clustering, Algorithms 1-5",
        when="one message per site; each site has rows of most clusters",
    ),
    Algorithm(
        "kfed",
        "k-FED: one-shot clustering where each site sees few clusters",
        *_sides("kfed.KFed"),
        frozenset({"one-shot", "recovers-non-iid", "uneven-k", "small-sites"}),
        "Dennis et al. 2021, Heterogeneity for the Win, Algorithms 1-2",
        when="one message per site; each site has rows of few clusters, well apart",
    ),
    Algorithm(
        "fkm",
        "FKM: federated k-means in rounds, with clusters that sites may lack",
        *_sides("fkm.FKM"),
        frozenset({"iterative", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Garst and Reinders 2024, Federated K-Means Clustering, Algorithm 1",
        when="several rounds; sites may lack clusters",
    ),
    Algorithm(
        "lloyd",
        "Distributed Lloyd: sums and counts per cluster, as on the pooled rows",
        *_sides("lloyd.Lloyd"),
        frozenset({"iterative", "equals-central", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Lloyd 1982; in rounds as in Dennis et al. 2021, section 4.2",
        when="many rounds; the result of Lloyd's algorithm on the pooled rows",
        in_parts=True,
    ),
    Algorithm(
        "kprototypes",
        "k-prototypes: numbers and categories, in rounds; k-modes where all columns are categories",
        *_sides("kprototypes.KPrototypes"),
        frozenset({"iterative", "equals-central", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Huang 1997; Huang 1998, sections 3 and 4",
        when="tables with categories, where centers should read as rows",
    ),
    Algorithm(
        "dkmpp",
        "Distributed k-means++: seeds of all sites, clustered at the server",
        *_sides("dkmpp.DKMPP"),
        frozenset({"one-shot", "recovers-iid", "small-sites", "translation"}),
        "Armacki and Kar, Toward Understanding the Improved Robustness to Initialization, Algorithm 2",
        when="one small message per site; a start for an iterative algorithm",
    ),
    Algorithm(
        "pooled",
        "Pooled centroids: k-means on all sites' centroids, weighted by their rows",
        *_sides("pooled.Pooled"),
        frozenset({"one-shot", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "the plain baseline of one-shot methods",
        when="one message per site; any mix of clusters",
        in_parts=True,
    ),
    Algorithm(
        "tree",
        "Tree: a hierarchy of all sites' micro-clusters, compact or of any shape",
        *_sides("tree.Tree"),
        frozenset({"one-shot", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Ward 1963; Campello, Moulavi and Sander 2013, both over micro-clusters",
        when="one message per site; a tree of clusters, clusters of any shape, rows that belong to none",
    ),
    Algorithm(
        "mavg",
        "Match averaging: sites' centroids matched to the first site's and averaged",
        *_sides("mavg.MAvg"),
        frozenset({"one-shot", "recovers-iid", "translation"}),
        "baseline of Xu et al. 2024, section 6",
        when="baseline",
        in_parts=True,
    ),
    Algorithm(
        "ffcm",
        "Federated fuzzy c-means, averaged (v1) or clustered again (v2)",
        *_sides("ffcm.FFCM"),
        frozenset({"iterative", "recovers-iid", "recovers-non-iid", "translation"}),
        "Stallmann and Wilbik 2022, Towards Federated Clustering; baseline of Xu et al. 2024",
        when="graded memberships, overlapping clusters",
    ),
    Algorithm(
        "gmm",
        "Gaussian mixture: expectation maximisation over sites, as on the pooled rows",
        *_sides("gmm.GMM"),
        frozenset({"recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Dempster, Laird, Rubin 1977; over sites as in Nowak 2003, section III",
        when="stretched or overlapping clusters, with probabilities; many rounds",
    ),
    Algorithm(
        "minibatch",
        "Mini-batch k-means as NVFlare's own recipe does it",
        *_sides("minibatch.MiniBatch"),
        frozenset({"iterative", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "nvflare.app_opt.sklearn, KMeansAssembler",
        when="baseline: NVFlare's own recipe",
    ),
    Algorithm(
        "masked",
        "Masked: federated k-means where sites have different columns",
        *_sides("masked.Masked"),
        _OF_DIFFERENT_COLUMNS,
        "Maritan and Schenato, Distributed Clustering in Partially Overlapping Feature Spaces, Algorithm 1",
        when="sites with different columns, a few rounds",
    ),
    Algorithm(
        "proxy",
        "Proxy: one-shot merging of synthetic clusters where sites have different columns",
        *_sides("proxy.Proxy"),
        _OF_DIFFERENT_COLUMNS | {"one-shot"},
        "Maritan and Schenato, Distributed Clustering in Partially Overlapping Feature Spaces, Algorithm 2",
        when="sites with different columns, one message per site",
    ),
    Algorithm(
        "fkm-common",
        "FKM on the columns that all sites have: a baseline for masked and proxy",
        *_sides("fkm.FKMCommon"),
        frozenset({"iterative", "partial-features", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Garst and Reinders 2024, Algorithm 1, on common columns",
        when="baseline for `masked` and `proxy`",
    ),
    Algorithm(
        "fkm-imputed",
        "FKM with means in place of the columns that a site lacks: a baseline for masked and proxy",
        *_sides("fkm.FKMImputed"),
        frozenset({"iterative", "partial-features", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
        "Garst and Reinders 2024, Algorithm 1, after imputation of means",
        when="baseline for `masked` and `proxy`",
    ),
    Algorithm(
        "dp-lloyd",
        "DP Lloyd: few rounds of noisy sums and counts, differentially private at every site",
        *_sides("dp_lloyd.DPLloyd"),
        frozenset({"differentially-private"}),
        "Blum et al. 2005, section 5; start after Su et al. 2016, section 4",
        when="differential privacy, a few rounds, also with many columns; needs the extra dp",
    ),
    Algorithm(
        "dp-oneshot",
        "DP one-shot: one message of noisy counts on a grid, or of noisy centroids",
        *_sides("dp_oneshot.DPOneShot"),
        frozenset({"differentially-private", "one-shot"}),
        "grid after Su et al. 2016, section 4; centroids after Blum et al. 2005, section 5",
        when="differential privacy, one message per site, few columns; needs the extra dp",
    ),
    Algorithm(
        "dp-gmm",
        "DP Gaussian mixture: few rounds of expectation maximisation on noisy sums, differentially private at every site",
        *_sides("dp_gmm.DPGMM"),
        frozenset({"differentially-private"}),
        "Park, Foulds, Chaudhuri, Welling 2017; start as in dp-lloyd",
        when="differential privacy, stretched or overlapping clusters with many rows in few columns; needs the extra dp",
    ),
    Algorithm(
        "deepfeca",
        "DeepFeCA: a network learned from clusters of its embeddings, for images",
        *_sides("deepfeca.DeepFeCA"),
        frozenset({"embeds"}),
        "Xu et al. 2024, Jigsaw Game: Federated Clustering, Algorithm 6; training after Caron et al. 2020",
        when="images; needs the extra deep",
    ),
    Algorithm(
        "kpod",
        "k-POD on the pooled rows with their gaps: the baseline for different columns, not federated",
        None,
        "flareclust.core.kpod.kpod",
        frozenset({"partial-features"}),
        "Chi, Chi and Baraniuk 2016, k-POD: A Method for k-Means Clustering of Missing Data",
        "flareclust.engines.pooled.KPodParams",
        when="baseline for `masked` and `proxy`; not federated",
    ),
    Algorithm(
        "central",
        "k-means on the pooled rows: the baseline, not federated",
        None,
        "flareclust.engines.pooled.central_kmeans",
        source="scikit-learn KMeans",
        baseline_params="flareclust.engines.pooled.CentralParams",
        when="baseline; not federated",
    ),
)


__all__ = ["BUILT_IN", "Algorithm", "algorithms", "executors", "get", "name_of"]

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
    if name in _BUILT_IN_BY_NAME:  # a look at all packages installed takes longer than a small federation
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


@lru_cache(maxsize=1)
def executors() -> "Mapping[str, type[ClusteringExecutor]]":
    """Return the executors of all algorithms that are registered here, by name; without those whose package is not installed."""
    found: dict[str, type[ClusteringExecutor]] = {}
    for algorithm in algorithms().values():
        with suppress(UserError):  # no job can run it here either
            found |= {algorithm.name: algorithm.executor_class()} if algorithm.federated else {}
    return MappingProxyType(found)
