"""Refining a solution from totals, the server's side: Lloyd updates, then attempts to split one cluster and join two.

1. The solution gets a number of Lloyd updates. Every solution that the sites were sent is judged by the mean squared
   distance of the rows that they reported, and the best of all is kept, whatever came last.
2. An attempt: up to four proposals (`_proposals`) get three updates side by side; the best of them gets
   five more. While that lowers the mean squared distance by a ten-thousandth, and attempts are left, another one follows.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.base import entries, state_in
from flareclust.core import robust
from flareclust.core.group_kernels import add_means
from flareclust.evaluation.scores import unstack
from flareclust.protocol.replies import gathered, piecewise
from flareclust.protocol.rounds import Round

# Leaving a local optimum of k-means: one cluster is split, two others are joined, and the outcome is compared.
#
# Source: split and merge moves as in Ball and Hall (1965), ISODATA, and Ueda, Nakano, Ghahramani, Hinton (2000), SMEM
# algorithm for mixture models. Everything follows from totals over rows: number, mean and squared deviations by cluster.
#
# Readings:
# 1. The cluster with the largest sum of squares is split along its column of largest variance, one standard deviation to
#    either side of its mean.
# 2. The pair is joined that adds least to the sum of squares, n_a n_b / (n_a + n_b) |mean_a - mean_b|^2 (Ward 1963), and
#    that the split cluster is not one of. A cluster without rows costs nothing.
# 3. Four proposals: the best move; the best two; the second best cluster split; the second best pair joined.

#: Moves, rank of the first cluster that is split, and rank of the first pair that is joined, of each proposal.
_PROPOSALS = ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1))

#: The most solutions that `_proposals` returns.
_MOST_PROPOSALS = len(_PROPOSALS)


class _Totals(NamedTuple):
    """What is known of all rows by cluster, for one solution.

    Attributes:
        counts: rows (k,).
        means: (k, d), the centroid itself where a cluster has no rows.
        m2: squared deviations from the mean by column (k, d).
    """

    counts: IntArray
    means: FloatArray
    m2: FloatArray


def mean_square(centroids: FloatArray, totals: _Totals) -> float:
    """Return the mean squared distance of the rows to their centroids (k, d); infinite without rows."""
    rows = totals.counts.sum()
    if not rows:
        return float("inf")
    within = totals.m2.sum() + totals.counts @ ((totals.means - centroids) ** 2).sum(axis=1)
    return float(within / rows)


def _proposals(totals: _Totals) -> list[FloatArray]:
    """Return different solutions (k, d) one or two moves away, at most `_MOST_PROPOSALS`; none where no move is possible."""
    found: list[FloatArray] = []
    for moves, cluster, pair in _PROPOSALS:
        proposed = _moved(totals, moves, cluster, pair)
        if proposed is not None and not any(np.array_equal(proposed, other) for other in found):
            found.append(proposed)
    return found


def _moved(totals: _Totals, moves: int, cluster: int, pair: int) -> FloatArray | None:
    """Return the centroids after so many moves, each about clusters of its own; None where the first is not possible."""
    counts, centroids, squares = totals.counts.astype(np.float64), totals.means.copy(), totals.m2.sum(axis=1)
    free = np.ones(len(counts), dtype=bool)
    for move in range(moves):
        splittable = np.argsort(np.where(free & (squares > 0), -squares, np.inf), kind="stable")
        splittable = splittable[: np.count_nonzero(free & (squares > 0))]
        rank = cluster if move == 0 else 0
        if rank >= len(splittable):
            return centroids if move else None
        r = int(splittable[rank])
        free[r] = False
        joined = _cheapest(counts, centroids, np.flatnonzero(free), pair if move == 0 else 0)
        if joined is None:
            return centroids if move else None
        a, b = joined
        free[[a, b]] = False
        if counts[a] + counts[b]:
            centroids[a] += counts[b] / (counts[a] + counts[b]) * (centroids[b] - centroids[a])
        step = np.zeros(centroids.shape[1])
        j = int(totals.m2[r].argmax())
        step[j] = np.sqrt(totals.m2[r, j] / counts[r])
        centroids[b] = centroids[r] + step
        centroids[r] = centroids[r] - step
    return centroids


def _cheapest(
    counts: FloatArray, centroids: FloatArray, among: Sequence[int] | IntArray, rank: int
) -> tuple[int, int] | None:
    """Return the pair of clusters that costs least to join, or next to least for `rank` 1; None without such a pair."""
    points, rows = centroids[among], counts[among]
    a, b = np.triu_indices(len(points), 1)
    if rank >= len(a):
        return None
    weight = rows[a] * rows[b] / np.maximum(rows[a] + rows[b], 1)
    cost = weight * ((points[a] - points[b]) ** 2).sum(axis=1)
    at = int(np.argsort(cost, kind="stable")[rank])
    return int(among[a[at]]), int(among[b[at]])


#: Updates of the proposals side by side, and of the best of them afterwards.
SIDE_BY_SIDE, AFTERWARDS = 3, 5

#: An attempt that lowers the mean squared distance by less is the last.
_WORTH = 1e-4

_PREFIX = "refined_"


class State(NamedTuple):
    """Where a refinement stands; its arrays are part of the server's record while it lasts.

    Attributes:
        updates: left before the solutions are compared.
        attempts: left.
        compares: whether the solutions under way are the proposals of an attempt.
        before: mean squared distance at the start of the attempt.
        best: the same of the best solution so far.
        centroids: that solution (k, d).
        counts, means, m2: its reported totals, as in `_Totals`.
    """

    updates: int
    attempts: int
    compares: bool
    before: float
    best: float
    centroids: FloatArray
    counts: FloatArray
    means: FloatArray
    m2: FloatArray

    @property
    def arrays(self) -> Message:
        """Return the state as entries of a record."""
        return entries(_PREFIX, self)

    @property
    def diagnostics(self) -> dict[str, float]:
        """Return plain numbers about where it stands."""
        return {"mean_square": self.best, "attempts_left": float(self.attempts)} if self.best < np.inf else {}

    @classmethod
    def of(cls, record: Message) -> "State":
        """Return the state in a record."""
        return state_in(_PREFIX, cls, record)

    @classmethod
    def is_in(cls, record: Message) -> bool:
        """Return whether a record has a state."""
        return _PREFIX + "best" in record


def begun(centroids: FloatArray, updates: int, attempts: int) -> State:
    """Return the state at the start, of a solution (k, d) about which nothing is known yet."""
    nothing = np.zeros(0)
    return State(updates, attempts, False, np.inf, np.inf, centroids, nothing, centroids, centroids)


def without_state(record: Message) -> Message:
    """Return a record without the state of a refinement that has ended."""
    return {name: value for name, value in record.items() if not name.startswith(_PREFIX)}


def interrupted(round_: Round, centroids: FloatArray) -> Round:
    """Return a round of a refinement as a finished one, with the best centroids (k, d) so far."""
    return replace(round_, task={"centroids": centroids}, done=True, record=without_state(round_.record))


def totals(solutions: Sequence[FloatArray], replies: Sequence[Message]) -> list[_Totals]:
    """Return for each solution (k, d) what the replies to `SPREAD` make together."""
    found, first, (sent, _) = [], 0, gathered(replies)
    for solution in solutions:
        own = _of_solution(sent, first, first + len(solution))
        means = lloyd_merge(solution, [own])
        m2 = np.zeros_like(solution)
        deviations = (own["centroids"] - means[own["cluster"]]) ** 2
        np.add.at(m2, own["cluster"], own["m2"] + own["counts"][:, None] * deviations)
        found.append(_Totals(rows_behind(len(solution), [own]), means, m2))
        first += len(solution)
    return found


def advanced(state: State, task: Message, replies: Sequence[Message]) -> tuple[State, list[FloatArray]]:
    """Return the state after the replies to a task, and the solutions to ask about next; none at the end."""
    solutions = unstack(task)
    known = totals(solutions, replies)
    values = [mean_square(solution, total) for solution, total in zip(solutions, known, strict=True)]
    at = int(np.argmin(values))
    if values[at] < state.best:
        state = state._replace(best=values[at], centroids=solutions[at], **known[at]._asdict())
    if state.updates > 0 and any(not np.array_equal(t.means, s) for s, t in zip(solutions, known, strict=True)):
        return state._replace(updates=state.updates - 1), [total.means for total in known]
    if state.compares:
        state = state._replace(updates=AFTERWARDS - 1, compares=False)
        return state, [known[at].means]
    worth = not state.before < np.inf or state.best < state.before * (1 - _WORTH)
    if not (state.attempts and worth and len(state.counts)):
        return state, []
    state = state._replace(updates=SIDE_BY_SIDE, attempts=state.attempts - 1, compares=True, before=state.best)
    return state, _proposals(_Totals(state.counts.astype(np.int64), state.means, state.m2))


def _of_solution(reply: Message, first: int, end: int) -> Message:
    own = (reply["cluster"] >= first) & (reply["cluster"] < end)
    return {name: value[own] for name, value in reply.items()} | {"cluster": reply["cluster"][own] - first}


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
