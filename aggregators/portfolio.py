"""Portfolio, the server's side: several merges of one upload; the sites say which of them fits best.

1. Members: `feca` (Xu et al. 2024, Algorithms 2 to 5 after the local k-means, on the clusters that were sent), `kfed`
   (Dennis et al. 2021, Algorithm 2), `pooled` (k-means on all centroids weighted by their rows), `unweighted` (the same
   without weights), `sampled` (k-means from the outcome of `pooled`, with moves out of local optima, on rows made up from
   the descriptions).
2. The sites return the inertia of every member's solution on their rows; the smallest total wins, the first of equals.
   Sites with very few rows sit this out (`evaluation.scores.values_needed`). Where all do, the solutions are compared by
   what the sites may report about their clusters, as in 3; where that is nothing, either, `pooled` is taken with a warning.
3. With `polish=n`, n updates of Lloyd's algorithm on all sites' rows follow, and up to `split_merge` attempts to leave a
   local optimum (`aggregators.refinement`). The sites compare the outcome with where it started, since rows in clusters
   below `min_count` take no part in updates and may lose by them. Where no site can, the outcome is taken with a warning.
4. With `robust`, the members get what is left of the uploads when descriptions that are unlike those of the other sites
   are gone; their centroids, but for those of `sampled`, become trimmed means or geometric medians over the sites, and
   so do the updates, after which nothing is split; the scores become trimmed means. `cap` limits what a site's rows count (`flareclust.core.robust`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.aggregators.feca import group_by_radius
from flareclust.aggregators.kfed import lloyd_on_centers
from flareclust.aggregators.lloyd import check_judges_nobody
from flareclust.core import clusterers, robust, split_merge
from flareclust.core.lloyd import labels_of
from flareclust.core.seeds import farthest_first
from flareclust.evaluation.scores import stack, unstack
from flareclust.executors import feca, portfolio
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.refinement import SPREAD, UPDATE, Refinement, advanced, lloyd_merge, totals
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State
from flareclust.protocol.task import StepName

#: (uploads by site, k, restarts, rng) -> centroids (at most k, d).
_Member = Callable[[Sequence[Message], int, int, np.random.Generator], FloatArray]

#: Most rows that `_by_sampled` makes up for one local cluster.
_MADE_UP = 40

#: With `robust`, how many times as wide as the median cluster a site may say that one is.
_WIDE = 4.0


@dataclass(frozen=True, eq=False)
class _PortfolioState(State):
    """What the server knows."""

    received_centroids: FloatArray | None = None  # the uploads end to end (c, d)
    received_counts: IntArray | None = None
    received_radii: FloatArray | None = None
    received_sse: FloatArray | None = None
    received_site: IntArray | None = None  # the number of the site of each (c,)
    kept: BoolArray | None = None  # with `robust`, which of the descriptions received were believed (c,)
    left_out: Array | None = None  # the names of the sites that were not, which have no say in the choice
    candidates: FloatArray | None = None  # the members' solutions (t, d), in the order of `members`
    candidate: IntArray | None = None  # the member that each belongs to (t,)
    candidate_inertia: FloatArray | None = None  # of each solution (c,)
    polish_start: FloatArray | None = None  # where refining started (k, d)
    refinement: Refinement | None = None  # where it stands


_Round = Round[_PortfolioState]


class PortfolioAggregator(ClusteringAggregator):
    """The server of the portfolio."""

    params: portfolio.PortfolioParams
    executor = portfolio.PortfolioExecutor
    state = _PortfolioState

    def check_secure(self) -> None:
        """Raise UserError with robust settings, which compare sites."""
        check_judges_nobody(self.params.rule)

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Propose solutions."""
        sent, site = gathered(replies.values())
        filtered = robust.filter_outliers(sent["centroids"], sent["counts"], site, self.params.k, self.params.rule)
        uploads, restarts = _trusted(list(replies.values()), sent, filtered), self.params.restarts
        solutions = [_MEMBERS[member](uploads, self.params.k, restarts, rng) for member in self.params.competing]
        for i, (member, solution) in enumerate(zip(self.params.competing, solutions, strict=True)):
            if member != "sampled":  # its centroids are those of rows that were made up
                solutions[i] = filtered.centers(solution, labels_of(filtered.points, solution))
        numbers, believed = filtered.summary(replies)
        received = sent["centroids"], sent["counts"], sent["radii"], sent["sse"]
        state = _PortfolioState(*received, site, believed.kept, believed.left_out)
        return Round(stack(solutions), False, {"received": float(len(site)), **numbers}, state, StepName.SCORE)

    def score(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Choose the best solution, or keep the refined one if its inertia is smaller."""
        believed = _believed(round_, replies)
        return self._scored(round_, believed) if round_.state.polish_start is None else self._compared(round_, believed)

    def update(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Refine the solution chosen."""
        believed = _believed(round_, replies)
        return self._updated(round_, believed) if self.params.rule.judges else self._refined(round_, believed)

    def spread(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Refine the solution chosen; choose it by these reports where sites could not score."""
        believed, refines = _believed(round_, replies), round_.state.polish_start is not None
        return self._refined(round_, believed) if refines else self._judged(round_, believed)

    def so_far(self, round_: _Round) -> _Round | None:
        """Return the best solution so far, once the choice is made."""
        state = round_.state
        if state.polish_start is None:
            return None
        refining = state.refinement is not None and not self.params.rule.judges
        sent = round_.task["centroids"] if round_.step == UPDATE else unstack(round_.task)[-1]
        centroids = state.refinement.centroids if refining and state.refinement else sent
        return replace(round_, task={"centroids": centroids}, done=True, state=replace(state, refinement=None))

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say where no site could compare the members' solutions, or where refining ended with where it started."""
        enough = "fewer and larger sites" if self.params.rule.judges else "secure_sums, or fewer and larger sites"
        found, inertia = [], round_.state.candidate_inertia
        if inertia is not None and not np.isfinite(inertia).any():
            member = self.params.competing[self._unseen()]
            reason = "no site has enough rows to compare the members' solutions"
            found.append(f"{reason}, so that of {member} was taken unseen; use {enough}")
        numbers = round_.diagnostics
        if round_.state.polish_start is not None and "chosen" not in numbers and numbers.get("scored_rows") == 0:
            reason = "no site has enough rows to compare the refined solution with the one before"
            found.append(
                f"{reason}, so the refined one was taken, which may be worse for rows in small clusters; use {enough}"
            )
        return found

    def _scored(self, round_: _Round, replies: Sequence[Message]) -> _Round:
        """Choose by the inertia at the sites; where no site could send it, ask for reports on the clusters."""
        rows = int(np.sum([reply["rows"] for reply in replies]))
        if not rows and self.params.rule.judges:  # reports on clusters are not judged
            return self._chosen(round_, np.full(len(unstack(round_.task)), np.inf), 0)
        if not rows:
            return Round(round_.task, False, {"scored_rows": 0.0}, round_.state, SPREAD)
        return self._chosen(round_, robust.typical_totals(replies, ["sse"], self.params.rule)["sse"], rows)

    def _judged(self, round_: _Round, replies: Sequence[Message]) -> _Round:
        """Choose by the mean square over the rows of the clusters that the sites report for each solution."""
        solutions = unstack(round_.task)
        known = totals(solutions, replies)
        mean = np.array([split_merge.mean_square(*one) for one in zip(solutions, known, strict=True)])
        assert round_.state.received_counts is not None
        rows = np.sum(round_.state.received_counts)
        return self._chosen(round_, mean * rows, max(int(one.counts.sum()) for one in known))

    def _chosen(self, round_: _Round, inertia: FloatArray, rows: int) -> _Round:
        best = _first_least(inertia) if np.isfinite(inertia).any() else self._unseen()
        centroids = unstack(round_.task)[best]
        candidates, candidate = round_.task["candidates"], round_.task["candidate"]
        state = replace(round_.state, candidates=candidates, candidate=candidate, candidate_inertia=inertia)
        values = zip(self.params.competing, inertia, strict=True)
        names = {f"inertia_{name}": float(value) for name, value in values if np.isfinite(value)}
        diagnostics = {**names, "chosen": float(best), "scored_rows": float(rows)}
        if not self.params.polish:
            return Round({"centroids": centroids}, True, diagnostics, state)
        refinement = Refinement(centroids, self.params.polish, self.params.split_merge)
        state = replace(state, polish_start=centroids, refinement=refinement)
        return Round({"centroids": centroids}, False, diagnostics, state, UPDATE)

    def _unseen(self) -> int:
        """Return the member used where no site can compare the solutions: `pooled`, or else the first."""
        members = self.params.competing
        return members.index("pooled") if "pooled" in members else 0

    def _refined(self, round_: _Round, replies: Sequence[Message]) -> _Round:
        assert round_.state.refinement is not None
        refinement, step, task = advanced(round_.state.refinement, round_.step, round_.task, replies)
        if task:
            return Round(task, False, refinement.diagnostics, replace(round_.state, refinement=refinement), step)
        return self._asks_whether_better(round_, refinement.centroids, refinement.diagnostics)

    def _updated(self, round_: _Round, replies: Sequence[Message]) -> _Round:
        """Update the centroids; robust settings limit the influence of a single site."""
        assert round_.state.refinement is not None
        moved = lloyd_merge(round_.task["centroids"], replies, self.params.rule)
        left = round_.state.refinement.updates - 1
        if left:
            state = replace(round_.state, refinement=replace(round_.state.refinement, updates=left))
            return Round({"centroids": moved}, False, {}, state, UPDATE)
        return self._asks_whether_better(round_, moved, {})

    def _asks_whether_better(self, round_: _Round, refined: FloatArray, numbers: Mapping[str, float]) -> _Round:
        """Return the comparison of where refining started with where it ended."""
        assert round_.state.polish_start is not None
        state = replace(round_.state, refinement=None)
        return Round(stack([round_.state.polish_start, refined]), False, numbers, state, StepName.SCORE)

    def _compared(self, round_: _Round, replies: Sequence[Message]) -> _Round:
        """Return the better of where refining started and where it ended, or the end where no site compares them."""
        start, end = unstack(round_.task)
        inertia = robust.typical_totals(replies, ["sse"], self.params.rule)["sse"]
        rows = int(np.sum([reply["rows"] for reply in replies]))
        best = _first_least(inertia) if rows else 1
        numbers = {"inertia": float(inertia[best])} if rows else {}
        task = {"centroids": (start, end)[best]}
        return Round(task, True, {**numbers, "scored_rows": float(rows)}, round_.state)


def _believed(round_: _Round, replies: Mapping[str, Message]) -> list[Message]:
    """Return the replies of the sites that are believed; all of them where none is."""
    out = () if round_.state.left_out is None else round_.state.left_out
    return [reply for site, reply in replies.items() if site not in out] or list(replies.values())


def _first_least(values: FloatArray) -> int:
    """Return the index of the least value, the first of those equal to rounding."""
    return int(np.argmax(values <= values.min() * (1 + 1e-12)))


def _trusted(uploads: Sequence[Message], sent: Message, filtered: robust.FilteredCentroids) -> Sequence[Message]:
    """Return what the members get of the uploads: the descriptions that are believed, by site, with capped counts.

    Sums of squares per row and radii above `_WIDE` times the median of all are brought down to that.
    """
    if filtered.weights is sent["counts"] and filtered.kept.all() and not filtered.rule.active:
        return uploads
    kept = {name: value[filtered.kept] for name, value in sent.items()}
    if filtered.rule.active:
        variance = kept["sse"] / np.maximum(kept["counts"], 1)
        kept["sse"] = np.minimum(variance, _WIDE**2 * np.median(variance)) * filtered.weights
        kept["radii"] = np.minimum(kept["radii"], _WIDE * np.median(kept["radii"]))
    else:
        kept["sse"] = kept["sse"] / np.maximum(kept["counts"], 1) * filtered.weights
    kept["counts"] = filtered.weights
    return [{name: value[filtered.site == i] for name, value in kept.items()} for i in np.unique(filtered.site)]


def _by_feca(uploads: Sequence[Message], k: int, restarts: int, rng: np.random.Generator) -> FloatArray:
    """Merge as FeCA does: removal of one-fit-many centroids at each site, radii, grouping, means of the largest groups."""
    kept, radii = [], []
    for upload in uploads:
        clusters = feca.LocalClusters(upload["centroids"], upload["counts"], upload["sse"])
        good, origin = feca.remove_one_fit_many(clusters)
        kept.append(good.centroids)
        reach = upload["radii"][[sources[0] for sources in origin]]
        radii.append(feca.empirical_radii(good.centroids, reach) if len(good.centroids) > 1 else reach)
    centroids = np.concatenate(kept)
    groups, _ = group_by_radius(centroids, np.concatenate(radii))
    top = np.argsort(-np.bincount(groups), kind="stable")[:k]
    return np.stack([centroids[groups == g].mean(axis=0) for g in top])


def _by_kfed(uploads: Sequence[Message], k: int, restarts: int, rng: np.random.Generator) -> FloatArray:
    """Merge as k-FED does: from the first site's centroids, farthest-first to k, one Lloyd round on the centroids."""
    centers, first = gathered(uploads)[0]["centroids"], np.arange(min(k, len(uploads[0]["counts"])))
    chosen = farthest_first(centers, min(k, len(centers)), first)
    return lloyd_on_centers(centers, centers[chosen], np.ones(len(centers)), 1)[1]


def _by_pooled(
    uploads: Sequence[Message], k: int, restarts: int, rng: np.random.Generator, *, weighted: bool = True
) -> FloatArray:
    """Merge by k-means on all centroids, each weighted by its rows; else they count equally."""
    sent, _ = gathered(uploads)
    weights = sent["counts"].astype(np.float64) if weighted else np.ones(len(sent["counts"]))
    return clusterers.weighted_kmeans(sent["centroids"], weights, k, restarts, rng)[0]


def _by_sampled(uploads: Sequence[Message], k: int, restarts: int, rng: np.random.Generator) -> FloatArray:
    """Merge by k-means from `_by_pooled`, with moves out of local optima, on rows that the server makes up from the descriptions.

    Up to `_MADE_UP` rows per local cluster, normal around its centroid with its sum of squares, weighted to its number of
    rows: so a local cluster that lies between two clusters can be cut, which k-means on centroids cannot do.
    """
    start = _by_pooled(uploads, k, restarts, rng)
    sent, _ = gathered(uploads)
    centers, rows = sent["centroids"], sent["counts"]
    variance, draws = sent["sse"] / rows / centers.shape[1], np.minimum(rows, _MADE_UP)
    noise = rng.normal(size=(int(draws.sum()), centers.shape[1]))
    means = np.add.reduceat(noise, np.cumsum(draws) - draws) / draws[:, None]
    noise -= np.repeat(means, draws, axis=0)  # so that the local centroids stay where they are
    made_up = np.repeat(centers, draws, axis=0) + np.repeat(np.sqrt(variance), draws)[:, None] * noise
    return split_merge.search(made_up, np.repeat(rows / draws, draws), start).centroids


_MEMBERS: Mapping[str, _Member] = MappingProxyType(
    {
        "feca": _by_feca,
        "kfed": _by_kfed,
        "pooled": _by_pooled,
        "unweighted": partial(_by_pooled, weighted=False),
        "sampled": _by_sampled,
    }
)
