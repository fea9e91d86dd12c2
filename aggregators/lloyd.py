"""Distributed Lloyd, the server's side: the weighted mean of what the sites send for each cluster.

Source: Lloyd (1982), Least squares quantization in PCM; in rounds over sites as the baseline "distributed k-means" of
Dennis, Li, Smith (2021), section 4.2.

Readings and deviations:
1. The start: all sites' seeds, clustered into k by the clusterer that `start` names; the plain means of the groups
   (Armacki and Kar, Algorithm 2). Or k centroids that the caller has, which the sites then get at once.
2. A cluster without rows anywhere, or whose rows no site may send, keeps its centroid. scikit-learn moves it to the row
   that lies farthest from its own centroid, which nobody here may know.
3. It stops after `rounds` updates, or when no centroid moved farther than `tol` in units of the centroids' spread
   (`core.rounds.movement`).
4. With `robust`, an update takes for each cluster the trimmed mean or the geometric median of the sites' means instead,
   and the start leaves out seeds that are unlike those of the other sites; `cap` limits what a site's rows count
   (`flareclust.core.robust`). Then an update need not lower the inertia, and the centroids need not come to rest.
5. With secure sums there are no seeds and no single sites to judge. Unless the caller has centroids, the start is made by
   splitting, from totals only (`core.split_merge.split`), and up to six attempts to split and merge follow the
   updates of `lloyd` unless `split_merge` says otherwise.
6. Two clusters whose start is not given get one such attempt (`split_merge=0` for none): a start of few seeds can part
   them the wrong way, which updates do not correct.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.core import clusterers, robust
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.rounds import movement, remember
from flareclust.core.split_merge import at_once, split
from flareclust.evaluation.scores import stack
from flareclust.executors import lloyd
from flareclust.federation import refinement as refining
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered, stacked
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

#: Attempts to leave a local optimum after a start from totals: it splits large clusters before it parts small ones.
_AFTER_SPLITS = 6

#: The centers (k, d) of clusters whose rows have these means.
Centers = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class LloydState(State):
    """What the server knows."""

    history: FloatArray | None = None  # after every exchange (rounds, k, d), from the sites' seeds on if any
    counts: IntArray | None = None  # the rows behind each centroid in the last update (k,)
    kept: BoolArray | None = None  # with `robust`, which of the sites' seeds were believed (c,)
    left_out: Array | None = None  # the names of the sites that were not
    split: int | None = None  # of a start from totals, the number of clusters so far
    refinement: refining.Refinement | None = None  # where the attempts to split and merge stand


_Round = Round[LloydState]


class LloydAggregator(ClusteringAggregator):
    """The server of distributed Lloyd: it moves each centroid to the mean of all rows nearest to it.

    Its methods but for `update` are those of all algorithms whose clusters move in updates.
    """

    params: lloyd.LloydParams
    executor = lloyd.LloydExecutor
    state = LloydState

    def begin(self) -> _Round:
        """Ask for seeds, for totals with secure sums, or for the first update of the centroids given."""
        state, start = LloydState(), self.params.start
        if not isinstance(start, str):
            return Round({"centroids": np.array(start)}, state=state, step=refining.UPDATE)
        return Round(state=state, step=refining.SPREAD) if self.secure else Round(state=state)

    def check_secure(self) -> None:
        """Raise UserError where settings need seeds or single sites, which secure sums hide."""
        start = self.params.start
        check_judges_nobody(self.params.rule)
        if isinstance(start, str) and start != "kmeans":
            raise UserError(
                f"start={start!r} clusters the sites' seeds, which are not sent with secure_sums; leave it out, or give k "
                "centroids"
            )
        if isinstance(start, str) and self.params.trim_rows:
            raise UserError(
                "trim_rows with secure_sums needs a start: the one that is made from totals is of all rows, and the totals of the "
                "rounds, less that, would be the rows that are left out. Give k centroids, or use portfolio"
            )

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Cluster the seeds of all sites, and ask for the first update."""
        params = self.params
        assert isinstance(params.start, str)
        sent, site = gathered(replies.values())
        seeds = sent["centroids"]
        filtered = robust.filter_outliers(seeds, np.ones(len(seeds)), site, params.k, params.rule)
        means = filtered.centers(*clusterers.cluster_means(filtered.points, params.k, params.start, rng))
        centroids = round_.columns.centers(means)
        numbers, believed = filtered.summary(replies)
        state = _remembering(params, round_.state, centroids)
        state = replace(state, kept=believed.kept, left_out=believed.left_out)
        diagnostics = {"received": float(len(seeds)), **numbers}
        return Round({"centroids": centroids}, False, diagnostics, state, refining.UPDATE)

    def update(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Move the centroids to the means of their rows, or those of an attempt to leave a local optimum."""
        if round_.state.refinement is not None:
            return _refined(self.params, round_, replies.values())
        attempts = self.params.split_merge
        if attempts is None:
            own, anew = isinstance(self.params.start, str), int(self.params.k == 2)
            attempts = (_AFTER_SPLITS if self.secure else anew) if own else 0
        return updated(self.params, round_, replies.values(), round_.columns.centers, attempts)

    def spread(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Split clusters until there are k, or try to leave a local optimum."""
        if round_.state.refinement is None:
            return _split(self.params, round_, *replies.values())
        return _refined(self.params, round_, replies.values())

    def so_far(self, round_: _Round) -> _Round | None:
        """Return the best solution so far, once the updates are done."""
        if (refinement := round_.state.refinement) is None:
            return None
        state = replace(round_.state, refinement=None)
        return replace(round_, task={"centroids": refinement.centroids}, done=True, state=state)


def check_judges_nobody(rule: robust.Rule) -> None:
    """Raise UserError where a robust rule needs the replies of single sites, which secure sums hide."""
    if rule.judges:
        raise UserError("robust and cap judge single sites, whose sums nobody sees with secure_sums; set one of them")


def updated(
    params: lloyd.UpdatesParams, round_: _Round, replies: Collection[Message], centers: Centers, attempts: int = 0
) -> _Round:
    """Return the next update, or attempts to leave a local optimum, or the end.

    Args:
        params: of the algorithm.
        round_: the update that the replies answer.
        replies: of the sites.
        centers: of clusters, from the means of their rows.
        attempts: to split and merge, after the last update.
    """
    before = round_.task["centroids"]
    centroids = centers(refining.lloyd_merge(before, replies, params.rule))
    shift = movement(before, centroids)
    state = replace(_remembering(params, round_.state, centroids), counts=refining.rows_behind(len(centroids), replies))
    assert state.history is not None
    updates = len(state.history) - isinstance(params.start, str)
    diagnostics = {"inertia": float(np.sum(stacked(replies, "inertia"))), "shift": shift}
    done = updates >= params.rounds or shift <= params.tol
    if done and attempts and not params.rule.judges:
        state = replace(state, refinement=refining.Refinement(centroids, 0, attempts))
        return Round({"centroids": centroids}, False, diagnostics, state, refining.UPDATE)
    return Round({"centroids": centroids}, done, diagnostics, state, refining.UPDATE)


def _refined(params: lloyd.UpdatesParams, round_: _Round, replies: Collection[Message]) -> _Round:
    """Go on with the attempts to leave a local optimum; the best solution ends them."""
    assert round_.state.refinement is not None
    refinement, step, task = refining.advanced(round_.state.refinement, round_.step, round_.task, replies)
    state = replace(round_.state, refinement=refinement)
    if task:
        return Round(task, False, refinement.diagnostics, state, step)
    counts = state.counts if refinement.counts is None else refinement.counts
    state = replace(_remembering(params, state, refinement.centroids), refinement=None, counts=counts)
    return Round({"centroids": refinement.centroids}, True, refinement.diagnostics, state, step)


def _split(params: lloyd.UpdatesParams, round_: _Round, total: Message) -> _Round:
    """Split clusters until the rows make k of them, or no more than before: then these are the start."""
    if not len(total["counts"]):
        raise JobFailed(f"no site has {LEAST_ROWS} rows, or min_count, that may be described together")
    found = total["centroids"]
    numbers = {"found": float(len(found)), "inertia": float(total["m2"].sum())}
    lacking, grows = params.k - len(found), len(found) > (round_.state.split or 0)
    centroids = split(found, total["counts"], total["m2"], min(at_once(params.k), lacking) if grows else lacking)
    state = replace(round_.state, split=len(found))
    if grows and len(centroids) > len(found):
        return Round(stack([centroids]), False, numbers, state, refining.SPREAD)
    centroids = round_.columns.centers(centroids)
    return Round({"centroids": centroids}, False, numbers, _remembering(params, state, centroids), refining.UPDATE)


def _remembering(params: lloyd.UpdatesParams, state: LloydState, centroids: FloatArray) -> LloydState:
    return replace(state, history=remember(state.history, centroids, params.k))
