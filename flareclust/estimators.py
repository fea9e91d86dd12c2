"""Every federated algorithm as a scikit-learn estimator: `FeCA(n_clusters=15).fit(sites)`.

There is one class per algorithm, named as its executor: `FeCA`, `KFed`, `FKM`, `Lloyd`, ...; `FederatedKMeans` is
`Portfolio`, the first choice. Their settings and defaults are those of the algorithm (`flareclust list`).
"""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.api import run
from flareclust.data.cells import check_rows
from flareclust.data.frames import table_of
from flareclust.data.tables import Table
from flareclust.evaluation import criteria
from flareclust.preparation.scaling import as_clustered, filled
from flareclust.protocol import registry

#: The estimator of the first choice among the algorithms.
DEFAULT, DEFAULT_ALGORITHM = "FederatedKMeans", "portfolio"

#: What every estimator has beside its algorithm's settings, with the defaults of `flareclust.run`.
GENERAL: Mapping[str, Any] = {
    "n_clusters": 8,
    "n_sites": 10,
    "partition": "iid",
    "criterion": criteria.USUAL,
    "engine": "inprocess",
    "min_sites": None,
    "secure_sums": False,
    "policy": None,
    "random_state": 0,
}

#: Those that `flareclust.run` has under another name, or for one table only.
_OTHERWISE_GIVEN = ("n_clusters", "n_sites", "partition", "random_state")


class FederatedClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Cluster rows that are spread over sites.

    Args:
        n_clusters: number of clusters, or a range such as "5..25" to choose from.
        n_sites: number of simulated sites that one table is split over.
        partition: how its rows are assigned to them, as in `flareclust.run`.
        criterion: what selects the number of clusters from a range.
        engine: where the federation runs: "inprocess" or "simulator".
        min_sites: quorum of a round; None for more than half of the sites.
        secure_sums: whether sites mask their sums, so that the server learns their total only.
        policy: what simulated sites let out, a file or a mapping; None for no policy.
        random_state: seed of the partition and of the algorithm; None for a new one in each fit.

    Attributes:
        cluster_centers_: (k, d) recovered centroids; NaN for entries that no site could observe.
        labels_: cluster of each row, in the form of the data: by site for a mapping, a list for a list, (n,) for one table.
        inertia_: sum of squared distances to the nearest centroid over the rows of all sites that were assessed.
        n_iter_: number of rounds.
        n_features_in_: number of columns d.
        feature_names_in_: names of the columns (d,), where they have any.
        result_: the `flareclust.Result`.
    """

    #: The algorithm's name in the registry.
    algorithm: ClassVar[str]

    def __init__(self, n_clusters: Any = GENERAL["n_clusters"], **settings: Any) -> None:
        settings["n_clusters"] = n_clusters
        known = self._get_param_names()
        for name in settings:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{hint}; it has {', '.join(known)}")
        for name, parameter in _signature(self.algorithm).parameters.items():
            setattr(self, name, settings.get(name, parameter.default))

    def fit(self, X: Any, y: object = None) -> "FederatedClusterer":
        """Run the federation.

        Args:
            X: the sites: a mapping of names to tables (n_i, d) or files, a list of tables; or one table (n, d), which is
                split over `n_sites` simulated sites. Tables are arrays, or frames of pandas, polars or pyarrow.
            y: not used.

        Raises:
            UserError: a setting or a table cannot be used.
            JobFailed: too few sites took part; the text names them and their reasons.
        """
        sites = _sites_of(X)
        general = {"partition": self.partition, "n_sites": self.n_sites} if sites is None else {}
        data = self._one_table(X, reset=True) if sites is None else sites
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in _OTHERWISE_GIVEN}
        result = run(self.algorithm, data, self.n_clusters, seed=_seed(self.random_state), **general, **given)
        self.result_ = result
        self.cluster_centers_ = result.centroids
        self.inertia_ = result.metrics.get("inertia")
        self.n_iter_ = result.rounds
        self.n_features_in_ = result.centroids.shape[1]
        self._n_features_out = len(result.centroids)
        self.labels_: Any = result.labels
        if sites is not None:
            if result.columns is not None:
                self.feature_names_in_ = np.array(result.columns, dtype=object)
            labels = {site: result.site_labels[site] for site in sites if site in result.site_labels}
            self.labels_ = labels if isinstance(X, Mapping) else list(labels.values())
        return self

    def fit_predict(self, X: Any, y: object = None) -> Any:
        """Run the federation and return `labels_`."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> IntArray:
        """Return the nearest centroid (n,) of each row of a table (n, d); ties go to the lower index."""
        rows = self._rows(X)  # raises NotFittedError first
        return self.result_.predict(rows)

    def transform(self, X: Any) -> FloatArray:
        """Return the Euclidean distance (n, k) of each row of a table (n, d) to each centroid.

        In scaled columns where the run scaled them, and between rows of length 1 with `metric="cosine"`.
        """
        arrays, rows = self.result_.arrays, np.asarray(self._rows(X), dtype=np.float64)
        if not self._partial:
            rows = check_rows(filled(arrays, rows), where="X")
        rows, centers = as_clustered(arrays, rows), as_clustered(arrays, self.cluster_centers_)
        return np.stack([np.sqrt(((rows - center) ** 2).sum(axis=1)) for center in centers], axis=1)

    def score(self, X: Any, y: object = None) -> float:
        """Return the negative inertia of a table (n, d): the sum of squared distances to the nearest centroids."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps
        return tags

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        if self._partial and hasattr(X, "columns"):  # columns are matched by name, and may be missing
            return X
        self.result_.check_read_by(X)
        if isinstance(X, Table) and X.columns is not None and hasattr(self, "feature_names_in_"):
            return check_rows(table_of("X", X, self.feature_names_in_.tolist(), may_be_empty=True).X, where="X")
        return self._one_table(X, reset=False)

    def _one_table(self, X: Any, *, reset: bool) -> FloatArray:
        gaps = self._takes_gaps or (self._partial and not reset)  # of new rows, where columns may be missing
        rows: FloatArray = validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            order="C",
            ensure_min_samples=self.n_sites if reset else 1,
            ensure_all_finite="allow-nan" if gaps else True,
        )
        return rows

    @property
    def _takes_gaps(self) -> bool:
        """Whether the settings say what missing cells mean."""
        return getattr(self, "missing", "refuse") != "refuse"

    @property
    def _partial(self) -> bool:
        return registry.get(self.algorithm).partial


def _sites_of(X: Any) -> Mapping[str, Any] | None:
    """Return the tables by site; None for one table."""
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # a sparse array in scipy's DOK format is a mapping, too
        return X
    if isinstance(X, list | tuple) and X and all(len(getattr(table, "shape", ())) == 2 for table in X):
        digits = len(str(len(X)))
        return {f"site-{number:0{digits}d}": table for number, table in enumerate(X, 1)}
    return None


def _seed(random_state: Any) -> int:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if random_state is None:
        return int(np.random.default_rng().integers(2**31 - 1))
    return cast(int, random_state)  # `run` checks it


def _signature(algorithm: str) -> Signature:
    settings = {**GENERAL, **registry.get(algorithm).parameters()}
    first, *others = (Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in settings.items())
    return Signature([first.replace(kind=Parameter.POSITIONAL_OR_KEYWORD), *others])


def _initializer(algorithm: str) -> Callable[..., None]:
    """Return a constructor whose signature scikit-learn, editors and `help` can read."""

    def __init__(  # noqa: N807 - becomes the method of that name
        self: FederatedClusterer, n_clusters: Any = GENERAL["n_clusters"], **settings: Any
    ) -> None:
        FederatedClusterer.__init__(self, n_clusters, **settings)

    self_parameter, own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), _signature(algorithm).parameters.values()
    __init__.__signature__ = Signature([self_parameter, *own])  # type: ignore[attr-defined]
    return __init__


def _algorithms() -> dict[str, registry.Algorithm]:
    """Return the algorithms by the names of their estimators, which are those of their executors.

    There is none for a baseline that is not federated, and where clusters are not in the space of the rows, as those of networks.
    """
    found = {DEFAULT: registry.get(DEFAULT_ALGORITHM)}
    for algorithm in registry.algorithms().values():
        if algorithm.executor is not None and "embeds" not in algorithm.promises:
            found.setdefault(algorithm.executor.rpartition(".")[2].removesuffix("Executor"), algorithm)
    return found


def __getattr__(name: str) -> Any:
    """Make an estimator on first use, so that a program imports the algorithms that it uses."""
    algorithm = None if name.startswith("_") else _algorithms().get(name)
    if algorithm is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    body = {
        "algorithm": algorithm.name,
        "__module__": __name__,
        "__doc__": f"{algorithm.title}.\n\n{algorithm.source}. Arguments and attributes: `FederatedClusterer`.\n",
        "__init__": _initializer(algorithm.name),
    }
    globals()[name] = estimator = type(name, (FederatedClusterer,), body)
    return estimator


def __dir__() -> list[str]:
    """List the estimators, whether made yet or not."""
    first, *others = _algorithms()
    return [first, "FederatedClusterer", *others]
