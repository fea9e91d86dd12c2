"""Parameters that several algorithms share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust.core.categories import check_groups
from flareclust.core.local import LocalKMeans, Seeds, SmallClusters
from flareclust.core.robust import NONE, ROBUST, USUAL_CAP, Rule
from flareclust.privacy.dp.accounting import LARGEST_DELTA, LEAST_DELTA, LEAST_EPSILON, MOST_EPSILON
from flareclust.privacy.policy import PER_ID, UNITS
from flareclust.protocol.params import Params, both, server, site

#: How distances can be measured.
EUCLIDEAN, COSINE = METRIC = ("euclidean", "cosine")

#: What is compared over sites; location and spread only where these may be sent.
_COMPARE = ("none", "names", "spread")


class _TableParams(Params):
    """Parameters of every algorithm with sites."""

    table_schema: str | None = site(
        None, "Fingerprint of the schema by which sites must have read their rows; None for any table."
    )


class NamesParams(_TableParams):
    """Parameters of algorithms that can compare the names of columns."""

    compare: Annotated[str, OneOf(_COMPARE[:2])] = server(
        "none", "Whether hashes of the columns' names, in their order, are compared over sites before the first round."
    )


class ClusteringParams(_TableParams):
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


class _ScaleParams(ClusteringParams):
    """The parameter of algorithms that can scale columns."""

    scale: Annotated[str, OneOf(SCALE)] = both(
        "none",
        "How columns are scaled over all sites first: to mean 0 and variance 1 (standard), median 0 and interquartile range 1 (robust), values from 0 to 1 (range), or not at all.",
    )


class ScaledParams(_ScaleParams):
    """Parameters of algorithms that can scale columns, for sites with the same ones."""

    missing: Annotated[str, OneOf(MISSING)] = both(
        "refuse",
        "What missing cells mean: a site that has some takes no part (refuse), or they are filled with the mean of their column over all sites.",
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


class SmallClustersParams(ScaledParams):
    """Parameters of algorithms whose sites may let small local clusters join others."""

    small_clusters: SmallClusters = site(
        "withhold",
        "Local clusters below min_count rows are not sent (withhold), or join the site's nearest other cluster, the smallest first (dissolve).",
    )


class LocalKMeansParams(ScaledParams):
    """Parameters of algorithms whose sites run k-means on their own rows."""

    local_kmeans: LocalKMeans = site(
        "lloyd",
        "What the local k-means iterates on: all rows (lloyd), or a summary of them, so that they are read twice only (summary).",
    )


class SeedsParams(ClusteringParams):
    """Parameters of algorithms whose sites send seeds."""

    seeds: Seeds = site(
        "means", "What a site sends for a seed: the mean of its cell, or the seed itself, a row of the data."
    )


class RobustParams(ScaledParams):
    """Parameters of servers that can leave out sites that are unlike most others."""

    last: ClassVar[tuple[str, ...]] = ("robust", "trim")

    robust: Annotated[str, OneOf(ROBUST)] = server(
        NONE,
        "Where sites may be faulty or malicious: trimmed means or geometric medians over the sites, without those that are unlike the others.",
    )
    trim: float = server(
        0.2, "Share of the sites' weight that a trimmed mean leaves out at each end of a column.", ge=0, lt=0.5
    )

    @property
    def rule(self) -> Rule:
        """Return how far sites are trusted."""
        return Rule(self.robust, self.trim, None if self.robust == NONE else USUAL_CAP)


class CappedParams(RobustParams):
    """The same, where sites also state how many rows they have."""

    last: ClassVar[tuple[str, ...]] = ("robust", "trim", "cap")

    cap: float | None = server(
        None,
        "How many times the median site's total the rows of one site may count; None for 1 with robust, else for no cap.",
        gt=0,
    )

    @property
    def rule(self) -> Rule:
        """Return how far sites are trusted."""
        rule = super().rule
        return rule if self.cap is None else rule._replace(cap=self.cap)


class ColumnsParams(_ScaleParams):
    """Parameters of algorithms for sites with different columns."""

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


#: Most rows of an id that are used: noise for more would hide everything.
_MOST_PER_ID = 1000


class PrivateParams(NamesParams):
    """Parameters of algorithms under differential privacy."""

    epsilon: float = both(
        1.0, "What the job spends at each site, all steps together.", ge=LEAST_EPSILON, le=MOST_EPSILON
    )
    delta: float = both(
        1e-5, "With epsilon; should be well below 1 / number of rows.", ge=LEAST_DELTA, le=LARGEST_DELTA
    )
    colluding: int | None = both(
        None,
        "With secure sums, how many sites may tell the server their shares of the noise; None for a third of them.",
        ge=1,
    )
    unit: Annotated[str, OneOf(UNITS)] = both(
        "row",
        "Whose presence is protected: that of a row, or that of an id with all of its rows (id), such as a patient.",
    )
    rows_per_id: int = both(
        1,
        "With unit=id, how many rows of an id are used, the first ones; the noise grows in proportion.",
        ge=1,
        le=_MOST_PER_ID,
    )

    @model_validator(mode="after")
    def _bound_of_ids(self) -> "PrivateParams":
        if self.unit != PER_ID and self.rows_per_id != 1:
            raise UserError(f"rows_per_id={self.rows_per_id} is a setting of unit=id; add unit=id, or leave it out")
        return self

    @property
    def rows_of_unit(self) -> int:
        """Return how many rows the unit has at most, by which it changes sums more than a single row does."""
        return self.rows_per_id if self.unit == PER_ID else 1
