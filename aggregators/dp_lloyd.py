"""DP Lloyd, the server's side: clusters from noisy totals over the sites.

Source: Blum, Dwork, McSherry, Nissim, Practical Privacy: The SuLQ Framework (2005), section 5; the grid of the start after
Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4.

Readings and deviations:
1. The box is what all sites' bounds span together.
2. The start: k-means on the cells of a grid, once noise is taken out as far as it can be (`core.dp_grid`). With too many
   columns for a grid, points drawn about the noisy mean, in proportion to the noisy deviation of each column; then centroids
   are shrunk toward that mean by as much as noise alone moves them away from it.
3. The radius of a cluster is half the distance from its centroid to the next one, or in many columns the rows' deviation
   from the mean. It follows from numbers that are public already.
4. Round t goes 2 / (t + 1) of the way to the noisy mean, so that the noise of the rounds averages out.
5. A cluster with fewer rows than two standard deviations of their noise keeps its centroid in that round.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import Round
from flareclust.aggregators.dp_base import ALL_ROWS, PrivateAggregator, reach_of
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.dp.grid import CELLS_PER_CLUSTER, cell_centers, grid_clusters, grid_shape, has_grid
from flareclust.core.dp.lloyd import half_way, moments, next_centroids, spread_start
from flareclust.core.dp.sums import UNIT, ClusterSums
from flareclust.core.rounds import remember
from flareclust.executors.dp_base import GRID_START, REACH, update_share
from flareclust.executors.dp_lloyd import BOUNDS, OUTLINE, UPDATE, DPLloydExecutor, DPLloydParams
from flareclust.protocol.schema import MOST_COLUMNS
from flareclust.protocol.task import CLUSTER


class DPLloydAggregator(PrivateAggregator):
    """The server of DP Lloyd.

    Kept on the server: `history` (rounds + 1, k, d), the centroids of the start and after every update; `counts` (k,), the
    noisy numbers of rows of the last one.
    """

    params: DPLloydParams

    steps = DPLloydExecutor.steps

    def begin(self) -> Round:
        """Ask for the sites' bounds."""
        return Round(step=BOUNDS)

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries of a reply: of a grid, its cells."""
        cells = round_.task.get("shape", np.ones(1))
        return {"g": math.prod(int(g) for g in cells), "d": MOST_COLUMNS}

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Span the box, find a start, or move the centroids."""
        sent = list(replies.values())
        if round_.step == BOUNDS:
            return self._boxed(sent)
        if round_.step == CLUSTER:
            return self._from_cells(round_, sent, rng)
        if round_.step == OUTLINE:
            return self._from_outline(round_, sent, rng)
        return self._moved(round_, sent)

    def _boxed(self, sent: Sequence[Message]) -> Round:
        box = Box.around([Box.of(reply) for reply in sent])
        if not box.usable:
            raise JobFailed("the sites' bounds span no box; every site must state low < high for every column")
        task = box.sent()
        if has_grid(self.k, len(box.low), self.params.cells):
            shape = grid_shape(box, self.params.cells or CELLS_PER_CLUSTER * self.k)
            return Round(task | {"shape": np.array(shape)}, record=task, step=CLUSTER)
        return Round(task, record=task, step=OUTLINE)

    def _from_cells(self, round_: Round, sent: Sequence[Message], rng: np.random.Generator) -> Round:
        box, shape = _box(round_), tuple(int(g) for g in round_.task["shape"])
        usable = [reply["cells"] for reply in sent if len(reply["cells"]) == math.prod(shape)]
        if not usable:
            raise JobFailed(f"no site sent the {math.prod(shape)} cells of the grid")
        noisy = np.sum(usable, axis=0).reshape(shape)
        noise = self.noise(1.0, GRID_START, len(usable))
        centroids, _ = grid_clusters(noisy, noise, cell_centers(box, shape), self.k, rng)
        return self._started(round_, centroids, half_way(centroids, box), float(noisy.sum()), {})

    def _from_outline(self, round_: Round, sent: Sequence[Message], rng: np.random.Generator) -> Round:
        box = _box(round_)
        totals = [np.sum([reply[name] for reply in sent], axis=0) for name in self.schema(OUTLINE).fields]
        found = moments(np.concatenate([np.atleast_1d(total) for total in totals]), box)
        centroids, radii = spread_start(found, box, self.k, rng)
        return self._started(round_, centroids, radii, found.rows, {"mean": found.mean})

    def _started(self, round_: Round, centroids: FloatArray, radii: FloatArray, rows: float, kept: Message) -> Round:
        record = remember({**round_.record, **kept, ALL_ROWS: np.array(max(rows, 0.0))}, centroids, self.k)
        return Round({"centroids": centroids, "radii": radii}, record=record, step=UPDATE)

    def _moved(self, round_: Round, sent: Sequence[Message]) -> Round:
        before, radii, box = round_.task["centroids"], round_.task["radii"], _box(round_)
        total = ClusterSums(*(np.sum([reply[name] for reply in sent], axis=0) for name in ClusterSums._fields))
        share = update_share(self.k, before.shape[1], self.params.cells, self.params.rounds)
        noise = self.noise(dp_sums.cluster_sensitivity(), share, len(sent)) / UNIT
        done = len(round_.record["history"]) - 1
        mean = round_.record.get("mean")
        centroids, rows = next_centroids(before, radii, total, noise, done, box, mean)
        record = remember(round_.record, centroids, self.k)
        record |= {
            "counts": np.rint(np.maximum(rows, 0)).astype(np.int64),
            ALL_ROWS: np.array(max(float(rows.sum()), 0.0)),
        }
        diagnostics = {"noise": noise, "moved": float(np.sqrt(((centroids - before) ** 2).sum(axis=1)).max())}
        if done + 1 >= self.params.rounds:
            reach = reach_of(radii, box)
            return Round({"centroids": centroids, REACH: reach}, True, diagnostics, record)
        if mean is None:
            radii = half_way(centroids, box)
        return Round({"centroids": centroids, "radii": radii}, False, diagnostics, record, UPDATE)


def _box(round_: Round) -> Box:
    return Box.of(round_.record)
