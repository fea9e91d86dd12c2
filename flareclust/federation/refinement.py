"""Refining solutions from totals: what sites report about them, Lloyd updates, then attempts to split one cluster and join two.

Sites report rows, means and squared deviations by cluster, of several solutions side by side. The server moves centroids to the
means, as Lloyd's algorithm does, and sees from the deviations which cluster to split and which to join.

Readings, at the sites:
1. A site's group of fewer than `min_count` rows, of one row repeated, or whose mean is a row, is not reported.
2. Mean and deviations of two rows are these rows: where a group has fewer than three rows its deviations are sent as 0,
   and it is left out of the inertia.
3. With secure sums a group counts that all sites together have: first the sites' numbers of rows are added up, and then
   they report the clusters that have `min_count` rows in all (three at least), however few of them are at one site. Rows
   of the other clusters go to the nearest of these, so that all rows are included and no difference is about the rest.
4. With `trim_rows` a site leaves out the rows that are farthest from all centroids of the task, so that solutions side by
   side are reported over the same rows. They get labels, and are assessed, as all others.

At the server:
5. The solution gets a number of Lloyd updates. Every solution is judged by the mean squared distance of the rows whose
   inertia the sites reported, and the best of all is kept, whatever came last.
6. An attempt: up to four proposals (`proposals`) are tried one after the other, until one lowers the mean squared distance by a
   ten-thousandth; none ends the refinement. Each gets up to four updates, and fewer where as many as are left, each worth
   as much as the last, would not be worth that. Starts anew for two clusters, small as they are, are updated side by side.
7. Updates need means and numbers of rows only. Squared deviations by column are asked for where proposals are made of them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import robust, split_merge
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.group_kernels import add_means
from flareclust.evaluation.scores import stack, unstack
from flareclust.protocol.replies import gathered, piecewise, stacked
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.state import State
from flareclust.protocol.steps import Step
from flareclust.protocol.task import GROUPS, Task, rounded_spread

#: The step of one update: which centroids (`cluster`) have rows here, with their means and numbers, and the inertia about the
#: centroids that were sent, of groups of `LEAST_ROWS` rows or more.
UPDATE = "update"

#: The step: for each centroid of `candidates` (t, d), as one of the solutions has it, the rows of its cluster here. All
#: rows are one cluster where no candidates are sent.
SPREAD = "spread"

#: Their lines in the table of an algorithm, whose methods of these names, at the sites, are the functions here.
STEPS = {
    UPDATE: Step(
        Schema(
            may_be_empty=True,
            centroids="k d",
            counts=counts("k", minimum=1),
            cluster=index("k", less_than="K"),
            inertia=real("", minimum=0),
        ),
        "update",
        summed=True,
        counted=True,
    ),
    SPREAD: Step(GROUPS, "spread", summed=True, counted=True),
}


def update(task: Task, rows: SiteRows) -> Message:
    """Compute the site's part of one update of the centroids: `centroids`, `counts`, `cluster`, `inertia`."""
    return rows.update(task.arrays["centroids"])._asdict()


def spread(task: Task, rows: SiteRows) -> Message:
    """Describe the groups of the rows (n, d) that are nearest to each of the centroids."""
    solutions = unstack(task.arrays) if "candidates" in task.arrays else None
    return rounded_spread(rows.spread(solutions), rows.context.round_counts, rows.context.min_count)


#: Updates of a proposal at most, and of starts for two clusters before the best goes on alone.
_OF_A_PROPOSAL, _SIDE_BY_SIDE = 4, 2

#: A proposal that lowers the mean squared distance by less has failed.
_WORTH = 1e-4


@dataclass(frozen=True, eq=False)
class Refinement(State):
    """Where a refinement stands.

    Attributes:
        centroids: the best solution so far (k, d).
        updates: left of the solution under way.
        attempts: left.
        best: mean squared distance of the best solution so far.
        counts: its rows by cluster (k,); None at the start.
        last: mean squared distance of the solution under way before its last update.
        before: that of the best solution when proposals were made last.
        totals: what they are made of; None before the first.
        tried: how many of them were tried.
    """

    centroids: FloatArray
    updates: int
    attempts: int
    best: float = np.inf
    counts: IntArray | None = None
    last: float = np.inf
    before: float = np.inf
    totals: split_merge.Totals | None = None
    tried: int = 0

    @property
    def diagnostics(self) -> dict[str, float]:
        """Return plain numbers about where it stands."""
        return {"mean_square": self.best, "attempts_left": float(self.attempts)} if self.best < np.inf else {}

    @property
    def succeeded(self) -> bool:
        """Return whether one of the last proposals was worth it."""
        return self.best < self.before * (1 - _WORTH)


