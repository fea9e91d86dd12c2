"""DP Lloyd, the server's side: clusters from noisy totals over the sites.

Source: Blum, Dwork, McSherry, Nissim, Practical Privacy: The SuLQ Framework (2005), section 5; the grid of the start after
Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4.

Readings and deviations:
1. The box is what all sites' bounds span together.
2. The start: k-means on the cells of a grid, once noise is taken out as far as it can be (`flareclust.core.dp.grid`). With too many
   columns for a grid, k-means on cells along the main axes of all rows (`flareclust.core.dp.axes`), if these stand out of noise; else
   points drawn about the noisy mean, in proportion to the noisy deviation of each column. With many columns centroids
   are shrunk toward that mean by as much as noise alone moves them away from it.
3. The radius of a cluster is half the distance from its centroid to the next one, or in many columns the rows' deviation
   from the mean; after a start along axes, from the second update on, in proportion to the rows' deviation from their
   centroids. It follows from numbers that are public already.
4. Round t goes 2 / (t + 1) of the way to the noisy mean, so that the noise of the rounds averages out.
5. A cluster with fewer rows than two standard deviations of their noise keeps its centroid in that round.
"""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.dp_base import ALL_ROWS, BUDGET_SHARE, SITES, PrivateAggregator, reach_of
from flareclust.core.dp import axes as dp_axes
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import lloyd as dp_steps
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.rounds import remember
from flareclust.executors import dp_lloyd
from flareclust.privacy.dp import site as dp_site
from flareclust.privacy.dp.mechanism import deviation_of_total
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS as MOST
from flareclust.protocol.task import StepName


