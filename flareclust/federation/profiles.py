"""What describes the final clusters in the units of the columns: moments, counts in bins, and a shallow tree.

Asked after the assessment, of algorithms for sites with the same columns that are not differentially private. First the
rows, means and squared deviations of each cluster, then how many of its rows lie in bins that the server has chosen, and,
for a shallow tree that tells clusters apart, the same in each of the tree's leaves.

Where a job takes rows with missing cells, both are of the known cells, with the number of these by cluster and column
(`flareclust.core.missing.profiles`). Rows are in the leaf of the tree in which they are once filled with the columns' means.

A site leaves out clusters that are too small. It describes none where sums of the rounds cover other rows than a profile
does, with trimmed rows and, but for algorithms whose sites send totals only, with secure sums: the difference of both would be
the rows left out. With totals only, a profile covers all rows as each round does: rows of clusters that are too small in all go to
the nearest other cluster.

A profile never makes a job fail: what could not be had is a warning. Sums are over the sites that answer, a quorum at least.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import BoolArray, IntArray, Message
from flareclust.core import profiles as profile_sums
from flareclust.core import shallow_tree
from flareclust.core.disclosure import LEAST_ROWS, describable
from flareclust.core.missing import profiles as known_profiles
from flareclust.preparation.settings import ColumnsParams, ScaledParams, TrimParams
from flareclust.protocol.params import Params
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.schema import Schema, index
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import (
    GROUPS,
    PROFILED_BINS,
    PROFILED_KNOWN,
    PROFILED_KNOWN_BINS,
    StepName,
    Task,
    rounded_spread,
)

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: What a task of `profile_bins` carries beside the final centroids: edges of the bins, the tree's splits so far, its leaves.
_QUESTION = Schema(
    edges="d e",
    split_column=index("s", less_than="d+1"),
    split_edge=index("s", less_than="e"),
    leaves=index("l", less_than="s"),
)

#: The steps with secure sums, and those in jobs that take rows with missing cells.
_TOTALS = (StepName.PROFILE_TOTALS_COUNTS, StepName.PROFILE_TOTALS)
_OF_KNOWN = (StepName.PROFILE_KNOWN, StepName.PROFILE_KNOWN_BINS)

#: The most bins of a column, and numbers of a reply.
_MOST_BINS, MOST_NUMBERS = 64, 2**21


class ClusterProfiles(Phase):
    """Asks for what describes the final clusters; the columns are those of the sites' tables."""

    steps = MappingProxyType(
        {
            StepName.PROFILE: Step(GROUPS, "profile", summed=True),
            StepName.PROFILE_BINS: Step(PROFILED_BINS, "profile_bins", summed=True),
            StepName.PROFILE_KNOWN: Step(PROFILED_KNOWN, "profile_known", summed=True),
            StepName.PROFILE_KNOWN_BINS: Step(PROFILED_KNOWN_BINS, "profile_known_bins", summed=True),
            StepName.PROFILE_TOTALS: Step(GROUPS, "profile_totals", summed=True, jobs="secure", counted=True),
        }
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps of algorithms for the same columns; exact moments of clusters are for none with differential privacy."""
        params = executor.params_class()
        if executor.private or not executor.describes or issubclass(params, ColumnsParams):
            return {}
        left_out = set() if issubclass(params, ScaledParams) else set(_OF_KNOWN)
        left_out |= set() if executor.totals_only else {StepName.PROFILE_TOTALS}
        return {name: step for name, step in cls.steps.items() if name not in left_out}

    def profile(self, task: Task, rows: SiteRows) -> Message:
        """Return rows, means and squared deviations of the rows (n, d) by final cluster."""
        self._check(task, rows)
        message = rows.profiled(task.arrays["centroids"], self._labels(task, rows))
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def profile_bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many of the rows (n, d) the leaves and final clusters have in the bins of each column."""
        X = rows.raw
        task, arrays = _asked(task, X.shape[1])
        self._check(task, rows)
        labels, bins = self._labels(task, rows), profile_sums.in_bins(X, arrays["edges"])
        leaves = _leaves(arrays, _nodes(arrays, bins, labels, rows.context))
        shape = len(arrays["leaves"]), len(task.arrays["centroids"]), arrays["edges"].shape[1] + 1
        return {"bins": profile_sums.counted(bins, leaves, labels, shape, rows.context.min_count)}

    def profile_known(self, task: Task, rows: SiteRows) -> Message:
        """Return the same as `profile` over the known cells, and how many there are of each cluster and column."""
        self._check(task, rows)
        labels, known = self._known(task, rows)
        k, floor = len(task.arrays["centroids"]), rows.context.min_count
        found = known_profiles.known_moments(rows.raw, known, labels, k, floor)
        message: Message = {"cluster": found.clusters, "rows": found.rows, "counts": found.cells}
        message |= {"centroids": found.means, "m2": found.m2}
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def profile_known_bins(self, task: Task, rows: SiteRows) -> Message:
        """Return the rows of the leaves and final clusters, and how many known cells they have in the bins of each column."""
        X, fill = rows.raw, 0.0 if rows.fill is None else rows.fill
        task, arrays = _asked(task, X.shape[1])
        self._check(task, rows)
        floor, k, h = rows.context.min_count, len(task.arrays["centroids"]), arrays["edges"].shape[1] + 1
        labels, known = self._known(task, rows)
        shown = known_profiles.described(X, known, labels, k, floor)
        bins = profile_sums.in_bins(np.where(known, X, fill), arrays["edges"])
        node = _nodes(arrays, bins, labels, rows.context)
        leaves, number = _leaves(arrays, node), len(arrays["leaves"])
        in_leaves = known_profiles.shown_in_nodes(known, node, labels, shown, floor)[arrays["leaves"]]
        counted_ = (labels >= 0) & (leaves >= 0) & shown[labels].any(axis=1)
        by_leaf = np.bincount(leaves[counted_] * k + labels[counted_], minlength=number * k).reshape(number, k)
        return {
            "rows": np.where(by_leaf >= floor, by_leaf, 0),
            "bins": profile_sums.counted(bins, leaves, labels, (number, k, h), floor, known, in_leaves),
        }

    def profile_totals(self, task: Task, rows: SiteRows) -> Message:
        """Return the same as `profile` of all rows (n, d), each in the nearest of the clusters that are large enough in all."""
        if rows.context.reported is None or profiling_steps(self.params, secure=True) != _TOTALS:
            raise Refusal(f"was asked for the step {task.step}, which does not go with its job")
        self._check(task, rows)
        X, centroids, ids = rows.raw, task.arrays["centroids"], np.flatnonzero(rows.context.reported)
        k, labels = len(centroids), np.full(len(X), -1, dtype=np.int64)
        if len(ids):
            among = replace(task, arrays={**task.arrays, "centroids": centroids[ids]})
            labels = np.append(ids, -1)[self._labels(among, rows)]
        counts, means, m2 = profile_sums.moments_of_all(X, labels, k)
        kept = counts > 0
        if rows.context.least_rows and kept.any():  # the same groups of rows as in the rounds
            seen_means = profile_sums.moments_of_all(rows.X, labels, k)[1]
            kept &= describable(rows.X, labels, seen_means, rows.context.least_rows)
            m2[counts < LEAST_ROWS] = 0.0
        message = {"cluster": np.flatnonzero(kept), "counts": counts[kept], "centroids": means[kept], "m2": m2[kept]}
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def _labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row."""
        return self.executor.labels(task, replace(rows, rng=stream(self.params.seed, 0, task.site)))

    def _known(self, task: Task, rows: SiteRows) -> tuple[IntArray, BoolArray]:
        """Return the final cluster (n,) of each row, and which cells count as known (n, d), both as in the rounds.

        By all known cells a row could be in another cluster, and sums of both would differ by this row.
        """
        own = rows.completed(task.arrays["centroids"])
        return self._labels(task, own), ~np.isnan(rows.raw) if own.known is None else own.known

    def _check(self, task: Task, rows: SiteRows) -> None:
        """Raise Refusal where what a step asks about the clusters of these rows would disclose some of them."""
        rows.check_sums()
        if task.step not in profiling_steps(self.params, secure=rows.context.secure):
            if rows.context.secure:
                raise Refusal(
                    "describes no clusters in a job with secure sums but by totals: less its other sums, they would disclose rows"
                )
            raise Refusal(f"was asked for the step {task.step}, which does not go with how its job takes missing cells")
        if isinstance(self.params, TrimParams) and self.params.trim_rows:
            raise Refusal(
                "describes no clusters in a job with trim_rows: less its other sums, they would disclose rows"
            )


def profiling_steps(params: Params, *, secure: bool = False) -> tuple[str, ...]:
    """Return the steps by which a job with these parameters asks for profiles: moments, and counts in bins; with secure sums
    numbers of rows, and moments, and nothing where rows may have missing cells.
    """
    gaps = isinstance(params, ScaledParams) and params.missing != "refuse"
    if secure:
        return () if gaps else _TOTALS
    return _OF_KNOWN if gaps else (StepName.PROFILE, StepName.PROFILE_BINS)


def _asked(task: Task, d: int) -> tuple[Task, Message]:
    """Return a task about bins without its question, and the question about rows of d columns."""
    arrays = {name: task.arrays[name] for name in _QUESTION.fields if name in task.arrays}
    _check_question(arrays, d, task.arrays)
    rest = {name: value for name, value in task.arrays.items() if name not in arrays}
    return replace(task, arrays=rest), arrays


def _nodes(question: Message, bins: IntArray, labels: IntArray, context: SiteContext) -> IntArray:
    """Return the node of the tree (n,) in which rows end, by the bins of their values (n, d)."""
    # The tree counts splits from 1, and 0 is none: the numbers of a message are not negative.
    return shallow_tree.reached(bins, question["split_column"] - 1, question["split_edge"], labels, context.min_count)


def _leaves(question: Message, node: IntArray) -> IntArray:
    """Return which of the leaves that are asked about each row is in (n,), by the node in which it ends; -1 for none."""
    leaves = np.full(len(node), -1, dtype=np.int64)
    for number, leaf in enumerate(question["leaves"].tolist()):
        leaves[node == leaf] = number
    return leaves


def _check_question(arrays: Message, d: int, sent: Message) -> None:
    """Raise BadMessage unless a task asks for counts as the server of flareclust does."""
    sizes = _QUESTION.check(arrays, {"d": d, "d+1": d + 1, "s": shallow_tree.SPLITS})
    if "centroids" not in sent or sent["centroids"].ndim != 2:
        raise BadMessage("centroids: expected those of the result, with two axes")
    bins, leaves = sizes["e"] + 1, sizes["l"]
    if (
        not (2 <= bins <= _MOST_BINS and 1 <= leaves <= shallow_tree.SPLITS)
        or (np.diff(arrays["edges"], axis=1) < 0).any()
    ):
        raise BadMessage(f"edges: expected 1 to {_MOST_BINS - 1} of each column, in order")
    if len(set(arrays["leaves"].tolist())) < leaves:
        raise BadMessage("leaves: expected each leaf once")
    if leaves * len(sent["centroids"]) * d * bins > MOST_NUMBERS:
        raise BadMessage(f"leaves: expected a question about at most {MOST_NUMBERS} counts")
