"""The site's side of profiles: what describes the final clusters in the units of the columns, as sums over its rows.

Asked after the assessment, of all algorithms for sites with the same columns that are not differentially private. First the
rows, means and squared deviations of each cluster, then how many of its rows lie in bins that the server has chosen, and,
for a shallow tree that tells clusters apart, the same in each of the tree's leaves.

Where a job takes rows with missing cells, both are of the known cells, with the number of these by cluster and column
(`flareclust.core.missing.profiles`). Rows are in the leaf of the tree in which they are once filled with the columns' means.

A site leaves out clusters that are too small. It describes none where sums of the rounds cover other rows than a profile
does, with trimmed rows and, but for algorithms whose sites send totals only, with secure sums: the difference of both would be
the rows left out. With totals only, a profile covers all rows as each round does: rows of clusters that are too small in all go to
the nearest other cluster.
"""

from collections.abc import Sized
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import BoolArray, IntArray, Message
from flareclust.core import profiles as profile_sums
from flareclust.core import shallow_tree
from flareclust.core.disclosure import LEAST_ROWS, describable
from flareclust.core.missing import profiles as known_profiles
from flareclust.executors import partwise
from flareclust.executors.phases import Phase
from flareclust.features.scaling import FILL
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.params import Params
from flareclust.protocol.schema import Schema, index
from flareclust.protocol.steps import Step
from flareclust.protocol.task import PROFILED_BINS, PROFILED_KNOWN, PROFILED_KNOWN_BINS, StepName, Task

#: What a task of `profile_bins` carries beside the final centroids: edges of the bins, the tree's splits so far, its leaves.
_QUESTION = Schema(
    edges="d e",
    split_column=index("s", less_than="d+1"),
    split_edge=index("s", less_than="e"),
    leaves=index("l", less_than="s"),
)

#: The steps with secure sums.
_TOTALS = (StepName.PROFILE_TOTALS_COUNTS, StepName.PROFILE_TOTALS)

#: The most bins of a column, and numbers of a reply.
_MOST_BINS, MOST_NUMBERS = 64, 2**21


