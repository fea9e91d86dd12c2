"""The site's side of profiles: what describes the final clusters in the units of the columns, as sums over its rows.

Asked after the assessment, of all algorithms for sites with the same columns that are not differentially private. First the
rows, means and squared deviations of each cluster, then how many of its rows lie in bins that the server has chosen, and,
for a shallow tree that tells clusters apart, the same in each of the tree's leaves.

A site leaves out clusters that are too small. It describes none where sums of the rounds cover other rows than a profile
does, with secure sums and with trimmed rows: the difference of both would be the rows left out.
"""

from abc import abstractmethod
from collections.abc import Sized
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, Message
from flareclust.core.profiles import counted, in_bins, moments
from flareclust.core.shallow_tree import SPLITS, reached
from flareclust.data.tables import Table
from flareclust.privacy.context import SiteContext
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.params import Params
from flareclust.protocol.schema import Schema, index
from flareclust.protocol.steps import Step
from flareclust.protocol.task import PROFILE, PROFILE_BINS, PROFILED_BINS, Task

#: The steps, for the tables of all algorithms that have profiles.
PROFILES = MappingProxyType(
    {
        PROFILE: Step(GROUPS, "profile", summed=True, named=True),
        PROFILE_BINS: Step(PROFILED_BINS, "profile_bins", summed=True, named=True),
    }
)

#: What a task of `profile_bins` carries beside the final centroids: edges of the bins, the tree's splits so far, its leaves.
QUESTION = Schema(
    edges="d e",
    split_column=index("s", less_than="d+1"),
    split_edge=index("s", less_than="e"),
    leaves=index("l", less_than="s"),
)

#: The most bins of a column, and numbers of a reply.
_MOST_BINS, MOST_NUMBERS = 64, 2**21


class Profiling:
    """The two steps of profiles, for executors."""

    seed: int
    params: Params

    @abstractmethod
    def labels(
        self,
        task: Task,
        data: FloatArray,
        rng: np.random.Generator,
        aborted: AbortCheck,
        context: SiteContext,
        seen: FloatArray,
    ) -> IntArray:
        """Return the final cluster (n,) of each row."""

    @abstractmethod
    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return a task and a table as the algorithm sees them."""

    @abstractmethod
    def _check_task(self, task: Task, data: FloatArray) -> None:
        """Raise BadMessage or Refusal unless the centroids fit the rows."""

    @abstractmethod
    def _check_enough(self, data: Sized, context: SiteContext) -> None:
        """Raise Refusal where there are too few rows."""

    def profile(
        self, task: Task, table: Table, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return rows, means and squared deviations of the table's rows (n, d) by final cluster."""
        labels = self._final(task, table, aborted, context)
        kept, rows, means, m2 = moments(table.X, labels, len(task.arrays["centroids"]), context.min_count)
        message = {"cluster": kept, "counts": rows, "centroids": means, "m2": m2}
        return rounded_spread(message, context.round_counts, context.min_count)

    def profile_bins(
        self, task: Task, table: Table, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return how many of the table's rows (n, d) the leaves and final clusters have in the bins of each column."""
        arrays = {name: task.arrays[name] for name in QUESTION.fields if name in task.arrays}
        _check_question(arrays, table.X.shape[1], task.arrays)
        rest = {name: value for name, value in task.arrays.items() if name not in arrays}
        labels = self._final(replace(task, arrays=rest), table, aborted, context)
        bins = in_bins(table.X, arrays["edges"])
        # The tree counts splits from 1, and 0 is none: the numbers of a message are not negative.
        tree = arrays["split_column"] - 1, arrays["split_edge"]
        node = reached(bins, *tree, labels, context.min_count)
        leaves = np.full(len(node), -1, dtype=np.int64)
        for number, leaf in enumerate(arrays["leaves"].tolist()):
            leaves[node == leaf] = number
        shape = len(arrays["leaves"]), len(task.arrays["centroids"]), arrays["edges"].shape[1] + 1
        return {"bins": counted(bins, leaves, labels, shape, context.min_count)}

    def check_described(self, data: Sized, context: SiteContext) -> None:
        """Raise Refusal where sums about the clusters of these rows would disclose some of them."""
        self._check_enough(data, context)
        if context.secure or getattr(self.params, "trim_rows", False):
            raise Refusal(
                "describes no clusters in a job with secure sums or trim_rows: less its other sums, they would disclose rows"
            )

    def _final(self, task: Task, table: Table, aborted: AbortCheck, context: SiteContext) -> IntArray:
        """Return the final cluster (n,) of each of the rows that the step sees."""
        self.check_described(table.X, context)
        task, seen = self.viewed(task, table)
        self._check_task(task, seen.X)
        return self.labels(task, seen.X, stream(self.seed, 0, task.site), aborted, context, seen.X)


def _check_question(arrays: Message, d: int, sent: Message) -> None:
    """Raise BadMessage unless a task asks for counts as the server of flareclust does."""
    sizes = QUESTION.check(arrays, {"d": d, "d+1": d + 1, "s": SPLITS})
    if "centroids" not in sent or sent["centroids"].ndim != 2:
        raise BadMessage("centroids: expected those of the result, with two axes")
    bins, leaves = sizes["e"] + 1, sizes["l"]
    if not (2 <= bins <= _MOST_BINS and 1 <= leaves <= SPLITS) or (np.diff(arrays["edges"], axis=1) < 0).any():
        raise BadMessage(f"edges: expected 1 to {_MOST_BINS - 1} of each column, in order")
    if len(set(arrays["leaves"].tolist())) < leaves:
        raise BadMessage("leaves: expected each leaf once")
    if leaves * len(sent["centroids"]) * d * bins > MOST_NUMBERS:
        raise BadMessage(f"leaves: expected a question about at most {MOST_NUMBERS} counts")
