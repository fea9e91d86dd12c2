"""One-shot clustering of tables with different columns by proxy clusters, the site's side: a distribution for each cluster.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": Algorithm 2, lines 1-3
(`local_clustering`, `_fit_pdf`), and the memberships by the merged clusters of section 6.3 (`labels`).

Readings where the paper is open, and deviations from it:
1. Line 2, K_i and the method: those of core/site_clusters.py, which also says which clusters may be described. A site
   may have more clusters than the federation, which is how Assumption 3 can always be satisfied.
2. Line 3, the distribution: a Gaussian by its mean and covariance, or a Dirichlet distribution. A covariance travels
   as a factor F (r, d) with F'F the covariance: r is its rank, below d where a cluster has few rows.
3. Mean and covariance of two different rows are these two rows, and of a few integers they can be found by trying.
   A cluster of fewer than `min_shape` different rows is described by its mean alone, and so is one where a vector of
   the description is a row of the site by chance. A column in which fewer than three rows (`min_count`, if that is
   more) differ from all others counts as constant: its covariances would be those rows. With `scale=standard`, which sends
   sums over all rows, the rows without a covariance are none or `min_shape` different ones, and the rows that are kept
   back none or several.
4. Not in the paper: numbers of rows are sent, which equations 1 and 4 and the size of a proxy cluster need. With
   `boxes`, so are the bounds within which proxy points are drawn.
5. A Dirichlet distribution travels as its mean and its concentration, whose product is the paper's one vector. The
   mean of the fitted distribution then stands for that of the rows, also in the result. Each row of the site must sum
   to 1 over the site's own columns. A cluster that is described by its mean alone has the concentration 0.
6. The labels of a site are those of its merged local clusters. Rows of clusters that were not sent, and those of a
   late site, belong to the nearest final centroid.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from flareclust._foundation.errors import Aborted, BadMessage, Refusal, UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core import forces
from flareclust.core import proxies as proxy_pdfs
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.local import Sendable
from flareclust.core.missing import distances
from flareclust.executors.kfed import own_numbers
from flareclust.executors.local_clusters import LocalClustersParams, check_sites, local_clusters
from flareclust.federation.executor import ClusteringExecutor
from flareclust.protocol.params import both, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, real, whole
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

_log = logging.getLogger(__name__)


#: How far the values of a row may be from adding up to 1.
_ROUNDING = 1e-6


class _PDF(NamedTuple):
    """The description of one cluster for the server."""

    mean: FloatArray  # of the distribution (d,)
    factor: FloatArray  # (r, d), factor.T @ factor is the covariance; r = 0 for a mean alone
    concentration: float  # sum of a Dirichlet distribution's parameters; 0 for all others
    low: FloatArray  # where proxy points begin, per column (d,)
    high: FloatArray  # where they end


class _Description(Schema):
    """A schema that also compares its arrays, so that a site whose reply contradicts itself is refused by its name."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Check that there is a description for each of at least one cluster."""
        ranks, k = message["ranks"], sizes["k"]
        if not k:
            raise BadMessage("centroids: expected those of at least one cluster")
        if sizes["a"] not in (0, k) or sizes["b"] not in (0, k):
            raise BadMessage("concentration, low: expected an entry for every cluster, or none")
        if (ranks > min(sizes["d"], sizes["f"])).any() or ranks.sum() != sizes["f"]:
            raise BadMessage("factors: expected as many rows as ranks add up to, and at most d for a cluster")
        if (message["low"] > message["high"]).any():
            raise BadMessage("low: holds values above those of high")
        shares = message["centroids"][message["concentration"] > 0] if sizes["a"] else message["centroids"][:0]
        if (shares <= 0).any() or (np.abs(shares.sum(axis=1) - 1.0) > _ROUNDING).any():
            raise BadMessage("centroids: expected shares above 0 that add up to 1, where there is a concentration")