class DPLloydAggregator(PrivateAggregator):
    """The server of DP Lloyd.

    Kept on the server: `history` (rounds + 1, k, d), the centroids of the start and after every update; `counts` (k,), the
    noisy numbers of rows of the last one.
    """

    params: dp_lloyd.DPLloydParams

    steps = dp_lloyd.DPLloydExecutor.job_steps()

    shares_noise = True

    #: Whether sums arrive as totals over all sites, with secure sums.
    _of_totals = False

    def begin(self) -> Round:
        """Ask for the sites' bounds."""
        return Round(step=dp_lloyd.BOUNDS)

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries of a reply: of a grid, its cells."""
        cells, d = round_.task.get("shape", np.ones(1)), len(round_.task.get("low", ()))
        return {"g": math.prod(int(g) for g in cells), "d": MOST, "t": d * (d + 1) // 2}

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Span the box, find a start, or move the centroids."""
        sent = list(replies.values())
        if round_.step == dp_lloyd.BOUNDS:
            return self._boxed(sent)
        if round_.step == StepName.CLUSTER:
            return self._from_cells(round_, sent, rng)
        if round_.step == dp_lloyd.SECOND_MOMENTS:
            return self._from_second_moments(round_, sent, rng)
        if round_.step == dp_lloyd.AXES:
            return self._from_axes(round_, sent, rng)
        if round_.step == dp_lloyd.OUTLINE:
            return self._from_outline(round_, sent, rng)
        return self._moved(round_, sent)

    def secured(self) -> Self:
        """Return this aggregator as it works with totals, which hold one noise of all sites."""
        secured = copy(self)
        secured._of_totals = True
        return secured

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows in all noise moves a centroid by half a radius at most, from public numbers only.

        Args:
            d: number of columns.
            sites: how many take part.
        """
        share = (0.45 if dp_grid.has_grid(self.params.k, d, self.params.cells) else 0.5) / self.params.rounds
        noise = self._deviation(dp_sums.cluster_sensitivity(), share, sites) / dp_sums.UNIT
        return math.ceil(dp_sums.CLEAR * self.params.k * noise * math.sqrt(d))

    def _noises(self, sites: int) -> int:
        return 1 if self._of_totals else sites

    def _noise(self, round_: Round, sensitivity: float, share: float, sent: int) -> float:
        """Return the standard deviation of the noise of the total of so many replies."""
        return self._deviation(sensitivity, share, int(round_.record[SITES]) if self._of_totals else sent)

    def _deviation(self, sensitivity: float, share: float, sites: int) -> float:
        """Return the standard deviation of the noise of a total: of one noise, or of each site's own."""
        if not self._of_totals:
            return self.noise(sensitivity, share, sites)
        return deviation_of_total(self.noise(sensitivity, share, 1), sites, self.params.colluding)

    def _boxed(self, sent: Sequence[Message]) -> Round:
        box = Box.around([Box.of(reply) for reply in sent])
        if not box.usable:
            raise JobFailed("the sites' bounds span no box; every site must state low < high for every column")
        task = box.sent()
        record = task | {SITES: np.array(len(sent))}
        start, d = self.params.start, len(box.low)
        public = {"rows_needed": float(self.rows_needed(d, len(sent)))}
        if start == "grid" or (start == "auto" and dp_grid.has_grid(self.params.k, d, self.params.cells)):
            if not dp_grid.has_grid(self.params.k, d, self.params.cells):
                raise JobFailed(f"{d} columns are too many for start=grid; submit with start=axes or start=auto")
            shape = dp_grid.grid_shape(box, self.params.cells or dp_grid.CELLS_PER_CLUSTER * self.params.k)
            return Round(task | {"shape": np.array(shape)}, diagnostics=public, record=record, step=StepName.CLUSTER)
        if start == "spread" or (start == "auto" and d > dp_axes.MOST_COLUMNS):
            return Round(task, diagnostics=public, record=record, step=dp_lloyd.OUTLINE)
        return Round(task, diagnostics=public, record=record, step=dp_lloyd.SECOND_MOMENTS)

    def _from_cells(self, round_: Round, sent: Sequence[Message], rng: np.random.Generator) -> Round:
        box, shape = _box(round_), tuple(int(g) for g in round_.task["shape"])
        usable = [reply["cells"] for reply in sent if len(reply["cells"]) == math.prod(shape)]
        if not usable:
            raise JobFailed(f"no site sent the {math.prod(shape)} cells of the grid")
        noisy = np.sum(usable, axis=0).reshape(shape)
        noise = self._noise(round_, 1.0, dp_site.GRID_START, len(usable))
        centroids, _ = dp_grid.grid_clusters(noisy, noise, dp_grid.cell_centers(box, shape), self.params.k, rng)
        started = self._started(
            round_, centroids, dp_steps.half_way(centroids, box), float(noisy.sum()), {}, dp_site.GRID_START
        )
        return _reported(started, dp_site.GRID_START, noisy, noise)

    def _from_outline(self, round_: Round, sent: Sequence[Message], rng: np.random.Generator) -> Round:
        box = _box(round_)
        totals = np.concatenate([np.atleast_1d(total) for total in self._totals(dp_lloyd.OUTLINE, sent)])
        noise = self._noise(round_, dp_sums.moment_sensitivity(), dp_site.MOMENTS_START, len(sent)) / dp_sums.UNIT
        found = dp_steps.moments(totals, box, noise)
        centroids, radii = dp_steps.spread_start(found, box, self.params.k, rng)
        started = self._started(round_, centroids, radii, found.rows, {"mean": found.mean}, dp_site.MOMENTS_START)
        # Without the number of rows, which is hardly ever small beside its noise.
        return _reported(started, dp_site.MOMENTS_START, totals[1:], noise)

    def _from_second_moments(self, round_: Round, sent: Sequence[Message], rng: np.random.Generator) -> Round:
        """Ask for cells along the main axes, or start about the mean where these do not stand out of noise."""
        box = _box(round_)
        rows, values, products = self._totals(dp_lloyd.SECOND_MOMENTS, sent)
        noise = self._noise(round_, dp_axes.second_moment_sensitivity(), dp_site.MOMENTS_START, len(sent))
        found = dp_axes.spread_of(float(rows), values, products, noise)
        of_cells = self._noise(round_, 1.0, dp_site.AXES_START, len(sent))
        cells = min(self.params.cells or dp_axes.cells_for(found, of_cells, self.params.k), dp_lloyd.MOST_CELLS)
        if self.params.start == "axes" or dp_axes.is_clear(found, cells, of_cells, self.params.k):
            grid = dp_axes.grid_along(found, box, cells, self.params.k)
            kept = {
                "mean": grid.middle,
                "first_radii": dp_axes.first_radii(found, box, self.params.k),
                ALL_ROWS: np.array(found.rows),
            }
            task = grid._asdict() | {"shape": np.array(grid.shape)}
            following = Round(task, record={**round_.record, **kept}, step=dp_lloyd.AXES)
        else:
            outline = found.moments(box)
            centroids, radii = dp_steps.spread_start(outline, box, self.params.k, rng)
            following = self._started(
                round_, centroids, radii, outline.rows, {"mean": outline.mean}, dp_site.MOMENTS_START
            )
        return _reported(following, dp_site.MOMENTS_START, products, noise / dp_axes.SQUARE_UNIT)

    def _from_axes(self, round_: Round, sent: Sequence[Message], rng: np.random.Generator) -> Round:
        task, record = round_.task, dict(round_.record)
        grid = dp_axes.Grid(task["middle"], task["axes"], task["half"], tuple(int(g) for g in task["shape"]))
        cells = math.prod(grid.shape)
        usable = [reply["cells"] for reply in sent if len(reply["cells"]) == cells]
        if not usable:
            raise JobFailed(f"no site sent the {cells} cells along the main axes")
        noise = self._noise(round_, 1.0, dp_site.AXES_START, len(usable))
        noisy = np.sum(usable, axis=0)
        centroids = _box(round_).clip(dp_axes.cluster_cells(noisy, noise, grid, self.params.k, rng))
        radii = record.pop("first_radii")[: len(centroids)]
        kept = {"main_axes": grid.axes}
        rows = float(record[ALL_ROWS])
        spent = dp_site.MOMENTS_START + dp_site.AXES_START
        started = self._started(replace(round_, record=record), centroids, radii, rows, kept, spent)
        return _reported(started, dp_site.AXES_START, noisy, noise)

    def _totals(self, step: str, sent: Sequence[Message]) -> list[FloatArray]:
        return [np.sum([reply[name] for reply in sent], axis=0) for name in self.schema(step).fields]

    def _started(
        self, round_: Round, centroids: FloatArray, radii: FloatArray, rows: float, kept: Message, spent: float
    ) -> Round:
        """Return the first update, where a share of the budget is spent; the updates share what is left."""
        share = np.array((1 - dp_site.ASSESSMENT_SHARE - spent) / self.params.rounds)
        record = remember({**round_.record, **kept, ALL_ROWS: np.array(max(rows, 0.0))}, centroids, self.params.k)
        return Round(
            {"centroids": centroids, "radii": radii, dp_site.SHARE: share}, record=record, step=dp_lloyd.UPDATE
        )

    def _moved(self, round_: Round, sent: Sequence[Message]) -> Round:
        before, radii, box = round_.task["centroids"], round_.task["radii"], _box(round_)
        total = dp_sums.ClusterSums(
            *(np.sum([reply[name] for reply in sent], axis=0) for name in dp_sums.ClusterSums._fields)
        )
        share = round_.task[dp_site.SHARE]
        noise = self._noise(round_, dp_sums.cluster_sensitivity(), float(share), len(sent)) / dp_sums.UNIT
        done = len(round_.record["history"]) - 1
        mean = round_.record.get("mean")
        centroids, rows = dp_steps.next_centroids(before, radii, total, noise, done, box, mean)
        record = remember(round_.record, centroids, self.params.k)
        record |= {
            "counts": np.rint(np.maximum(rows, 0)).astype(np.int64),
            ALL_ROWS: np.array(max(float(rows.sum()), 0.0)),
        }
        clear = np.maximum(rows, 0) / (noise * math.sqrt(before.shape[1]))
        record[cluster_arrays.SIGNAL] = clear
        moved = float(np.sqrt(((centroids - before) ** 2).sum(axis=1)).max())
        diagnostics = {
            "noise": noise,
            "moved": moved,
            BUDGET_SHARE: float(share),
            cluster_arrays.SIGNAL: float(np.median(clear)),
        }
        if done + 1 >= self.params.rounds:
            reach = reach_of(radii, box)
            return Round({"centroids": centroids, cluster_arrays.REACH: reach}, True, diagnostics, record)
        if mean is None:
            radii = dp_steps.half_way(centroids, box)
        elif "main_axes" in record:
            radii = dp_axes.settled_radii(radii, total, noise, box)
        return Round(
            {"centroids": centroids, "radii": radii, dp_site.SHARE: share}, False, diagnostics, record, dp_lloyd.UPDATE
        )


def _reported(round_: Round, share: float, noisy: FloatArray, noise: float) -> Round:
    """Return a round whose diagnostics are those of an exchange of the start, which cost a share of the job's rho."""
    return replace(
        round_, diagnostics={BUDGET_SHARE: share, cluster_arrays.SIGNAL: dp_sums.signal_to_noise(noisy, noise)}
    )


def _box(round_: Round) -> Box:
    return Box.of(round_.record)
