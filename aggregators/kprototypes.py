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

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.lloyd import UpdatesAggregator
from flareclust.core import categories as category_columns
from flareclust.core.rounds import HISTORY
from flareclust.executors import kprototypes
from flareclust.protocol.rounds import Round

#: Key of what a category that differs adds to the squared distance.
_GAMMA = "gamma"

#: Rounding of a share that was scaled and scaled back.
_ROUNDING = 1e-9


class KPrototypesAggregator(UpdatesAggregator):
    """The server of k-prototypes. Result beside that of distributed Lloyd: `gamma`, where there are categories."""

    params: kprototypes.KPrototypesParams

    steps = kprototypes.KPrototypesExecutor.job_steps()

    @property
    def _prepares(self) -> bool:
        """Return whether columns have weights, as those of categories have."""
        return bool(self.params.categories) or super()._prepares

    def with_categories(
        self, carried: Message, record: Message, mean: FloatArray, deviation: FloatArray
    ) -> tuple[Message, Message]:
        """Return what tasks carry, with the columns of categories divided by their weight, and gamma with what is kept."""
        if not self.params.categories:
            return carried, record
        categories = category_columns.in_categories(self.category_groups(len(mean)), len(mean))
        location = np.where(categories, 0.0, carried.get("mean", np.zeros_like(mean)))
        divisors = carried.get("deviation", np.ones_like(mean)).copy()
        gamma = self.params.gamma or category_columns.huang_gamma((deviation / divisors)[~categories])
        divisors[categories] = category_columns.divisor(gamma)
        return {**carried, "mean": location, "deviation": divisors}, {**record, _GAMMA: np.array(gamma)}

    def moved_to(self, means: FloatArray, record: Message) -> FloatArray:
        """Return the means of the numbers (k, d), and the modes of the categories."""
        if _GAMMA not in record:
            return means
        return category_columns.with_modes(
            means, self.params.categories or [], 1.0 / category_columns.divisor(float(record[_GAMMA]))
        )

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, its modes exactly 0 and 1."""
        arrays = super().result(round_)
        for group in self.params.categories or []:
            for values in (arrays[name] for name in ("centroids", HISTORY) if name in arrays):
                whole = np.rint(values[..., group])
                near = np.abs(values[..., group] - whole) < _ROUNDING
                values[..., group] = np.where(near, whole, values[..., group])
        return arrays