class ProxyParams(LocalClustersParams):
    """Parameters of Algorithm 2; with `choose_k`, k is the largest number of clusters."""

    more_than_k: ClassVar[bool] = True

    k_local: int | str | dict[str, int | str] | None = both(
        None,
        'K_i: None for k, a number, also above k, "silhouette" for the best of 2 to k, or such by site name, else k.',
    )
    distribution: Literal["gaussian", "dirichlet"] = site(
        "gaussian", "What describes a cluster; dirichlet is for rows that are shares of a whole."
    )
    covariance: Annotated[str, OneOf(proxy_pdfs.COVARIANCES)] = site(
        "mle", "Covariance of a Gaussian; ledoit-wolf is the shrunk estimate."
    )
    boxes: bool = site(
        False, "Whether the bounds of each cluster are sent, slightly widened, so that no proxy point is outside."
    )
    min_shape: int = site(10, "Clusters with fewer different rows are described by their mean alone.", ge=LEAST_ROWS)
    w: Literal["auto"] | Annotated[float, Field(gt=1, le=forces.LARGEST_W)] = server(
        "auto",
        "Power of the distance by which attraction falls; auto is the paper's 2 where enough columns are shared.",
    )
    choose_k: bool = server(
        False, "Whether the silhouette of the proxy points selects the number of clusters, up to k."
    )

    @model_validator(mode="after")
    def _shares_as_they_are(self) -> "ProxyParams":
        settings = {"scale": ("none", self.scale), "missing": ("refuse", self.missing), "boxes": (False, self.boxes)}
        changed = [name for name, (usual, own) in settings.items() if own != usual and own != "drop-rows"]
        if self.distribution == "dirichlet" and changed:
            what = "boxes=true" if changed[0] == "boxes" else f"{changed[0]}={settings[changed[0]][1]}"
            raise UserError(f'{what} does not go with distribution="dirichlet", whose rows are shares of 1')
        return self


