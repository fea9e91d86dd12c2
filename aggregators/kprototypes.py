"""k-prototypes, the server's side: the mean of each cluster's numbers, and the most frequent value of each category.

Source: Huang (1997), Clustering large data sets with mixed numeric and categorical values; Huang (1998), Extensions to the
k-means algorithm for clustering large data sets with categorical values, sections 3 (k-modes) and 4 (k-prototypes).

Readings and deviations:
1. gamma, unless it is given, is the mean variance of the numbers over the mean chance that two rows differ in a category
   (`core.categories.usual_gamma`), from the sums with which columns are scaled. Huang (1997, section 3.4) takes half the mean
   standard deviation of the numbers, by which categories hardly count. It is 1 where there are no numbers.
2. Of equally frequent values the one that comes first in the schema is the mode.
3. The first centers are the means of the seeds' groups, with shares in place of modes, so that no two of them are the same;
   from the first update on there are modes. Centers that the caller gives are used as they are.
4. A cluster without rows, or whose rows no site may send, keeps its center. Without categories this is distributed Lloyd.
"""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.lloyd import LloydAggregator, LloydState, updated
from flareclust.core import categories
from flareclust.executors import kprototypes
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.rounds import Round

_Round = Round[LloydState]


class KPrototypesAggregator(ClusteringAggregator):
    """The server of k-prototypes: that of distributed Lloyd, but for modes. Result beside that: `gamma`, where there are categories."""

    params: kprototypes.KPrototypesParams
    executor = kprototypes.KPrototypesExecutor
    state = LloydState

    begin = LloydAggregator.begin
    check_secure = LloydAggregator.check_secure
    merge = LloydAggregator.merge
    spread = LloydAggregator.spread
    so_far = LloydAggregator.so_far

    def update(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Move the centers to the means of their rows' numbers, and the modes of their categories."""
        gamma, groups = round_.columns.gamma, self.params.categories or []

        def centers(means: FloatArray) -> FloatArray:
            return means if gamma is None else categories.with_modes(means, groups, 1.0 / categories.divisor(gamma))

        return updated(self.params, round_, replies.values(), centers)