class ClusterProfiles(Phase):
    """What describes the final clusters."""

    steps = MappingProxyType(
        {
            StepName.PROFILE: Step(GROUPS, "profile", summed=True, named=True),
            StepName.PROFILE_BINS: Step(PROFILED_BINS, "profile_bins", summed=True, named=True),
            StepName.PROFILE_KNOWN: Step(PROFILED_KNOWN, "profile_known", summed=True, named=True, parameter="missing"),
            StepName.PROFILE_KNOWN_BINS: Step(
                PROFILED_KNOWN_BINS, "profile_known_bins", summed=True, named=True, parameter="missing"
            ),
            StepName.PROFILE_TOTALS: Step(
                GROUPS, "profile_totals", summed=True, jobs="secure", named=True, counted=True
            ),
        }
    )

    @partwise.computed_by(partwise.profile)
    def profile(self, task: Task, rows: SiteRows) -> Message:
        """Return rows, means and squared deviations of the table's rows (n, d) by final cluster."""
        labels = self._final(task, rows)
        kept, counts, means, m2 = profile_sums.moments(
            rows.X, labels, len(task.arrays["centroids"]), rows.context.min_count
        )
        message = {"cluster": kept, "counts": counts, "centroids": means, "m2": m2}
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def profile_bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many of the table's rows (n, d) the leaves and final clusters have in the bins of each column."""
        task, arrays = _asked(task, rows.X.shape[1])
        labels = self._final(task, rows)
        bins = profile_sums.in_bins(rows.X, arrays["edges"])
        leaves = _leaves(arrays, _nodes(arrays, bins, labels, rows.context))
        shape = len(arrays["leaves"]), len(task.arrays["centroids"]), arrays["edges"].shape[1] + 1
        return {"bins": profile_sums.counted(bins, leaves, labels, shape, rows.context.min_count)}

    def profile_known(self, task: Task, rows: SiteRows) -> Message:
        """Return the same as `profile` over the known cells, and how many there are of each cluster and column."""
        labels, known = self._final_known(task, rows)
        found = known_profiles.known_moments(
            rows.X, known, labels, len(task.arrays["centroids"]), rows.context.min_count
        )
        message = {
            "cluster": found.clusters,
            "rows": found.rows,
            "counts": found.cells,
            "centroids": found.means,
            "m2": found.m2,
        }
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def profile_known_bins(self, task: Task, rows: SiteRows) -> Message:
        """Return the rows of the leaves and final clusters, and how many known cells they have in the bins of each column."""
        task, arrays = _asked(task, rows.X.shape[1])
        floor, k, h = rows.context.min_count, len(task.arrays["centroids"]), arrays["edges"].shape[1] + 1
        labels, known = self._final_known(task, rows)
        shown = known_profiles.described(rows.X, known, labels, k, floor)
        bins = profile_sums.in_bins(np.where(known, rows.X, task.arrays.get(FILL, 0.0)), arrays["edges"])
        node = _nodes(arrays, bins, labels, rows.context)
        leaves, number = _leaves(arrays, node), len(arrays["leaves"])
        in_leaves = known_profiles.shown_in_nodes(known, node, labels, shown, floor)[arrays["leaves"]]
        counted_ = (labels >= 0) & (leaves >= 0) & shown[labels].any(axis=1)
        by_leaf = np.bincount(leaves[counted_] * k + labels[counted_], minlength=number * k).reshape(number, k)
        return {
            "rows": np.where(by_leaf >= floor, by_leaf, 0),
            "bins": known_profiles.known_in_bins(bins, known, leaves, labels, in_leaves, h, floor),
        }

    def profile_totals(self, task: Task, rows: SiteRows) -> Message:
        """Return the same as `profile` of all rows (n, d), each in the nearest of the clusters that are large enough in all."""
        if rows.context.reported is None or profiling_steps(self.site.params, secure=True) != _TOTALS:
            raise Refusal(f"was asked for the step {task.step}, which does not go with its job")
        task, seen = self._checked(task, rows)
        centroids, ids = task.arrays["centroids"], np.flatnonzero(rows.context.reported)
        k, labels = len(centroids), np.full(len(rows.X), -1, dtype=np.int64)
        if len(ids):
            among = replace(task, arrays={**task.arrays, "centroids": centroids[ids]})
            labels = np.append(ids, -1)[self.site.labels(among, seen)]
        counts, means, m2 = profile_sums.moments_of_all(rows.X, labels, k)
        kept = counts > 0
        if rows.context.least_rows and kept.any():  # the same groups of rows as in the rounds
            kept &= describable(
                seen.X, labels, profile_sums.moments_of_all(seen.X, labels, k)[1], rows.context.least_rows
            )
            m2[counts < LEAST_ROWS] = 0.0
        message = {"cluster": np.flatnonzero(kept), "counts": counts[kept], "centroids": means[kept], "m2": m2[kept]}
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def _final_known(self, task: Task, rows: SiteRows) -> tuple[IntArray, BoolArray]:
        """Return the final cluster (n,) of each of the rows that the step sees, and which of their cells are known (n, d)."""
        task, seen = self._checked(task, rows)
        labels, known = self.site.grouped(task, seen)
        return labels, ~np.isnan(rows.X) if known is None else known

    def _final(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each of the rows that the step sees."""
        task, seen = self._checked(task, rows)
        return self.site.labels(task, seen)

    def _checked(self, task: Task, rows: SiteRows) -> tuple[Task, SiteRows]:
        """Return the task and the rows as the algorithm sees them; raise Refusal where they may not be described."""
        self.check_described(task.step, rows.X, rows.context)
        task, seen = self.site.viewed(task, rows.table)
        self.site.check_task(task, seen.X)
        return task, replace(rows, table=seen, rng=stream(self.site.params.seed, 0, task.site))

    def check_described(self, step: str, data: Sized, context: SiteContext) -> None:
        """Raise Refusal where what a step asks about the clusters of these rows would disclose some of them."""
        self.site.check_enough_rows(data, context)
        if step not in profiling_steps(self.site.params, secure=context.secure):
            if context.secure:
                raise Refusal(
                    "describes no clusters in a job with secure sums but by totals: less its other sums, they would disclose rows"
                )
            raise Refusal(f"was asked for the step {step}, which does not go with how its job takes missing cells")
        if getattr(self.site.params, "trim_rows", False):
            raise Refusal(
                "describes no clusters in a job with trim_rows: less its other sums, they would disclose rows"
            )


def profiling_steps(params: Params, *, secure: bool = False) -> tuple[str, ...]:
    """Return the steps by which a job with these parameters asks for profiles: moments, and counts in bins; with secure sums
    numbers of rows, and moments, and nothing where rows may have missing cells.
    """
    gaps = getattr(params, "missing", "refuse") != "refuse"
    if secure:
        return () if gaps else _TOTALS
    return (StepName.PROFILE_KNOWN, StepName.PROFILE_KNOWN_BINS) if gaps else (StepName.PROFILE, StepName.PROFILE_BINS)


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
