"""Portfolio, the site's side: one description of the local clusters that several ways of merging can use.

No paper: the members are FeCA (Xu et al. 2024), the server of k-FED (Dennis et al. 2021), k-means on the pooled
centroids with and without weights (the latter is the second version of Stallmann and Wilbik 2022 for k-means).

1. The upload is that of the local k-means: centroids, rows, sums of squares and, where `feca` competes, the distance of
   the farthest row of every cluster that may be described to others, else 0. What FeCA does at its sites after k-means follows from these numbers,
   so that the server can do it.
2. Where the rows of a cluster differ in one column only, centroid, sum of squares and largest distance could be solved
   for single rows; the last two are raised to the next number of two digits there.
3. A site with fewer than `min_count` rows for each of k clusters looks for fewer. With secure sums its small clusters join
   others, since totals over all rows follow, and clusters leave only where what remains is enough to be a cluster.
4. When a solution is refined, sites report its clusters as executors/refinement.py says; a site without a group that may
   be reported sends an empty reply, and stays.
"""

from typing import Any

import numpy as np
from pydantic import field_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Message
from flareclust._foundation.validation import check_choice
from flareclust.core.disclosure import varies_in_one_feature
from flareclust.core.lloyd import member_statistics
from flareclust.core.local import Sendable, without_remainder
from flareclust.evaluation.scores import score
from flareclust.executors.feca import coarse
from flareclust.federation import refinement
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import MISSING_CELLS, LocalKMeansParams, MetricParams, Missing, TrimParams
from flareclust.protocol.params import MOST_ROUNDS, MOST_STARTS, both, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The merges that compete.
MEMBER_NAMES = ("feca", "kfed", "pooled", "unweighted", "sampled")

#: Those that compete unless others are asked for. FeCA's merge was never the best of them where we measured it.
DEFAULT_MEMBERS = ("kfed", "pooled", "unweighted", "sampled")


class PortfolioParams(TrimParams, LocalKMeansParams, MetricParams):
    """Parameters of the portfolio."""

    missing: Missing = MISSING_CELLS

    n_init: int = site(10, "Starts of the local k-means; the best one counts.", ge=1, le=MOST_STARTS)
    members: list[str] | None = both(
        None, "The merges that compete, of feca, kfed, pooled, unweighted and sampled; None for all but feca."
    )
    restarts: int = server(20, "Starts of k-means in pooled, unweighted and sampled.", ge=1, le=MOST_STARTS)
    polish: int = server(
        3,
        "Lloyd updates after the choice; 0 for none, and no attempts to split and merge, either.",
        ge=0,
        le=MOST_ROUNDS,
    )
    split_merge: int = server(
        6,
        "Attempts at most to leave a local optimum after these, by splitting one cluster and joining two.",
        ge=0,
        le=MOST_ROUNDS,
    )

    @property
    def competing(self) -> list[str]:
        """Return the names of the merges that compete."""
        return self.members or list(DEFAULT_MEMBERS)

    @field_validator("members", mode="before")
    @classmethod
    def _members(cls, value: Any) -> Any:
        return None if value is None else _check_members(value)


class PortfolioExecutor(ClusteringExecutor):
    """A site that describes the clusters of its own k-means, and then scores each proposed solution."""

    params: PortfolioParams
    steps = {
        StepName.CLUSTER: Step(
            Schema(centroids="k d", counts=counts("k"), radii=real("k", minimum=0), sse=real("k", minimum=0))
        ),
        StepName.SCORE: Step(Schema(rows=counts(""), sse=real("c", minimum=0)), "score", summed=True),
        **refinement.STEPS,
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Describe the local clusters."""
        rows = rows.settled(self.params.k, self.params.n_init)
        data, clusters = rows.X, self._clusters(rows, self.params.k)
        if rows.context.secure:
            # Totals over all rows come later; less these clusters they are those of the rows that are in none.
            clusters = without_remainder(data, clusters, rows.context.min_count)
            if not len(clusters.counts):
                clusters = self._clusters(rows, 1)
        statistics = member_statistics(data, clusters.labels, clusters.centroids)
        # A largest distance is of one row: sent only where a member needs it.
        reach = statistics.max_distance if "feca" in self.params.competing else np.zeros(len(clusters.counts))
        revealing = varies_in_one_feature(data, clusters.labels, len(clusters.counts))
        return {
            "centroids": clusters.centroids,
            "counts": clusters.counts,
            "radii": np.where(revealing, coarse(reach), reach),
            "sse": np.where(revealing, coarse(statistics.sse), statistics.sse),
        }

    def score(self, task: Task, rows: SiteRows) -> Message:
        """Return how well each of several solutions fits the rows."""
        return score(task, rows, self.steps[task.step].schema.fields)

    update = staticmethod(refinement.update)
    spread = staticmethod(refinement.spread)

    def _clusters(self, rows: SiteRows, k: int) -> Sendable:
        """Return at most k clusters that may be sent, of those of the rows that are not trimmed (n, d)."""
        return rows.clusters(
            k,
            n_init=self.params.n_init,
            local_kmeans=self.params.local_kmeans,
            small_clusters="dissolve" if rows.context.secure else "withhold",
        )


def _check_members(members: object) -> list[str]:
    """Return the names of the members, from a list or a text with commas.

    Raises:
        UserError: they are not known, or not different.
    """
    if isinstance(members, str):
        members = [name.strip() for name in members.split(",")]
    if not isinstance(members, list | tuple) or not members:
        raise UserError(f"members must be a list of different names of {', '.join(MEMBER_NAMES)}; got {members!r}")
    names = [check_choice("members", member, MEMBER_NAMES) for member in members]
    if len(set(names)) < len(names):
        raise UserError(f"members must be a list of different names, got {', '.join(names)}")
    return names
