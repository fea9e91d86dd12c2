"""A site that clusters its own rows, of its own columns, by a method of its choice: the base of `masked` and `proxy`."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray
from flareclust._foundation.validation import check_choice, check_int
from flareclust.core.local import Sendable
from flareclust.core.missing.grouping import PHIS
from flareclust.core.site_clusters import check_clusterer, check_k_local, of_site, site_clusters, warn_of_unknown_sites
from flareclust.executors.described import DescribedExecutor

#: Above every number of clusters that a site can have.
_ANY = 2**31


class LocalClustersExecutor(DescribedExecutor):
    """A site that clusters its own rows first, in both algorithms.

    Args:
        k: number of clusters in the federation.
        seed: of the job.
        min_count: clusters with fewer rows never leave the site.
        standardize: whether columns are brought to mean 0 and variance 1 over the sites that have them.
        clusterer: the local clustering method, or methods by site name.
        k_local: K_i, or values by site name.
        n_init: runs of the local clustering; the best one counts.
        phi: the distance by which rows find a centroid.
    """

    #: Whether a site may look for more clusters than the federation.
    more_than_k: ClassVar[bool] = False

    def __init__(
        self,
        k: int,
        seed: int,
        min_count: int,
        standardize: bool,
        clusterer: str | dict[str, str],
        k_local: int | str | dict[str, int | str] | None,
        n_init: int,
        phi: str,
    ) -> None:
        super().__init__(k, seed, min_count, standardize)
        self.clusterer = check_clusterer(clusterer)
        self.k_local = check_k_local(k_local, _ANY if self.more_than_k else self.k)
        self.n_init = check_int("n_init", n_init, minimum=1)
        self.phi = check_choice("phi", phi, PHIS)

    def local_clustering(self, site: str, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck) -> Sendable:
        """Return the local clusters that are described to the server, with the rows (n, d) that belong to each.

        The generator of `local` in round 0 gives the same clusters again.
        """
        k_local = of_site(self.k_local, site, None)
        clusters = site_clusters(
            data,
            max(self.k, k_local) if isinstance(k_local, int) else self.k,
            rng,
            k_local=k_local,
            clusterer=of_site(self.clusterer, site, "kmeans"),
            n_init=self.n_init,
            min_count=self.min_count,
            aborted=aborted,
        )
        return self.guarded(clusters, data)

    def check_sites(self, sites: Sequence[str]) -> None:
        """Warn where `k_local` or `clusterer` names a site that is not there: a late one, or a misspelt one."""
        warn_of_unknown_sites("k_local", self.k_local, sites)
        warn_of_unknown_sites("clusterer", self.clusterer, sites)