class ProxyExecutor(ClusteringExecutor):
    """A participant of Algorithm 2: sends a distribution for each of its local clusters, once.

    The reply has the rows of all clusters' factors end to end, `ranks` (k,) of each; `concentration` is without entries
    (a = 0) for Gaussians, `low` and `high` are (b = 0) without `boxes`.
    """

    params: ProxyParams

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", "group", "group_site")

    steps = {
        StepName.CLUSTER: Step(
            _Description(
                may_be_empty=True,
                centroids="k d",
                counts=counts("k", minimum=1),
                factors="f d",
                ranks=whole("k"),
                concentration=real("a", minimum=0),
                low="b d",
                high="b d",
            )
        )
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Cluster the site's rows (n, d) and fit a distribution to each cluster that may be described."""
        if self.params.distribution == "dirichlet":
            _check_shares(rows.X)
        p, minimum = self.params, max(LEAST_ROWS, rows.context.min_count)
        clusters, fitted = local_clusters(p, task.site, rows), []
        for r, mean in enumerate(clusters.centroids):
            if rows.aborted():
                raise Aborted(f"stopped after the distributions of {r} of {len(clusters.counts)} clusters")
            own, pdf = rows.X[clusters.labels == r], _mean_alone(mean)
            if _several(own, p.min_shape):
                pdf = _fit_pdf(own, mean, p.distribution, p.covariance, boxes=p.boxes, minimum=minimum)
            fitted.append(_mean_alone(mean) if _holds_a_row(pdf, rows.X) else pdf)
        if self.params.sends_sums:
            fitted = self._without_remainder(rows.X, clusters, fitted)
        d, n_boxes = rows.X.shape[1], len(fitted) if self.params.boxes else 0
        shares = self.params.distribution == "dirichlet"
        return {
            "centroids": np.stack([pdf.mean for pdf in fitted]),
            "counts": clusters.counts,
            "factors": np.concatenate([pdf.factor for pdf in fitted]),
            "ranks": np.array([len(pdf.factor) for pdf in fitted]),
            "concentration": np.array([pdf.concentration for pdf in fitted if shares], dtype=np.float64),
            "low": np.reshape([pdf.low for pdf in fitted[:n_boxes]], (n_boxes, d)),
            "high": np.reshape([pdf.high for pdf in fitted[:n_boxes]], (n_boxes, d)),
        }

    def _without_remainder(self, data: FloatArray, clusters: Sendable, fitted: list[_PDF]) -> list[_PDF]:
        """Remove covariances whose difference from the sums over all rows would describe only a few rows."""
        fitted = list(fitted)
        shaped = [r for r in clusters.counts.argsort(kind="stable") if len(fitted[r].factor)]
        for r in shaped:
            rest = data[~np.isin(clusters.labels, [other for other in shaped if len(fitted[other].factor)])]
            if not len(rest) or _several(rest, self.params.min_shape):
                break
            fitted[r] = _mean_alone(clusters.centroids[r])
        return fitted

    def check_sites(self, sites: Sequence[str]) -> None:
        """Warn where settings name a site that is not there."""
        check_sites(self.params, sites)

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row's local cluster, or the nearest final centroid.

        The result has the final cluster of each local one, `group` (c,), and the `site_number` of its site, `group_site`
        (c,). The local clustering is repeated with the generator of the first round.
        """
        labels, groups = super().labels(task, rows), own_numbers(task, "group")
        if not len(groups):  # a late site
            return labels
        clusters = local_clusters(self.params, task.site, rows.of(rows.seen))
        if len(groups) != len(clusters.counts):
            numbers = len(groups), len(clusters.counts)
            _log.warning("%d clusters were merged where %d were sent; rows go by the nearest centroid", *numbers)
            return labels
        if rows.context.grouped:
            local = distances.nearest(rows.X, clusters.centroids, self.params.phi)
        else:  # rows with missing cells, of missing=drop-rows, were in no local cluster
            local = np.full(len(rows.X), -1, dtype=np.int64)
            local[~np.isnan(rows.X).any(axis=1)] = clusters.labels
        return np.where(local >= 0, groups[local], labels)


def _fit_pdf(
    rows: FloatArray,
    mean: FloatArray,
    distribution: str,
    covariance: str,
    *,
    boxes: bool = False,
    minimum: int = LEAST_ROWS,
) -> _PDF:
    """Fit a distribution to the rows (n, d) of one cluster with this mean (d,): line 3 of Algorithm 2.

    A column in which fewer than `minimum` rows differ from all others counts as constant in a covariance.
    """
    if not _several(rows, LEAST_ROWS):
        return _mean_alone(mean)
    if distribution == "dirichlet":
        alpha = proxy_pdfs.dirichlet_fit(rows)
        total = float(alpha.sum())
        return _mean_alone(alpha / total)._replace(concentration=total)
    factor = proxy_pdfs.gaussian_factor(rows, covariance, minimum)
    if not len(factor):
        return _mean_alone(mean)
    low, high = proxy_pdfs.box(rows) if boxes else (mean, mean)
    return _PDF(mean, factor, 0.0, low, high)


def _mean_alone(mean: FloatArray) -> _PDF:
    """Return the description of a cluster by its mean (d,) alone."""
    return _PDF(mean, np.empty((0, len(mean))), 0.0, mean, mean)


def _several(rows: FloatArray, minimum: int) -> bool:
    """Return whether at least `minimum` of the rows (n, d) are different."""
    for _ in range(minimum - 1):
        if not len(rows):
            return False
        rows = rows[(rows != rows[0]).any(axis=1)]
    return len(rows) > 0


def _holds_a_row(pdf: _PDF, data: FloatArray) -> bool:
    """Return whether a vector of the description is one of the site's rows (n, d), but for rounding."""
    vectors = np.concatenate([pdf.mean[None], pdf.factor, pdf.low[None], pdf.high[None]])
    rounding = 1e-12 * np.abs(data).max()
    sums, vector_sums = np.sort(data.sum(axis=1)), vectors.sum(axis=1)
    near = rounding * data.shape[1]
    # Few vectors have the sum of a row; only those are compared with all rows.
    suspects = vectors[
        np.searchsorted(sums, vector_sums - near) < np.searchsorted(sums, vector_sums + near, side="right")
    ]
    return any(bool((np.abs(data - vector) <= rounding).all(axis=1).any()) for vector in suspects)


def _check_shares(data: FloatArray) -> None:
    if (data < 0).any() or (np.abs(data.sum(axis=1) - 1.0) > _ROUNDING).any():
        raise Refusal(
            'has rows that are not shares of a whole: with distribution="dirichlet" the values of each row must be at '
            "least 0 and add up to 1 over the site's own columns"
        )