def totals(solutions: Sequence[FloatArray], replies: Sequence[Message]) -> list[split_merge.Totals]:
    """Return for each solution (k, d) what the replies to `SPREAD` make together."""
    found, first, (sent, _) = [], 0, gathered(replies)
    for solution in solutions:
        its = (sent["cluster"] >= first) & (sent["cluster"] < first + len(solution))
        own = {name: value[its] for name, value in sent.items()} | {"cluster": sent["cluster"][its] - first}
        means, m2 = lloyd_merge(solution, [own]), np.zeros_like(solution)
        deviations = (own["centroids"] - means[own["cluster"]]) ** 2
        np.add.at(m2, own["cluster"], own["m2"] + own["counts"][:, None] * deviations)
        found.append(split_merge.Totals(rows_behind(len(solution), [own]), means, m2))
        first += len(solution)
    return found


def advanced(
    state: Refinement, step: str, task: Message, replies: Collection[Message]
) -> tuple[Refinement, str, Message]:
    """Return the state after the replies to a task, and the step and the task of what is asked next; an empty task at the end."""
    if step == SPREAD:
        solutions = unstack(task)
        own, *others = totals(solutions, list(replies))
        if others:
            return _best_of(state, solutions, [own, *others])
        return _next_proposal(replace(state, attempts=state.attempts - 1, before=state.best, totals=own, tried=0))
    solution = task["centroids"]
    means, (sent, _) = lloyd_merge(solution, replies), gathered(replies, ("counts",))
    # The inertia is of the groups of so many rows.
    rows = sent["counts"][sent["counts"] >= LEAST_ROWS].sum()
    value = float(np.sum(stacked(replies, "inertia")) / rows) if rows else np.inf
    # Infinite for the first value of a proposal, which has none before it.
    gain = state.last - value
    hopeless = state.updates > 0 and value - state.updates * gain > min(state.before * (1 - _WORTH), state.best)
    if value < state.best:
        state = replace(state, centroids=solution, best=value, counts=rows_behind(len(solution), replies))
    if state.updates and not hopeless and not np.array_equal(solution, means):
        return replace(state, updates=state.updates - 1, last=value), UPDATE, {"centroids": means}
    return _next_proposal(state) if state.totals is not None and not state.succeeded else _describes(state)


def _next_proposal(state: Refinement) -> tuple[Refinement, str, Message]:
    """Return what `advanced` does, with the next of the proposals."""
    assert state.totals is not None
    proposals = split_merge.proposals(state.totals)
    if state.tried == len(proposals):
        return _describes(state) if state.succeeded else (state, SPREAD, {})
    if len(state.centroids) == 2 and len(proposals) > 1:
        return replace(state, updates=_SIDE_BY_SIDE, tried=len(proposals)), SPREAD, stack(proposals)
    solution, state = proposals[state.tried], replace(state, tried=state.tried + 1)
    return replace(state, updates=_OF_A_PROPOSAL, last=np.inf), UPDATE, {"centroids": solution}


def _best_of(
    state: Refinement, solutions: Sequence[FloatArray], found: Sequence[split_merge.Totals]
) -> tuple[Refinement, str, Message]:
    """Return what `advanced` does, with starts for two clusters updated side by side, and in the end the best of them alone."""
    moved = [own.means for own in found]
    if state.updates:
        return replace(state, updates=state.updates - 1), SPREAD, stack(moved)
    best = int(np.argmin([split_merge.mean_square(*one) for one in zip(solutions, found, strict=True)]))
    return replace(state, updates=_OF_A_PROPOSAL, last=np.inf), UPDATE, {"centroids": moved[best]}


def _describes(state: Refinement) -> tuple[Refinement, str, Message]:
    """Return what `advanced` does, with the question that proposals follow from, or the end."""
    possible = state.attempts and len(state.centroids) > 1 and state.best < np.inf
    return state, SPREAD, stack([state.centroids]) if possible else {}


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
