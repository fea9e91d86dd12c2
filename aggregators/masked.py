"""Clustering of tables with different columns in rounds, the server's side: local clusters into global ones.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": Algorithm 1, lines 4-12 and
21.

Readings where the paper is open, and deviations from it:
1. Equation 4 as corrected in core/missing/grouping.py: an entry of a merged centroid is the mean over the members that observe
   it, weighted by their rows. There are also methods A and B, and what was corrected in them.
2. Lines 5 and 7: which assumption holds depends on who has which cluster, which nobody knows, and on distributions,
   which nobody sees. What the columns say about it is reported (core/overlap.py); a column in which no two of the received
   centroids differ counts as shared by nobody. `method="auto"` runs both methods and takes the grouping with the smaller
   objective, equation 5 (core/missing/selection.py); of equal ones that of the method which the columns suit: B where any two
   sites share one, else A.
3. Line 21: an entry that no site reports in a round keeps its value; by the letter it would shrink by 1 - alpha. An
   entry that was unknown takes the value reported as it is, whatever alpha.
4. Line 12: `rounds` rounds of the federated phase, three as in section 6.2, or fewer where a round moves the centroids
   by less than `tol`: the largest distance on known entries, in units of the centroids' spread.
5. A local cluster that can join no group stays unassigned. It is counted, and its site is named in the log.
6. A round in which no site has anything it may send leaves the centroids as they are, and is the last.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core import overlap as overlaps
from flareclust.core.missing import distances, grouping, selection
from flareclust.core.rounds import remember
from flareclust.executors import masked
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.preparation.alone import better_off_alone
from flareclust.protocol.columns import Columns
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ReceivedState(State):
    """What a server knows of the clusters (c) that sites with different columns have sent."""

    received_centroids: FloatArray | None = None  # of the clusters (c, D)
    received_counts: IntArray | None = None  # their rows (c,)
    received_site: IntArray | None = None  # whose they are, as in `Columns.sites` (c,)
    received_group: IntArray | None = None  # the cluster of the result that each belongs to (c,), -1: none
    counts: IntArray | None = None  # the rows behind each centroid of the result (k,)
    warnings: Array | None = None  # what a user should know, a sentence each


@dataclass(frozen=True, eq=False)
class MaskedState(ReceivedState):
    """What the server knows, beside what it has received at the start."""

    history: FloatArray | None = None  # the centroids of the start and after every round (rounds + 1, k, D)
    method: str | None = None  # by which local clusters were grouped
    verdict: str | None = None  # what the columns say of it, in words


class MaskedAggregator(ClusteringAggregator):
    """The server of Algorithm 1. `counts` are the rows behind each centroid when it was last reported."""

    params: masked.MaskedParams
    executor = masked.MaskedExecutor
    state = MaskedState

    def limits(self, round_: Round[MaskedState]) -> dict[str, int]:
        """Return the most entries that a reply can have: a site updates no more centroids than there are."""
        return {"c": self.params.k}

    def merge(
        self, round_: Round[MaskedState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[MaskedState]:
        """Group the local clusters (lines 4-11)."""
        columns = round_.columns
        centers, rows, site = together(columns, replies)
        verdict = overlap_of(columns, replies, centers)
        _log.log(logging.INFO if verdict.connected else logging.WARNING, "%s", verdict.text)
        methods = "AB" if self.params.method == "auto" else self.params.method
        chosen = selection.best_grouping(centers, rows, site, self.params.k, self.params.phi, methods, verdict.method)
        found = chosen.grouping
        _report_unassigned(found, [columns.sites[i] for i in site])

        diagnostics = {
            "received": float(len(centers)),
            "method_b": float(chosen.method == "B"),
            "assumption_1": float(verdict.assumption_1),
            "assumption_2": float(verdict.assumption_2),
            "unassigned": float((found.group < 0).sum()),
            "unknown": float(np.isnan(found.centroids).sum()),
            "objective": grouping.objective(centers, rows, found.group, self.params.k, self.params.phi),
        }
        state = MaskedState(
            centers,
            rows,
            site,
            found.group,
            _rows_by_cluster(found.group, rows, self.params.k),
            None if verdict.connected else np.array([verdict.text]),
            remember(None, found.centroids, self.params.k),
            chosen.method,
            f"{verdict.text}. {_verdict_text(chosen, columns, self.params.method)}",
        )
        return Round({"centroids": found.centroids}, self.params.rounds == 0, diagnostics, state, masked.UPDATE)

    def update(
        self, round_: Round[MaskedState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[MaskedState]:
        """Move the centroids towards those reported (line 21)."""
        centers, rows, _ = together(round_.columns, replies)
        cluster, old = np.concatenate([reply["cluster"] for reply in replies.values()]), round_.task["centroids"]
        reported = np.full(old.shape, np.nan)
        for r in np.unique(cluster):
            members = cluster == r
            reported[r] = grouping.merge(centers[members], rows[members])
        centroids = _step_towards(old, reported, self.params.alpha)

        shift = _movement_of_known(old, centroids)
        diagnostics = {"received": float(len(centers)), "unknown": float(np.isnan(centroids).sum())}
        if np.isfinite(shift):
            diagnostics["shift"] = shift
        behind = _rows_by_cluster(cluster, rows, self.params.k)
        assert round_.state.counts is not None
        counts = np.where(behind > 0, behind, round_.state.counts)
        state = replace(round_.state, history=remember(round_.state.history, centroids, self.params.k), counts=counts)
        done = round_.index >= self.params.rounds or shift < self.params.tol or not len(centers)
        return Round({"centroids": centroids}, done, diagnostics, state, masked.UPDATE)

    def warnings(self, round_: Round[ReceivedState], assessed: Mapping[str, Message]) -> list[str]:
        """Name the sites whose own clusters describe their rows better, where squared distances are made small."""
        state, facts = round_.state, round_.facts
        if self.params.distance != "euclidean" or facts.site_spread is None or state.received_centroids is None:
            return []
        assert state.received_counts is not None
        assert state.received_site is not None
        received = state.received_centroids, state.received_counts, state.received_site
        group = None if isinstance(state, MaskedState) else state.received_group
        return better_off_alone(round_.columns, facts.site_spread, received, assessed, group)


def together(columns: Columns, replies: Mapping[str, Message]) -> tuple[FloatArray, IntArray, IntArray]:
    """Return all centroids (c, D), NaN where their site lacks the column, rows (c,) and sites (c,), as in `columns.sites`."""
    centers = np.concatenate([columns.spread(site, reply["centroids"]) for site, reply in replies.items()])
    rows = np.concatenate([reply["counts"] for reply in replies.values()])
    numbers = [columns.sites.index(site) for site in replies]
    return centers, rows, np.repeat(numbers, [len(reply["counts"]) for reply in replies.values()]).astype(np.int64)


def _verdict_text(chosen: selection.Chosen, columns: Columns, asked: str) -> str:
    """Return in words which method was taken, and why."""
    if asked != "auto":
        return f"Method {asked} was asked for"
    other: selection.Method = "B" if chosen.method == "A" else "A"
    values = chosen.objectives
    text = f"Method {chosen.method} was taken: its objective is {values[chosen.method]:.3g}, that of {other} {values[other]:.3g}"
    if chosen.left_out.any():
        names = some([columns.names[j] for j in np.flatnonzero(chosen.left_out)], overlaps.NAMED)
        text += f". Centroids were compared without columns that hardly separate clusters: {names}"
    return text


def overlap_of(columns: Columns, replies: Mapping[str, Message], centers: FloatArray) -> overlaps.Verdict:
    """Return what the columns of the sites that replied say about the paper's assumptions.

    Columns in which the centroids received (c, D) do not vary are no links.
    """
    masks = columns.masks[[columns.sites.index(site) for site in replies]]
    varies = distances.varying(distances.extremes(centers))
    constant = [columns.names[j] for j in np.flatnonzero(~varies & (masks.sum(axis=0) > 1))]
    return overlaps.judge_overlap(masks & varies, list(replies), constant)


def _report_unassigned(found: grouping.Grouping, sites: list[str]) -> None:
    """Warn of local clusters that belong to no group, by the sites (c,) that sent them."""
    left_out = [site for site, group in zip(sites, found.group, strict=True) if group < 0]
    for site in sorted(set(left_out)):
        _log.warning(
            "%s: %d of its clusters joined no group and are left out of the start: each group that shares a known column "
            "with them has another cluster of the site",
            site,
            left_out.count(site),
        )


def _rows_by_cluster(cluster: IntArray, rows: IntArray, k: int) -> IntArray:
    """Return the sum of rows (c,) of each of the k clusters; those of cluster -1 count nowhere."""
    used = cluster >= 0
    return np.bincount(cluster[used], weights=rows[used], minlength=k).astype(np.int64)


def _step_towards(old: FloatArray, reported: FloatArray, alpha: float) -> FloatArray:
    """Return (1 - alpha) old + alpha reported, both (k, D), entry by entry; where one is unknown (NaN), the other."""
    between = (1 - alpha) * old + alpha * reported
    return np.where(np.isnan(reported), old, np.where(np.isnan(old), reported, between))


def _movement_of_known(old: FloatArray, new: FloatArray) -> float:
    """Return the largest distance between an old and a new centroid (k, D), in units of the new ones' spread.

    The spread is the root mean square distance of the centroids to their mean (1 where that is 0). Infinite where an
    entry became known.
    """
    known = ~np.isnan(new)
    if (known != ~np.isnan(old)).any():
        return float("inf")
    farthest = float(np.sqrt((np.where(known, new - old, 0.0) ** 2).sum(axis=1)).max())
    mean = np.where(known, new, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    spread = float(np.sqrt((np.where(known, new - mean, 0.0) ** 2).sum(axis=1).mean()))
    return farthest / spread if spread > 0 else farthest
