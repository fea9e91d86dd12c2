"""Refining solutions from totals: what sites report about them, Lloyd updates, then attempts to split one cluster and join two.

Sites report rows, means and squared deviations by cluster, of several solutions side by side. The server moves centroids to the
means, as Lloyd's algorithm does, and sees from the deviations which cluster to split and which to join.

Readings, at the sites:
1. A site's group of fewer than `min_count` rows, of one row repeated, or whose mean is a row, is not reported.
2. Mean and deviations of two rows are these rows: where a group has fewer than three rows its deviations are sent as 0.
3. With secure sums a group counts that all sites together have: first the sites' numbers of rows are added up, and then
   they report the clusters that have `min_count` rows in all (three at least), however few of them are at one site. Rows
   of the other clusters go to the nearest of these, so that all rows are included and no difference is about the rest.
4. With `trim_rows` a site leaves out the rows that are farthest from all centroids of the task, so that solutions side by
   side are reported over the same rows. They get labels, and are assessed, as all others.

At the server:
5. The solution gets a number of Lloyd updates. Every solution that the sites were sent is judged by the mean squared
   distance of the rows that they reported, and the best of all is kept, whatever came last.
6. An attempt: up to four proposals (`proposals`) get three updates side by side; the best of them gets
   five more. While that lowers the mean squared distance by a ten-thousandth, and attempts are left, another one follows.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import robust, split_merge
from flareclust.core.group_kernels import add_means
from flareclust.evaluation.scores import unstack
from flareclust.protocol.replies import gathered, piecewise
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.state import State
from flareclust.protocol.steps import Step
from flareclust.protocol.task import GROUPS, Task, rounded_spread

#: The step: for each centroid of `candidates` (t, d), as one of the solutions has it, the rows of its cluster here. All
#: rows are one cluster where no candidates are sent.
SPREAD = "spread"

#: Its line in the table of an algorithm, whose methods of that name, at both sides, call the functions here.
SPREAD_STEP = Step(GROUPS, "spread", summed=True, counted=True)


def spread(task: Task, rows: SiteRows) -> Message:
    """Describe the groups of the rows (n, d) that are nearest to each of the centroids."""
    solutions = unstack(task.arrays) if "candidates" in task.arrays else None
    return rounded_spread(rows.spread(solutions), rows.context.round_counts, rows.context.min_count)


#: Updates of the proposals side by side, and of the best of them afterwards.
_SIDE_BY_SIDE, _AFTERWARDS = 3, 5

#: An attempt that lowers the mean squared distance by less is the last.
_WORTH = 1e-4


@dataclass(frozen=True, eq=False)
class Refinement(State):
    """Where a refinement stands.

    Attributes:
        centroids: the best solution so far (k, d).
        updates: left before the solutions are compared.
        attempts: left.
        compares: whether the solutions under way are the proposals of an attempt.
        before: mean squared distance at the start of the attempt.
        best: the same of the best solution so far.
        totals: its own; None at the start.
    """

    centroids: FloatArray
    updates: int
    attempts: int
    compares: bool = False
    before: float = np.inf
    best: float = np.inf
    totals: split_merge.Totals | None = None

    @property
    def diagnostics(self) -> dict[str, float]:
        """Return plain numbers about where it stands."""
        return {"mean_square": self.best, "attempts_left": float(self.attempts)} if self.best < np.inf else {}


def totals(solutions: Sequence[FloatArray], replies: Sequence[Message]) -> list[split_merge.Totals]:
    """Return for each solution (k, d) what the replies to `SPREAD` make together."""
    found, first, (sent, _) = [], 0, gathered(replies)
    for solution in solutions:
        its = (sent["cluster"] >= first) & (sent["cluster"] < first + len(solution))
        own = {name: value[its] for name, value in sent.items()} | {"cluster": sent["cluster"][its] - first}
        means = lloyd_merge(solution, [own])
        m2 = np.zeros_like(solution)
        deviations = (own["centroids"] - means[own["cluster"]]) ** 2
        np.add.at(m2, own["cluster"], own["m2"] + own["counts"][:, None] * deviations)
        found.append(split_merge.Totals(rows_behind(len(solution), [own]), means, m2))
        first += len(solution)
    return found


def advanced(state: Refinement, task: Message, replies: Sequence[Message]) -> tuple[Refinement, list[FloatArray]]:
    """Return the state after the replies to a task, and the solutions to ask about next; none at the end."""
    solutions = unstack(task)
    known = totals(solutions, replies)
    values = [split_merge.mean_square(solution, total) for solution, total in zip(solutions, known, strict=True)]
    at = int(np.argmin(values))
    if values[at] < state.best:
        state = replace(state, best=values[at], centroids=solutions[at], totals=known[at])
    if state.updates > 0 and any(not np.array_equal(t.means, s) for s, t in zip(solutions, known, strict=True)):
        return replace(state, updates=state.updates - 1), [total.means for total in known]
    if state.compares:
        state = replace(state, updates=_AFTERWARDS - 1, compares=False)
        return state, [known[at].means]
    worth = not state.before < np.inf or state.best < state.before * (1 - _WORTH)
    own = state.totals
    if own is None or not (state.attempts and worth):
        return state, []
    state = replace(state, updates=_SIDE_BY_SIDE, attempts=state.attempts - 1, compares=True, before=state.best)
    return state, split_merge.proposals(own)


def lloyd_merge(centroids: FloatArray, replies: Collection[Message], rule: robust.Rule = robust.PLAIN) -> FloatArray:
    """Return the centroids (k, d) after one update: the means of all rows that the replies describe.

    With a rule that judges sites, the center of what they say of each cluster instead.

    A cluster that no reply describes keeps its centroid. Pure, and the same bits for the same replies.

    Args:
        centroids: what the sites were sent (k, d).
        replies: of each site `centroids` (c, d), `counts` (c,) and `cluster` (c,), which centroid each belongs to.
        rule: how far sites are believed.
    """
    sent, site = gathered(replies, ("counts", "cluster"))
    counts, cluster = robust.capped(sent["counts"], site, rule.cap), sent["cluster"]
    if rule.active:
        return robust.site_centers(centroids, gathered(replies)[0]["centroids"], counts, site, cluster, rule)
    rows = counts.astype(np.float64)
    total = np.bincount(cluster, weights=rows, minlength=len(centroids))
    # Sums about a point of the cluster itself lose nothing where the data lie far from zero. It is one of the points
    # received, so that the same replies give the same centroids and nothing moves once no row changes its cluster.
    origin, sums, present = centroids.copy(), np.zeros_like(centroids), np.zeros(len(centroids), dtype=np.bool_)
    end = 0
    for points in piecewise(replies, "centroids"):
        start, end = end, end + len(points)
        add_means(points, rows[start:end], cluster[start:end], origin, present, sums)
    moved = centroids.copy()
    moved[present] = origin[present] + sums[present] / total[present, None]
    return moved


def rows_behind(k: int, replies: Collection[Message]) -> IntArray:
    """Return how many rows the replies describe for each of the k centroids (k,)."""
    behind = np.zeros(k, dtype=np.int64)
    sent, _ = gathered(replies, ("cluster", "counts"))
    np.add.at(behind, sent["cluster"], sent["counts"])
    return behind
