"""What sites report about solutions that are to be refined: rows, means and squared deviations by cluster.

The server moves centroids to the means, as Lloyd's algorithm does, and sees from the deviations which cluster to split
and which to join (`flareclust.aggregators.refinement`). Several solutions are reported side by side.

Readings:
1. A site's group of fewer than `min_count` rows, of one row repeated, or whose mean is a row, is not reported.
2. Mean and deviations of two rows are these rows: where a group has fewer than three rows its deviations are sent as 0.
3. With secure sums a group counts that all sites together have: first the sites' numbers of rows are added up, and then
   they report the clusters that have `min_count` rows in all (three at least), however few of them are at one site. Rows
   of the other clusters go to the nearest of these, so that all rows are included and no difference is about the rest.
4. With `trim_rows` a site leaves out the rows that are farthest from all centroids of the task, so that solutions side by
   side are reported over the same rows. They get labels, and are assessed, as all others.
"""

from flareclust._foundation.typing import Message
from flareclust.evaluation.scores import unstack
from flareclust.protocol.groups import GROUPS, rounded_spread
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task

#: The step: for each centroid of `candidates` (t, d), as one of the solutions has it, the rows of its cluster here. All
#: rows are one cluster where no candidates are sent.
SPREAD = "spread"

#: Its line in the table of an algorithm, whose method `spread` calls the function here.
SPREAD_STEP = Step(GROUPS, "spread", summed=True, counted=True)


def spread(task: Task, rows: SiteRows) -> Message:
    """Describe the groups of the rows (n, d) that are nearest to each of the centroids."""
    solutions = unstack(task.arrays) if "candidates" in task.arrays else None
    return rounded_spread(rows.spread(solutions), rows.context.round_counts, rows.context.min_count)
