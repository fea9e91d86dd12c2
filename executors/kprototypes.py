"""k-prototypes, the site's side: per round the number of rows of each cluster, the means of its numbers, the shares of its values.

Source: Huang (1997), Clustering large data sets with mixed numeric and categorical values; Huang (1998), Extensions to the
k-means algorithm for clustering large data sets with categorical values, sections 3 (k-modes) and 4 (k-prototypes).

Readings and deviations:
1. A category is a group of columns of 0 and 1, one for each value. Their means, times the number of rows, are the counts of
   the values, so a reply has the form of distributed Lloyd's. The distance is Huang's (`flareclust.core.categories`); its
   weights come with the task, as those of scaled columns do.
2. Centers are moved after all rows have been assigned, as sites can be asked in rounds only. Huang moves a center with
   each row that changes its cluster.
3. A row without a 1 in a group lacks this category: it is equally far from all modes there.
4. Seeds, clusters that are not sent, inertia and secure sums as in `executors/lloyd.py`. Where all columns are categories
   (k-modes), a cluster of one row repeated is sent if it has `min_count` rows, and three at least: it says how many rows
   have these values, as a cell of a table of counts does.
5. At a site with a policy rows are means of groups, and their values shares; they are as far from a mode as the rows of
   the group are on average, but for a constant.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core import categories as category_columns
from flareclust.data.tables import Table
from flareclust.executors.lloyd import UpdatesExecutor, UpdatesParams
from flareclust.executors.phases import ColumnNames, Phase
from flareclust.executors.profiles import ClusterProfiles
from flareclust.executors.scaled import ColumnSpreads
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.protocol.params import both, server
from flareclust.protocol.task import Task

#: Key of what 1 is in the columns that the algorithm sees (d,); it stays at the site.
_ONES = "ones"


class KPrototypesParams(UpdatesParams):
    """Parameters of k-prototypes."""

    min_count: int = both(
        2, "Clusters with fewer rows are not sent; those of identical rows only where all columns are categories.", ge=1
    )
    categories: list[list[int]] | None = both(
        None, "The columns of each category, counted from 0; None for those of the schema, or none without one."
    )
    gamma: float | None = server(
        None,
        "What a category that differs adds to the squared distance; None for half the average standard deviation of the numeric columns.",
        gt=0,
        le=1e12,
    )


class _CategorySpreads(ColumnSpreads):
    """The same, after a check of the columns of categories."""

    site: "KPrototypesExecutor"

    def scales(self, task: Task, rows: SiteRows) -> Message:
        """Check that categories are columns of 0 and 1, and return location and spread of all columns."""
        self._check_categories(rows.X, rows.context)
        return super().scales(task, rows)

    def known_scales(self, task: Task, rows: SiteRows) -> Message:
        """Check that categories are columns of 0 and 1, and return location and spread of the known cells."""
        self._check_categories(rows.X, rows.context)
        return super().known_scales(task, rows)

    def _check_categories(self, data: FloatArray, context: SiteContext) -> None:
        groups, d = self.site.params.categories or [], data.shape[1]
        if any(column >= d for group in groups for column in group):
            raise Refusal(f"has rows of {d} columns where the categories of the job have more")
        if not context.grouped and not category_columns.are_one_hot(np.nan_to_num(data), groups):
            raise Refusal(
                "has rows with something else than one 1 in the columns of a category, which must be of 0 and 1"
            )


class KPrototypesExecutor(UpdatesExecutor):
    """A site of k-prototypes."""

    params: KPrototypesParams

    phases: ClassVar[tuple[type[Phase], ...]] = (ClusterProfiles, ColumnNames, _CategorySpreads)

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return the rows in units of the distance, and in the task what 1 is in these."""
        seen, rows = super().viewed(task, table)
        columns = [column for group in self.params.categories or () for column in group]
        ones = np.ones(table.X.shape[1])
        if "deviation" in task.arrays:
            if task.arrays["mean"][columns].any():
                raise BadMessage("mean: expected 0 for the columns of categories, whose values are 0 and 1")
            ones = 1.0 / task.arrays["deviation"]
        return replace(seen, arrays={**seen.arrays, _ONES: ones}), rows

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Draw seeds."""
        return super().local(task, self._own(task, rows))

    def update(self, task: Task, rows: SiteRows) -> Message:
        """Compute the site's part of one update."""
        return super().update(task, self._own(task, rows))

    def spread(self, task: Task, rows: SiteRows) -> Message:
        """Describe the groups of rows from whose totals a start is made."""
        return super().spread(task, self._own(task, rows))

    def _own(self, task: Task, rows: SiteRows) -> SiteRows:
        """Return the rows of a site whose columns may all be categories."""
        ones = task.arrays.get(_ONES, np.ones(rows.X.shape[1]))
        columns = {column for group in self.params.categories or () for column in group}
        # Whatever a job says of its columns: a repeated row is sent only where all rows are of 0 and 1.
        one_hot = columns == set(range(len(ones))) and (
            rows.context.grouped
            or category_columns.are_one_hot(np.where(ones == rows.X, 1.0, rows.X), self.params.categories or ())
        )
        return replace(rows, context=replace(rows.context, ones=ones)) if one_hot else rows
