"""What the registry knows of an algorithm."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.protocol.params import Params
from flareclust.protocol.task import PROFILE_TOTALS

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
        when: when to use it, for tables.
    """

    name: str
    title: str
    executor: str | None
    aggregator: str
    promises: frozenset[str] = frozenset()
    source: str = ""
    baseline_params: str = "flareclust.protocol.params.Params"
    when: str = ""

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
        Differentially private results have one of what they have released, whatever the settings.
        """
        if not self.federated:
            return f"{self.name} is not federated and describes no clusters"
        if "differentially-private" in self.promises:
            return ""
        if self.partial:
            return f"{self.name} is for sites with different columns, and profiles need the same ones"
        if secure_sums and PROFILE_TOTALS not in self.executor_class().steps:
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
        """Return both sides, each with the parameters that it reads.

        Raises:
            UserError: as `check`.
        """
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
