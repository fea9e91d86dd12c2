"""One-shot clustering of tables with different columns by proxy clusters, the server's side: sampling and agglomeration.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": Algorithm 2, lines 4-12
(`_generate_proxy_clusters`, `attract`, `merge`), with the number of proxy points of section 6.3.

Readings where the paper is open, and deviations from it:
1. Line 4: a proxy cluster has as many points as its cluster has rows, but at least 30 and at most 100. A Gaussian with
   a singular covariance is sampled through a factor of it. Without a covariance all points are the mean.
2. Equation 11 as corrected in core/agglomeration.py, and equation 10 as in core/forces.py: what counts are pairs of
   points whose sites share a column, in the sums and in what they are divided by.
3. Lines 6-10: the whole tree is kept, cut at k. Sets that can never be compared are joined last; where that happens
   above the cut, it is counted and named in the log.
4. Line 11: k is given, unless `choose_k`; then the number of clusters is that of 2 to k with the best silhouette of
   the proxy points (core/agglomeration.py).
5. w depends on how many columns sites share, unless it is set (core/exponent.py). Where they share too few for any w, the
   log and the result say so.
6. Line 12, and the centroids of the result: equation 4 as corrected in core/missing/grouping.py on the centroids of the merged
   clusters.
7. Clusters are compared a second time without the columns that separate them least, unless w is set
   (core/missing/selection.py, 3): two sites that share nothing but noise otherwise match their clusters by it. Of the two
   trees the one with fewer incomparable merges counts, then the one with the smaller objective, equation 5 over all
   columns, at k clusters.
8. Every site receives the assignments of all sites' clusters, as numbers without the clusters, and uses its own. One
   message fits all.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.aggregators.masked import MaskedAggregator, ReceivedState, overlap_of, together
from flareclust.core import agglomeration, exponent, forces
from flareclust.core import overlap as overlaps
from flareclust.core import proxies as proxy_pdfs
from flareclust.core.missing import grouping, selection
from flareclust.executors import kfed, proxy
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.columns import Columns
from flareclust.protocol.rounds import Round

_log = logging.getLogger(__name__)

#: Objectives that agree up to it are equal: the tree over all columns counts then.
_DIGITS = 9


@dataclass(frozen=True, eq=False)
class _ProxyState(ReceivedState):
    """What the server knows, beside what it has received."""

    tree_left: IntArray | None = None  # the clusters joined by each merge (c - 1,),
    tree_right: IntArray | None = None  # and those that they were joined with
    tree_force: FloatArray | None = None  # the force of each
    tree_size: IntArray | None = None  # and the size of what it made
    w: float | None = None  # the power of the distance


class ProxyAggregator(ClusteringAggregator):
    """The server of Algorithm 2.

    Sent with the result: `group` (c,), the cluster that each received one was merged into, and `group_site` (c,), whose
    it is.
    """

    params: proxy.ProxyParams
    executor = proxy.ProxyExecutor
    state = _ProxyState

    def limits(self, round_: Round[_ProxyState]) -> dict[str, int]:
        """Return the most entries that a reply can have."""
        numbers = self.params.k_local.values() if isinstance(self.params.k_local, dict) else [self.params.k_local]
        maximum = max([self.params.k, *(number for number in numbers if isinstance(number, int))])
        return {"k": maximum, "a": maximum, "b": maximum}

    def merge(
        self, round_: Round[_ProxyState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[_ProxyState]:
        """Run lines 4-12 on the distributions of all sites' clusters."""
        columns = round_.columns
        centers, rows, site = together(columns, replies)
        if len(rows) < self.params.k and not self.params.choose_k:
            raise JobFailed(
                f"all sites together sent {len(rows)} clusters where k={self.params.k} are wanted; set a smaller k, a larger "
                "k_local, a smaller min_count, or choose_k=true"
            )
        points, cluster = _generate_proxy_clusters(columns, replies, rng)
        most = min(self.params.k, len(centers))
        tree, w, overlap, left_out = _best_merges(points, cluster, (centers, rows, site), most, self.params)
        k_hat = self.params.k
        if self.params.choose_k:
            shown = np.where(left_out, np.nan, points)
            k_hat = agglomeration.choose_k(tree, shown, cluster, most, self.params.phi)
        group = agglomeration.cut(tree, k_hat)
        numbers = {**_forces_at(tree, k_hat), "w": w, "left_out": float(left_out.sum())}
        if left_out.any():
            names = some([columns.names[j] for j in np.flatnonzero(left_out)], overlaps.NAMED)
            _log.info("clusters were compared without columns that hardly separate them: %s", names)
        if numbers["incomparable"]:
            _log.warning(
                "%d merges joined clusters of sites without a column in common, since the sites between them sent nothing",
                numbers["incomparable"],
            )
        verdict = overlap_of(columns, replies, centers)
        warnings = [] if verdict.connected else [verdict.text]
        warnings += [_too_little(overlap, w)] if w >= overlap.bound else []
        for text in warnings:
            _log.warning("%s", text)
        counts = np.bincount(group, weights=rows, minlength=k_hat).astype(np.int64)
        reported = np.array(warnings) if warnings else None
        state = _ProxyState(centers, rows, site, group, counts, reported, *tree, w)
        owners = np.array([kfed.site_number(columns.sites[i]) for i in site], dtype=np.int64)
        task = {"centroids": merge(centers, rows, group), "group": group, "group_site": owners}
        return Round(task, done=True, diagnostics=numbers, state=state)

    warnings = MaskedAggregator.warnings


