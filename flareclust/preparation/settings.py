"""Settings that several algorithms share, each with the stage or phase that reads it beside it in this package."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust.core import robust as robust_rules
from flareclust.core.categories import check_groups
from flareclust.core.local import LocalKMeans, Seeds, SmallClusters
from flareclust.protocol.params import Params, both, server, site

#: How distances can be measured.
EUCLIDEAN, COSINE = METRIC = ("euclidean", "cosine")

#: What is compared over sites; location and spread only where these may be sent.
_COMPARE = ("none", "names", "spread")


class TableParams(Params):
    """Parameters of every algorithm with sites."""

    table_schema: str | None = both(
        None, "Fingerprint of the schema by which sites must have read their rows; None for any table."
    )


class NamesParams(TableParams):
    """Parameters of algorithms that can compare the names of columns."""

    compare: Annotated[str, OneOf(_COMPARE[:2])] = server(
        "none", "Whether hashes of the columns' names, in their order, are compared over sites before the first round."
    )


class ClusteringParams(TableParams):
    """Parameters of every algorithm that is not differentially private."""

    min_count: int = site(2, "Clusters with fewer rows are not sent; those of identical rows never are.", ge=1)


#: The ways to scale.
SCALE = ("none", "standard", "robust", "range")

#: What missing cells mean.
MISSING = ("refuse", "mean")

#: What they mean to algorithms for different columns.
_MISSING_IN_COLUMNS = ("refuse", "drop-rows", "mean")

#: What they mean where an algorithm can leave them open.
PARTIAL = "partial"


#: The ways for which sites count cells in bins.
BY_BINS = ("robust", "range")


class ScaleParams(ClusteringParams):
    """The parameter of algorithms that can scale columns."""

    scale: Annotated[str, OneOf(SCALE)] = both(
        "none",
        "How columns are scaled over all sites first: to mean 0 and variance 1 (standard), median 0 and interquartile range 1 (robust), values from 0 to 1 (range), or not at all.",
        in_parts=SCALE[:2],
    )


class ScaledParams(ScaleParams):
    """Parameters of algorithms that can scale columns, for sites with the same ones."""

    missing: Annotated[str, OneOf(MISSING)] = both(
        "refuse",
        "What missing cells mean: a site that has some takes no part (refuse), or they are filled with the mean of their column over all sites.",
        in_parts=("refuse",),
    )
    compare: Annotated[str, OneOf(_COMPARE)] = server(
        "none",
        "What is compared over sites before the first round: hashes of the columns' names (names), also their location and spread (spread), or nothing.",
    )
    table_ranges: list[list[float] | None] | None = server(
        None, "Least and largest value of each feature by the sites' schema, for scale=range; None for those without."
    )
    categories: list[list[int]] | None = server(
        None,
        "The columns of 0 and 1 of each category, counted from 0, which are scaled as one column; None for those of the schema.",
    )

    @field_validator("categories", mode="before")
    @classmethod
    def _categories(cls, value: Any) -> Any:
        return None if value is None else check_groups(value)


class ModesParams(ScaledParams):
    """Parameters of algorithms that take the most frequent value of each category, and not the mean of its columns."""

    categories: list[list[int]] | None = both(
        None, "The columns of each category, counted from 0; None for those of the schema, or none without one."
    )
    gamma: float | None = server(
        None,
        "What a category that differs adds to the squared distance; None for the mean variance of the numbers over the mean chance that two rows differ in a category.",
        gt=0,
        le=1e12,
    )


class SmallClustersParams(ScaledParams):
    """Parameters of algorithms whose sites may let small local clusters join others."""

    small_clusters: SmallClusters = site(
        "withhold",
        "Local clusters below min_count rows are not sent (withhold), or join the site's nearest other cluster, the smallest first (dissolve).",
        in_parts=("withhold",),
    )


class LocalKMeansParams(ScaledParams):
    """Parameters of algorithms whose sites run k-means on their own rows."""

    local_kmeans: LocalKMeans = site(
        "lloyd",
        "What the local k-means iterates on: all rows (lloyd), or a summary of them, so that they are read twice only (summary).",
        in_parts=("lloyd",),
    )


class SeedsParams(ClusteringParams):
    """Parameters of algorithms whose sites send seeds."""

    seeds: Seeds = site(
        "means", "What a site sends for a seed: the mean of its cell, or the seed itself, a row of the data."
    )


class RobustParams(ScaledParams):
    """Parameters of servers that can leave out sites that are unlike most others."""

    last: ClassVar[tuple[str, ...]] = ("robust", "trim")

    robust: Annotated[str, OneOf(robust_rules.ROBUST)] = server(
        robust_rules.NONE,
        "Where sites may be faulty or malicious: trimmed means or geometric medians over the sites, without those that are unlike the others.",
    )
    trim: float = server(
        0.2, "Share of the sites' weight that a trimmed mean leaves out at each end of a column.", ge=0, lt=0.5
    )

    @property
    def rule(self) -> robust_rules.Rule:
        """Return how far sites are trusted."""
        return robust_rules.Rule(
            self.robust, self.trim, None if self.robust == robust_rules.NONE else robust_rules.USUAL_CAP
        )


class CappedParams(RobustParams):
    """The same, where sites also state how many rows they have."""

    last: ClassVar[tuple[str, ...]] = ("robust", "trim", "cap")

    cap: float | None = server(
        None,
        "How many times the median site's total the rows of one site may count; None for 1 with robust, else for no cap.",
        gt=0,
    )

    @property
    def rule(self) -> robust_rules.Rule:
        """Return how far sites are trusted."""
        rule = super().rule
        return rule if self.cap is None else rule._replace(cap=self.cap)


class TrimParams(CappedParams):
    """Parameters of algorithms whose sites can leave out the rows that are farthest from all centroids."""

    # The server must know it, too: with secure sums it is the least number of rows of a total.
    min_count: int = both(2, "Clusters with fewer rows are not sent; those of identical rows never are.", ge=1)
    trim_rows: float = both(
        0.0,
        "Share of its rows, those farthest from the centroids, that a site leaves out of each step: for spoilt rows; the share of outliers of k-means--.",
        in_parts=(0.0,),
        ge=0,
        lt=0.5,
    )


#: What missing cells mean where they can be left open. The fields of an algorithm's first base hold, so each declares it anew.
Missing = Annotated[str, OneOf((*MISSING, PARTIAL))]
MISSING_CELLS: str = both(
    "refuse",
    "What missing cells mean: a site that has some takes no part (refuse), they are filled with the mean of their column over all sites (mean), or they count nowhere, neither in distances nor in means (partial).",
    in_parts=("refuse",),
)


class GapsParams(ScaledParams):
    """Parameters of algorithms that can leave missing cells open."""

    missing: Missing = MISSING_CELLS

    @model_validator(mode="after")
    def _open_gaps(self) -> "GapsParams":
        if self.missing == PARTIAL and isinstance(self, TrimParams) and self.trim_rows:
            raise UserError("missing=partial and trim_rows exclude each other; leave out one of them")
        return self


class MetricParams(GapsParams):
    """Parameters of algorithms that can cluster rows by their direction."""

    metric: Annotated[str, OneOf(METRIC)] = both(
        EUCLIDEAN,
        "The distance of rows and centroids; cosine is for embeddings, whose length says nothing.",
        in_parts=(EUCLIDEAN,),
    )

    @model_validator(mode="after")
    def _no_scaled_directions(self) -> "MetricParams":
        if self.metric == COSINE and self.scale != "none":
            raise UserError(f"metric={COSINE} and scale={self.scale} exclude each other; leave out one of them")
        if self.metric == COSINE and self.missing == PARTIAL:
            raise UserError(f"metric={COSINE} and missing={PARTIAL} exclude each other; take missing=mean")
        return self


def leaves_gaps(params: Params) -> bool:
    """Return whether a job leaves missing cells open."""
    return isinstance(params, GapsParams) and params.missing == PARTIAL


def by_direction(params: Params) -> bool:
    """Return whether a job clusters rows by their direction."""
    return isinstance(params, MetricParams) and params.metric == COSINE


#: How a site's rows are shown to an algorithm for different columns: the columns that it has, those that all sites have (it must
#: have them all), or all columns with the federation's mean in the places of those that it lacks.
Shown = Literal["own", "common", "imputed"]


class ColumnsParams(ScaleParams):
    """Parameters of algorithms for sites with different columns."""

    shown: ClassVar[Shown] = "own"

    instead: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "standardize": "say scale=standard, which brings each column to mean 0 and variance 1 over the sites that have it",
            "compare": "it puts columns in their places by name, in whatever order sites have them",
        }
    )

    missing: Annotated[str, OneOf(_MISSING_IN_COLUMNS)] = both(
        "refuse",
        "What missing cells in a site's own columns mean: the site takes no part (refuse), rows with some are only labelled (drop-rows), or they are filled with the mean of their column over the sites that have it (mean).",
    )
    table_ranges: dict[str, list[float]] | None = server(
        None, "Least and largest value of features by the sites' schema, for scale=range."
    )
    categories: list[list[str]] | None = server(
        None,
        "The columns of 0 and 1 of each category, by name, which are scaled as one column; None for those of the schema.",
    )

    @property
    def distance(self) -> str:
        """Return the distance by which rows find their centroid, of algorithms that have several."""
        return "euclidean"

    @property
    def sends_sums(self) -> bool:
        """Return whether sites send the sums of their columns as they are."""
        asked = self.scale == "standard" or self.shown == "imputed" or self.missing == "mean"
        return asked and self.scale not in BY_BINS
