"""Match averaging, the server's side: every site's centroids matched to the first site's, and averaged.

Source: the baseline M-Avg of Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (TMLR 2024), section 6, which
describes it in a sentence.

Readings and deviations:
1. The matching is one to one, with the smallest sum of Euclidean distances, not squared (Hungarian method). Of equal sums that with
   the smallest squares: in one column crossed pairs would have the same sum, and a mean in the middle.
2. All sites are matched to one, not to the means so far: the first by name, among those that sent most centroids.
3. The mean is plain: sites count equally, whatever the number of their rows.
4. A site with fewer centroids than the first is matched with those that it has. With fewer than k centroids at the
   first site, fewer than k are returned.
5. Not in the paper: with `robust`, sites that send something else than the others are left out, the site to match with is
   the one that lies in the middle of the others, and the mean is a trimmed one or a geometric median
   (`flareclust.core.robust`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.core import robust
from flareclust.core.rounds import match
from flareclust.evaluation.received import pooling_helps
from flareclust.executors import mavg
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State


@dataclass(frozen=True, eq=False)
class MAvgState(State):
    """What the server knows."""

    received_centroids: FloatArray | None = None  # the centroids (c, d)
    received_site: IntArray | None = None  # the number of the site of each (c,), in the order of names
    matched: IntArray | None = None  # the centroid of the result that each went into (c,), -1 for none
    left_out: Array | None = None  # with `robust`, the names of the sites that were


class MAvgAggregator(ClusteringAggregator):
    """The server of match averaging; nothing is drawn."""

    params: mavg.MAvgParams
    executor = mavg.MAvgExecutor
    state = MAvgState

    def merge(
        self, round_: Round[MAvgState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[MAvgState]:
        """Match and average."""
        sent, site = gathered(replies.values())
        diagnostics, left_out = {"received": float(len(site))}, None
        sets = [reply["centroids"] for reply in replies.values()]
        if self.params.rule.active:
            filtered = robust.filter_outliers(
                sent["centroids"], np.ones(len(site)), site, self.params.k, self.params.rule
            )
            centroids, matched = _match_robustly(sets, filtered.left_out, self.params.rule)
            numbers, believed = filtered.summary(replies)
            diagnostics |= numbers
            left_out = believed.left_out
        else:
            centroids, matched = _match_average(sets)
        return Round({"centroids": centroids}, True, diagnostics, MAvgState(sent["centroids"], site, matched, left_out))

    def warnings(self, round_: Round[MAvgState], assessed: Mapping[str, Message]) -> list[str]:
        """Say where plain k-means of what was received would be clearly better; k-means of what bad sites send is not."""
        sent, p = round_.state.received_centroids, self.params
        if sent is None or p.rule.active:
            return []
        return pooling_helps(sent, np.ones(len(sent)), round_.task["centroids"], assessed, p.seed)


def _match_average(sent: Sequence[FloatArray]) -> tuple[FloatArray, IntArray]:
    """Return the means of the sites' centroids (k_i, d) after matching them to the first of those with most centroids.

    The means are (k, d), where k is the largest k_i. For all c centroids together: the mean that they went into (c,).
    """
    reference = max(sent, key=len)  # the first of equals
    of, centers = np.concatenate([_matched(reference, centroids) for centroids in sent]), np.concatenate(sent)
    # About the reference, so that nothing is lost where the data lie far from zero.
    sums = np.zeros_like(reference)
    np.add.at(sums, of, centers - reference[of])
    return reference + sums / np.bincount(of)[:, None], of


def _match_robustly(sent: Sequence[FloatArray], untrusted: BoolArray, rule: robust.Rule) -> tuple[FloatArray, IntArray]:
    """Return what `_match_average` does where `untrusted` sites (m,) are left out, and -1 for their centroids."""
    trusted = [centroids for centroids, out in zip(sent, untrusted, strict=True) if not out]
    apart = np.array([[_distance(one, other) for other in trusted] for one in trusted])
    reference, parts = trusted[robust.medoid(trusted, apart)], zip(sent, untrusted, strict=True)
    of = np.concatenate([np.full(len(own), -1) if out else _matched(reference, own) for own, out in parts])
    site = np.repeat(np.arange(len(sent)), list(map(len, sent)))
    return robust.site_centers(reference, np.concatenate(sent), np.ones(len(of)), site, of, rule), of


def _matched(reference: FloatArray, centroids: FloatArray) -> IntArray:
    """Return for each centroid (k_i, d) the one of the reference that it is matched with (k_i,)."""
    there, here = match(reference, centroids)
    return there[np.argsort(here)]


def _distance(one: FloatArray, other: FloatArray) -> float:
    """Return the mean distance of matched centroids."""
    rows, columns = match(one, other)
    return float(np.sqrt(((one[rows] - other[columns]) ** 2).sum(axis=1)).mean())