class _Merges(NamedTuple):
    """A tree of merges, and what the clusters were compared by."""

    tree: agglomeration.Tree  # of all c clusters
    w: float  # the power of the distance
    overlap: exponent.Overlap  # the least that sites whose clusters were compared have in common
    left_out: BoolArray  # columns by which they were not compared (D,)


def _best_merges(
    points: FloatArray,
    cluster: IntArray,
    received: tuple[FloatArray, IntArray, IntArray],
    k: int,
    params: proxy.ProxyParams,
) -> _Merges:
    """Run lines 5-10 with all columns and, unless w is set, without those that hardly separate clusters (reading 7).

    `received` are centroids (c, D), rows (c,) and sites (c,) of the clusters; the trees are compared at k of them.
    """
    centers, rows, _ = received
    found: list[tuple[int, float, _Merges]] = []
    for left_out in selection.left_out_on_trial(*received):
        shown = np.where(left_out, np.nan, points)
        overlap = exponent.least_overlap(shown, cluster, params.phi)
        w = exponent.automatic(overlap.bound) if params.w == "auto" else params.w
        tree = attract(shown, cluster, w, params.phi)
        value = selection.cost(centers, rows, agglomeration.cut(tree, k), k, params.phi)
        found.append((_incomparable(tree, k), round(value, _DIGITS), _Merges(tree, w, overlap, left_out)))
        if params.w != "auto":
            break
    return min(found, key=lambda one: one[:2])[2]


def _too_little(overlap: exponent.Overlap, w: float) -> str:
    """Return in words that clusters share too little for their attraction to be a finite mean."""
    advice = "or use masked, which compares means" if overlap.bound <= 1 else 'or set w="auto"'
    return (
        f"some sites have no more than {overlap.rank:.0f} common columns with spread, where the attraction with w={w:g} has no "
        f"finite mean: the nearest two proxy points decide which clusters are merged. Share more columns, {advice}"
    )


def _generate_proxy_clusters(
    columns: Columns, replies: Mapping[str, Message], rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Draw a proxy cluster from each distribution received: line 4 of Algorithm 2.

    Returns:
        The points of all clusters (N, D), NaN in columns that their site lacks, and the cluster of each (N,), numbered
        in the order in which they were received.
    """
    drawn = [(site, _proxies_of(reply, rng)) for site, reply in replies.items()]
    points = np.concatenate([columns.spread(site, np.concatenate(clusters)) for site, clusters in drawn])
    sizes = [len(proxies) for _, clusters in drawn for proxies in clusters]
    return points, np.repeat(np.arange(len(sizes)), sizes)


def _proxies_of(reply: Message, rng: np.random.Generator) -> list[FloatArray]:
    """Draw the proxy clusters (M, d) of one site, each of the size that its number of rows asks for."""
    factors = np.split(reply["factors"], np.cumsum(reply["ranks"])[:-1])
    shares, boxes = len(reply["concentration"]) > 0, len(reply["low"]) > 0
    clusters = []
    for r, (mean, count) in enumerate(zip(reply["centroids"], reply["counts"].tolist(), strict=True)):
        size = proxy_pdfs.proxy_size(count)
        if shares and reply["concentration"][r] > 0:
            clusters.append(proxy_pdfs.sample_dirichlet(reply["concentration"][r] * mean, size, rng))
        elif len(factors[r]):
            limits = (reply["low"][r], reply["high"][r]) if boxes else None
            clusters.append(proxy_pdfs.sample_gaussian(mean, factors[r], size, rng, limits))
        else:
            clusters.append(np.tile(mean, (size, 1)))
    return clusters


def attract(points: FloatArray, cluster: IntArray, w: float, phi: str) -> agglomeration.Tree:
    """Merge the sets of proxy clusters with the strongest force of attraction until one is left: lines 5-10.

    Args:
        points: proxy points (N, D), NaN where their site lacks the column.
        cluster: of each point (N,), in 0..c-1.
        w: power of the distance.
        phi: the distance.
    """
    return agglomeration.agglomerate(*forces.pair_forces(points, cluster, w, phi))


def merge(centroids: FloatArray, counts: IntArray, group: IntArray) -> FloatArray:
    """Return the centroids (k, D) of the sets that clusters (c,) went to: line 12.

    Args:
        centroids: of the clusters (c, D), NaN where their site lacks the column.
        counts: their rows (c,).
        group: the set of each (c,), in 0..k-1.
    """
    return np.stack([grouping.merge(centroids[group == r], counts[group == r]) for r in range(int(group.max()) + 1)])


def _incomparable(tree: agglomeration.Tree, k: int) -> int:
    """Return how many of the merges down to k clusters have no force, as their sets cannot be compared."""
    return int(np.isnan(tree.force[: len(tree.force) + 1 - k]).sum())


def _forces_at(tree: agglomeration.Tree, k: int) -> dict[str, float]:
    """Return what the tree says about k clusters: how weak the weakest merge was, and how strong the next would be.

    Merges of sets that cannot be compared have no force; they are counted.
    """
    received = len(tree.force) + 1
    made, left = np.split(tree.force, [received - k])
    numbers = {"received": float(received), "clusters": float(k), "incomparable": float(_incomparable(tree, k))}
    if not np.isnan(made).all():
        numbers["force_merged"] = float(np.nanmin(made))
    if not np.isnan(left).all():
        numbers["force_left"] = float(np.nanmax(left))
    return numbers
