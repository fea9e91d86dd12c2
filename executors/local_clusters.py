"""A site that clusters its own rows, of its own columns, by a method of its choice: what `masked` and `proxy` begin with."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import ValidationInfo, field_validator

from flareclust._foundation.settings import OneOf
from flareclust.core import site_clusters as own_clusters
from flareclust.core.local import Sendable
from flareclust.core.missing.distances import PHIS
from flareclust.preparation.different import guarded
from flareclust.preparation.settings import ColumnsParams
from flareclust.protocol.params import MOST_STARTS, both, site
from flareclust.protocol.rows import SiteRows

#: Above every number of clusters that a site can have.
_ANY = 2**31


class LocalClustersParams(ColumnsParams):
    """Parameters of sites that cluster their own rows first."""

    #: Whether a site may look for more clusters than the federation.
    more_than_k: ClassVar[bool] = False

    clusterer: str | dict[str, str] = site(
        "kmeans", "How a site clusters its rows: kmeans, kmedoids, agglomerative, or such by site name, else kmeans."
    )
    k_local: int | str | dict[str, int | str] | None = site(
        None, 'K_i: None for k, a number, "silhouette" for the best of 2 to k, or such by site name, else k.'
    )
    n_init: int = site(10, "Runs of the local clustering; the best one counts.", ge=1, le=MOST_STARTS)
    phi: Annotated[str, OneOf(PHIS)] = both("euclidean", "The distance by which rows find a centroid.")

    @property
    def distance(self) -> str:
        """Return the distance by which rows find their centroid."""
        return self.phi

    @field_validator("clusterer", mode="before")
    @classmethod
    def _clusterer(cls, value: Any) -> Any:
        return own_clusters.check_clusterer(value)

    @field_validator("k_local", mode="before")
    @classmethod
    def _k_local(cls, value: Any, known: ValidationInfo) -> Any:
        if "k" not in known.data:
            return value
        return own_clusters.check_k_local(value, _ANY if cls.more_than_k else known.data["k"])


def local_clusters(params: LocalClustersParams, site: str, rows: SiteRows) -> Sendable:
    """Return the local clusters that are described to the server, with the rows (n, d) that belong to each.

    The generator of `local` in round 0 gives the same clusters again.
    """
    k_local = own_clusters.of_site(params.k_local, site, None)
    clusters = own_clusters.site_clusters(
        rows.X,
        max(params.k, k_local) if isinstance(k_local, int) else params.k,
        rows.rng,
        k_local=k_local,
        clusterer=own_clusters.of_site(params.clusterer, site, "kmeans"),
        n_init=params.n_init,
        min_count=rows.context.min_count,
        aborted=rows.aborted,
    )
    return guarded(params, clusters, rows)


def check_sites(params: LocalClustersParams, sites: Sequence[str]) -> None:
    """Warn where `k_local` or `clusterer` names a site that is not there: a late one, or a misspelt one."""
    own_clusters.warn_of_unknown_sites("k_local", params.k_local, sites)
    own_clusters.warn_of_unknown_sites("clusterer", params.clusterer, sites)
