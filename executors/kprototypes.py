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

from flareclust.executors import lloyd
from flareclust.federation import refinement
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ModesParams
from flareclust.protocol.params import both


class KPrototypesParams(ModesParams, lloyd.UpdatesParams):
    """Parameters of k-prototypes."""

    min_count: int = both(
        2, "Clusters with fewer rows are not sent; those of identical rows only where all columns are categories.", ge=1
    )


class KPrototypesExecutor(ClusteringExecutor):
    """A site of k-prototypes: what one of distributed Lloyd sends, of rows in units of Huang's distance."""

    params: KPrototypesParams
    steps = lloyd.STEPS
    local = lloyd.LloydExecutor.local
    update = staticmethod(refinement.update)
    spread = staticmethod(refinement.spread)
