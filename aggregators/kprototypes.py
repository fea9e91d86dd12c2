"""k-prototypes, the server's side: the mean of each cluster's numbers, and the most frequent value of each category.

Source: Huang (1997), Clustering large data sets with mixed numeric and categorical values; Huang (1998), Extensions to the
k-means algorithm for clustering large data sets with categorical values, sections 3 (k-modes) and 4 (k-prototypes).

Readings and deviations:
1. gamma, unless it is given, is half the average standard deviation of the numeric columns over all sites' rows (Huang 1997,
   section 3.4), from the sums with which columns are scaled: of scaled columns 1/2. It is 1 where there are no numbers.
2. Of equally frequent values the one that comes first in the schema is the mode.
3. The first centers are the means of the seeds' groups, with shares in place of modes, so that no two of them are the same;
   from the first update on there are modes. Centers that the caller gives are used as they are.
4. A cluster without rows, or whose rows no site may send, keeps its center. Without categories this is distributed Lloyd.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import Round
from flareclust.aggregators.lloyd import UpdatesAggregator
from flareclust.core.categories import divisor, huang_gamma, in_categories, with_modes
from flareclust.core.rounds import HISTORY
from flareclust.core.scaling import pooled_spread
from flareclust.executors.kprototypes import KPrototypesExecutor, KPrototypesParams
from flareclust.protocol.task import SCALES

#: Key of what a category that differs adds to the squared distance.
GAMMA = "gamma"

#: Rounding of a share that was scaled and scaled back.
_ROUNDING = 1e-9


class KPrototypesAggregator(UpdatesAggregator):
    """The server of k-prototypes. Result beside that of distributed Lloyd: `gamma`, where there are categories."""

    params: KPrototypesParams

    steps = KPrototypesExecutor.steps

    @property
    def _scales(self) -> bool:
        """Return whether columns have weights, as those of categories have."""
        return bool(self.params.categories) or super()._scales

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Merge a round; what is known of the columns gives the weights of the categories."""
        after = super().advance(round_, replies)
        if round_.step != SCALES or not self.params.categories:
            return after
        return self._weighed(after, list(replies.values()))

    def _weighed(self, begun: Round, replies: Sequence[Message]) -> Round:
        """Return the first round with what columns are divided by: those of categories by their weight."""
        groups = [reply for reply in replies if len(reply["counts"])]
        rows = np.concatenate([reply["counts"] for reply in groups]).astype(np.float64)
        spread = pooled_spread(
            rows, *(np.concatenate([reply[name] for reply in groups]) for name in ("centroids", "m2"))
        )
        assert self.params.categories is not None
        categories = in_categories(self.params.categories, len(spread.mean))
        if self.params.scale == "none":
            mean, deviation = np.zeros_like(spread.mean), np.ones_like(spread.mean)
        else:
            mean, deviation = np.where(categories, 0.0, begun.task["mean"]), begun.task["deviation"].copy()
        gamma = self.params.gamma or huang_gamma((spread.deviation / deviation)[~categories])
        deviation[categories] = divisor(gamma)
        task = {**begun.task, "mean": mean, "deviation": deviation}
        if "centroids" in task:
            start = np.array(self.params.start)
            if start.shape[1] != len(mean):
                raise JobFailed(f"start has centers of {start.shape[1]} columns where the rows have {len(mean)}")
            task["centroids"] = (start - mean) / deviation
        return replace(begun, task=task, record={**begun.record, GAMMA: np.array(gamma)})

    def moved_to(self, means: FloatArray, record: Message) -> FloatArray:
        """Return the means of the numbers (k, d), and the modes of the categories."""
        if GAMMA not in record:
            return means
        return with_modes(means, self.params.categories or [], 1.0 / divisor(float(record[GAMMA])))

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, its modes exactly 0 and 1."""
        arrays = super().result(round_)
        for group in self.params.categories or []:
            for values in (arrays[name] for name in ("centroids", HISTORY) if name in arrays):
                whole = np.rint(values[..., group])
                near = np.abs(values[..., group] - whole) < _ROUNDING
                values[..., group] = np.where(near, whole, values[..., group])
        return arrays
