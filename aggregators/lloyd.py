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
   splitting, from totals only (`split`), and up to three attempts to split and merge follow the
   updates of `lloyd` unless `split_merge` says otherwise.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from math import ceil, pi
from typing import Self

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.refinement import (
    State,
    advanced,
    begun,
    interrupted,
    lloyd_merge,
    rows_behind,
    without_state,
)
from flareclust.aggregators.scaled import ScaledAggregator
from flareclust.core import clusterers, robust
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.rounds import HISTORY, movement, remember
from flareclust.evaluation.scores import stack
from flareclust.executors import lloyd
from flareclust.federation.refinement import SPREAD
from flareclust.protocol.replies import gathered, stacked
from flareclust.protocol.rounds import Round

#: Attempts to leave a local optimum after a start from totals: it splits large clusters before it parts small ones.
_AFTER_SPLITS = 3


class UpdatesAggregator(ScaledAggregator):
    """A server that moves clusters in updates: the means of all rows nearest to each centroid.

    Kept on the server: `history` (rounds, k, d), the centroids after every exchange, the start among them where it came
    from the sites' seeds; `counts` (k,), the rows behind each centroid in the last update. With `robust` also, of the
    sites' seeds, `kept` (c,), which were believed, and `left_out`, the names of the sites that were not.
    """

    params: lloyd.UpdatesParams

    steps = lloyd.LloydExecutor.job_steps()

    #: Whether the start comes from totals.
    _splits = False

    def begin(self) -> Round:
        """Ask for seeds, or for the first update of the centroids given."""
        if self._splits:
            return Round(step=SPREAD)
        start = self.params.start
        return (
            Round()
            if isinstance(start, str)
            else Round({"centroids": self.directed(np.array(start))}, step=lloyd.UPDATE)
        )

    def moved_to(self, means: FloatArray, record: Message) -> FloatArray:
        """Return the centers (k, d) of clusters whose rows have these means: the means, or their directions, unless overridden."""
        return self.directed(means)

    @property
    def attempts(self) -> int:
        """Return how often to try to leave a local optimum."""
        return 0

    def secured(self) -> Self:
        """Return this aggregator with a start that is made from totals, unless the caller has one."""
        super().secured()
        check_judges_nobody(self.params.rule)
        if isinstance(self.params.start, str) and self.params.start != "kmeans":
            raise UserError(
                f"start={self.params.start!r} clusters the sites' seeds, which are not sent with secure_sums; leave it out, or give k "
                "centroids"
            )
        if isinstance(self.params.start, str) and self.params.trim_rows:
            raise UserError(
                "trim_rows with secure_sums needs a start: the one that is made from totals is of all rows, and the totals of the "
                "rounds, less that, would be the rows that are left out. Give k centroids, or use portfolio"
            )
        secured = copy(self)
        secured._splits = isinstance(self.params.start, str)
        return secured

    def result_so_far(self, round_: Round) -> Round | None:
        """Return the best solution so far, once the updates are done."""
        return interrupted(round_, State.of(round_.record).centroids) if State.is_in(round_.record) else None

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Cluster the seeds, or update the centroids."""
        if round_.step == lloyd.UPDATE:
            return self._updated(round_, replies.values())
        if round_.step == SPREAD and State.is_in(round_.record):
            return self._refined(round_, list(replies.values()))
        if round_.step == SPREAD:
            return self._split(round_, *replies.values())
        assert isinstance(self.params.start, str)
        sent, site = gathered(replies.values())
        seeds = sent["centroids"]
        filtered = robust.filter_outliers(seeds, np.ones(len(seeds)), site, self.params.k, self.params.rule)
        centroids = self.directed(
            filtered.centers(*clusterers.cluster_means(filtered.points, self.params.k, self.params.start, rng))
        )
        numbers, outliers = filtered.summary(replies)
        record = remember(round_.record, centroids, self.params.k) | outliers
        return Round({"centroids": centroids}, False, {"received": float(len(seeds)), **numbers}, record, lloyd.UPDATE)

    def _split(self, round_: Round, total: Message) -> Round:
        """Split clusters until the rows make k of them, or no more than before: then these are the start."""
        if not len(total["counts"]):
            raise JobFailed(f"no site has {LEAST_ROWS} rows, or min_count, that may be described together")
        found = total["centroids"]
        numbers = {"found": float(len(found)), "inertia": float(total["m2"].sum())}
        lacking = self.params.k - len(found)
        grows = len(found) > int(round_.record.get("split", 0))
        centroids = split(
            found, total["counts"], total["m2"], min(_at_once(self.params.k), lacking) if grows else lacking
        )
        record = {**round_.record, "split": np.array(len(found))}
        if grows and len(centroids) > len(found):
            return Round(stack([centroids]), False, numbers, record, SPREAD)
        centroids = self.directed(centroids)
        return Round({"centroids": centroids}, False, numbers, remember(record, centroids, self.params.k), lloyd.UPDATE)

    def _updated(self, round_: Round, replies: Collection[Message]) -> Round:
        before = round_.task["centroids"]
        centroids = self.moved_to(lloyd_merge(before, replies, self.params.rule), round_.record)
        shift = movement(before, centroids)
        record = remember(round_.record, centroids, self.params.k) | {"counts": rows_behind(len(centroids), replies)}
        updates = len(record[HISTORY]) - isinstance(self.params.start, str)
        diagnostics = {"inertia": float(np.sum(stacked(replies, "inertia"))), "shift": shift}
        done = updates >= self.params.rounds or shift <= self.params.tol
        if done and self.attempts and not self.params.rule.judges:
            state = begun(centroids, 0, self.attempts)
            return Round(stack([centroids]), False, diagnostics, record | state.arrays, SPREAD)
        return Round({"centroids": centroids}, done, diagnostics, record, lloyd.UPDATE)

    def _refined(self, round_: Round, replies: Sequence[Message]) -> Round:
        state, solutions = advanced(State.of(round_.record), round_.task, replies)
        if solutions:
            return Round(stack(solutions), False, state.diagnostics, round_.record | state.arrays, SPREAD)
        record = remember(without_state(round_.record), state.centroids, self.params.k) | {
            "counts": state.counts if len(state.counts) else round_.record["counts"]
        }
        return Round({"centroids": state.centroids}, True, state.diagnostics, record, SPREAD)


class LloydAggregator(UpdatesAggregator):
    """The server of distributed Lloyd."""

    params: lloyd.LloydParams

    steps = lloyd.LloydExecutor.job_steps()

    @property
    def attempts(self) -> int:
        """Return how often to try to leave a local optimum."""
        if self.params.split_merge is None:
            return _AFTER_SPLITS if self._splits else 0
        return self.params.split_merge


def check_judges_nobody(rule: robust.Rule) -> None:
    """Raise UserError where a robust rule needs the replies of single sites, which secure sums hide."""
    if rule.judges:
        raise UserError(
            "robust and cap judge single sites, whose sums nobody sees with secure_sums; set one or the other"
        )


# Starts of k-means from sums alone: clusters are split in two until there are k.
#
# Source: Linde, Buzo, Gray (1980), An algorithm for vector quantizer design, section III, "splitting". Which cluster is
# split, and in which direction, as in Su and Dy (2007), In search of deterministic methods for initializing K-means and
# Gaussian mixture clustering, "Var-Part": the one with the largest sum of squares, along the column with the largest
# variance in it, one standard deviation to either side.

#: About so many splits in a row give k clusters, however large k is.
_SPLITS = 15


def _at_once(k: int) -> int:
    """Return how many clusters are split before the rows are looked at again; up to `_SPLITS` clusters, one."""
    return ceil(k / _SPLITS)


def split(centroids: FloatArray, counts: IntArray, m2: FloatArray, times: int) -> FloatArray:
    """Return the centroids (c, d) with the results of up to so many splits, fewer where no rows differ within a cluster.

    What the halves of a cluster are is taken from the normal distribution, where they are to be split further.

    Args:
        centroids: means of c clusters (c, d).
        counts: their rows (c,).
        m2: squared deviations from the mean by column (c, d).
        times: how many to split.
    """
    split, rows, squares = list(centroids.copy()), list(counts.astype(np.float64)), list(m2.copy())
    for _ in range(times):
        r = int(np.argmax([own.sum() for own in squares]))
        j = int(np.argmax(squares[r]))
        if squares[r][j] <= 0:
            break
        step = np.zeros(centroids.shape[1])
        step[j] = np.sqrt(squares[r][j] / rows[r])
        rows[r] /= 2
        squares[r] = squares[r] / 2
        squares[r][j] *= 1 - 2 / pi
        split.append(split[r] + step)
        split[r] = split[r] - step
        rows.append(rows[r])
        squares.append(squares[r].copy())
    return np.stack(split)
