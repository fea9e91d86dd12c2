"""DP Lloyd, the server's side: clusters from noisy totals over the sites.

Source: Blum, Dwork, McSherry, Nissim, Practical Privacy: The SuLQ Framework (2005), section 5; the grid of the start after
Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4.

Readings and deviations:
1. The box is what all sites' bounds span together.
2. The start: k-means on the cells of a grid, once noise is taken out as far as it can be (`flareclust.core.dp.grid`). With more than
   two columns, where such cells are wider than clusters, k-means on cells along the main axes of all rows
   (`flareclust.core.dp.axes`), if these stand out of noise; else
   points drawn about the noisy mean, in proportion to the noisy deviation of each column. With many columns centroids
   are shrunk toward that mean by as much as noise alone moves them away from it.
   After a start along axes the first update is of up to three parts for each cluster, as many as stand out of noise. K-means on
   their noisy means, weighted by their noisy rows, joins them to k.
3. The radius of a cluster is half the distance from its centroid to the next one, or in many columns the rows' deviation
   from the mean; after a start along axes, from the second update on, in proportion to the rows' deviation from their
   centroids. It follows from numbers that are public already.
4. Round t goes 2 / (t + 1) of the way to the noisy mean, so that the noise of the rounds averages out.
5. A cluster with fewer rows than two standard deviations of their noise keeps its centroid in that round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.dp import axes as dp_axes
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import lloyd as dp_steps
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.rounds import remember
from flareclust.executors import dp_lloyd
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.privacy.dp import server as dp_server
from flareclust.privacy.dp import site as dp_site
from flareclust.privacy.dp.mechanism import deviation_of_total
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS as MOST


@dataclass(frozen=True, eq=False)
class DPLloydState(dp_server.NoisyState):
    """What the server knows."""

    mean: FloatArray | None = None  # noisy, of all rows (d,): centroids shrink towards it; None for a grid
    first_radius: float | None = None  # of the first update, while cells along axes are counted
    main_axes: FloatArray | None = None  # of a start from cells along them (p, d)
    total_scatter: float | None = None  # noisy, of all rows about their mean, with second moments
    history: FloatArray | None = None  # of the start and after every update (rounds + 1, k, d)


_Round = Round[DPLloydState]

#: With more columns a grid over them has cells wider than clusters.
_GRID_COLUMNS = 2

#: Centroids in a message that sites let in, unless they say otherwise.
_MOST_PARTS = 1000


class DPLloydAggregator(ClusteringAggregator):
    """The server of DP Lloyd. With secure sums, totals hold one noise of all sites."""

    params: dp_lloyd.DPLloydParams
    executor = dp_lloyd.DPLloydExecutor
    state = DPLloydState

    def begin(self) -> _Round:
        """Ask for the sites' bounds."""
        return Round(state=DPLloydState(), step=dp_lloyd.BOUNDS)

    def limits(self, round_: _Round) -> dict[str, int]:
        """Return the most entries of a reply: of a grid, its cells."""
        cells, d = round_.task.get("shape", np.ones(1)), len(round_.task.get("low", ()))
        return {"g": math.prod(int(g) for g in cells), "d": MOST, "t": d * (d + 1) // 2}

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows in all noise moves a centroid by half a radius at most."""
        noise = self.deviation(dp_sums.cluster_sensitivity(), self.update_share(d), sites) / dp_sums.UNIT
        return math.ceil(dp_sums.CLEAR * self.params.k * noise * math.sqrt(d))

    def update_share(self, d: int) -> float:
        """Return what share of the job's rho an update costs, as far as it is known before the start."""
        return (0.45 if self._has_grid(d) else 0.5) / self.params.rounds

    def _has_grid(self, d: int) -> bool:
        """Return whether the start is found with a grid over the columns."""
        few = self.params.start == "grid" or (self.params.start == "auto" and d <= _GRID_COLUMNS)
        return few and dp_grid.has_grid(self.params.k, d, self.params.cells)

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say so where noise is large beside the clusters."""
        needed = self.rows_needed(len(box_of(round_).low), round_.state.summed_sites)
        return dp_server.poor_signal(self.params, round_, needed, noises=1 if self.secure else None, shares_noise=True)

    def noise(self, round_: _Round, sensitivity: float, share: float, sent: int) -> float:
        """Return the standard deviation of the noise of the total of so many replies."""
        return self.deviation(sensitivity, share, round_.state.summed_sites if self.secure else sent)

    def deviation(self, sensitivity: float, share: float, sites: int) -> float:
        """Return the standard deviation of the noise of a total: of one noise, or of each site's own."""
        if not self.secure:
            return dp_server.noise_of(self.params, sensitivity, share, sites)
        return deviation_of_total(dp_server.noise_of(self.params, sensitivity, share, 1), sites, self.params.colluding)

    def bounds(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Span the box, and ask for what the start is found with."""
        box = Box.around([Box.of(reply) for reply in replies.values()])
        if not box.usable:
            raise JobFailed("the sites' bounds span no box; every site must state low < high for every column")
        task = box.sent()
        start, d = self.params.start, len(box.low)
        public = {"rows_needed": float(self.rows_needed(d, len(replies)))}
        asked = Round(task, diagnostics=public, state=DPLloydState(summed_sites=len(replies), box=Box.of(task)))
        gridded = self._has_grid(d)
        if start == "grid" and not gridded:
            raise JobFailed(f"{d} columns are too many for start=grid; submit with start=axes or start=auto")
        if gridded:
            shape = dp_grid.grid_shape(box, self.params.cells or dp_grid.CELLS_PER_CLUSTER * self.params.k)
            return replace(asked, task=task | {"shape": np.array(shape)})
        if start == "spread" or (start == "auto" and d > dp_axes.MOST_COLUMNS):
            return replace(asked, step=dp_lloyd.OUTLINE)
        return replace(asked, step=dp_lloyd.SECOND_MOMENTS)

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Find the start from the cells of a grid."""
        box, shape, sent = box_of(round_), tuple(int(g) for g in round_.task["shape"]), replies.values()
        usable = [reply["cells"] for reply in sent if len(reply["cells"]) == math.prod(shape)]
        if not usable:
            raise JobFailed(f"no site sent the {math.prod(shape)} cells of the grid")
        noisy, noise = np.sum(usable, axis=0).reshape(shape), self.noise(round_, 1.0, dp_site.GRID_START, len(usable))
        centroids, _ = dp_grid.grid_clusters(noisy, noise, dp_grid.cell_centers(box, shape), self.params.k, rng)
        radii = dp_steps.half_way(centroids, box)
        started = self._started(round_.state, centroids, radii, float(noisy.sum()), dp_site.GRID_START)
        return _reported(started, dp_site.GRID_START, noisy, noise)

    def outline(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Start about the mean."""
        box, sent = box_of(round_), list(replies.values())
        noisy = np.concatenate([np.atleast_1d(total) for total in totals(dp_lloyd.OUTLINE, sent)])
        noise = self.noise(round_, dp_sums.moment_sensitivity(), dp_site.MOMENTS_START, len(sent)) / dp_sums.UNIT
        found = dp_steps.moments(noisy, box, noise)
        centroids, radii = dp_steps.spread_start(found, box, self.params.k, rng)
        state = replace(round_.state, mean=found.mean)
        started = self._started(state, centroids, radii, found.rows, dp_site.MOMENTS_START)
        # Without the number of rows, which is hardly ever small beside its noise.
        return _reported(started, dp_site.MOMENTS_START, noisy[1:], noise)

    def second_moments(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Ask for cells along the main axes, or start about the mean where these do not stand out of noise."""
        box, sent = box_of(round_), list(replies.values())
        rows, values, products = totals(dp_lloyd.SECOND_MOMENTS, sent)
        noise = self.noise(round_, dp_axes.second_moment_sensitivity(), dp_site.MOMENTS_START, len(sent))
        found = dp_axes.spread_of(float(rows), values, products, noise)
        of_cells = self.noise(round_, 1.0, dp_site.AXES_START, len(sent))
        known = replace(round_.state, total_scatter=found.scatter(box))
        cells = min(self.params.cells or dp_axes.cells_for(found, of_cells, self.params.k), dp_lloyd.MOST_CELLS)
        if self.params.start == "axes" or dp_axes.is_clear(found, cells, of_cells, self.params.k):
            grid = dp_axes.grid_along(found, box, cells, self.params.k)
            radius = dp_axes.first_radius(found, box, self.params.k)
            state = replace(known, mean=grid.middle, first_radius=radius, all_rows=found.rows)
            following = Round(grid._asdict() | {"shape": np.array(grid.shape)}, state=state, step=dp_lloyd.AXES)
        else:
            outline = found.moments(box)
            centroids, radii = dp_steps.spread_start(outline, box, self.params.k, rng)
            state = replace(known, mean=outline.mean)
            following = self._started(state, centroids, radii, outline.rows, dp_site.MOMENTS_START)
        return _reported(following, dp_site.MOMENTS_START, products, noise / dp_axes.SQUARE_UNIT)

    def axes(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Find the start from cells along the main axes."""
        task, state, sent = round_.task, round_.state, replies.values()
        grid = dp_axes.Grid(task["middle"], task["axes"], task["half"], tuple(int(g) for g in task["shape"]))
        cells = math.prod(grid.shape)
        usable = [reply["cells"] for reply in sent if len(reply["cells"]) == cells]
        if not usable:
            raise JobFailed(f"no site sent the {cells} cells along the main axes")
        noise, noisy = self.noise(round_, 1.0, dp_site.AXES_START, len(usable)), np.sum(usable, axis=0)
        found, rows = dp_axes.cluster_cells(noisy, noise, grid, self._parts(state, len(grid.middle)), rng)
        centroids, k = box_of(round_).clip(found), self.params.k
        assert state.first_radius is not None
        radii, spent = np.full(len(centroids), state.first_radius), dp_site.MOMENTS_START + dp_site.AXES_START
        start = dp_axes.joined(centroids, rows, k, rng)[0] if len(centroids) > k else centroids
        state = replace(state, first_radius=None, main_axes=grid.axes, history=remember(None, start, k))
        started = self._started(state, centroids, radii, state.all_rows, spent)
        return _reported(started, dp_site.AXES_START, noisy, noise)

    def _parts(self, state: DPLloydState, d: int) -> int:
        """Return how many centroids the first update after a start along axes has: as many as stand out of noise, of clusters k at least."""
        k, needed = self.params.k, self.rows_needed(d, state.summed_sites)
        most = min(self.executor.parts * k, max(k, _MOST_PARTS))
        return int(np.clip(k * state.all_rows / max(needed, 1), k, most))

    def _started(
        self, state: DPLloydState, centroids: FloatArray, radii: FloatArray, rows: float, spent: float
    ) -> _Round:
        """Return the first update, where a share of the budget is spent; the updates share what is left."""
        share = np.array((1 - dp_site.ASSESSMENT_SHARE - spent) / self.params.rounds)
        history = remember(None, centroids, self.params.k) if state.history is None else state.history
        state = replace(state, all_rows=max(rows, 0.0), history=history)
        return Round({"centroids": centroids, "radii": radii, dp_site.SHARE: share}, state=state, step=dp_lloyd.UPDATE)

    def update(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Move the centroids."""
        before, radii, box = round_.task["centroids"], round_.task["radii"], box_of(round_)
        sent, state, share = list(replies.values()), round_.state, round_.task[dp_site.SHARE]
        total = dp_sums.ClusterSums(*totals(dp_lloyd.UPDATE, sent))
        noise = self.noise(round_, dp_sums.cluster_sensitivity(), float(share), len(sent)) / dp_sums.UNIT
        assert state.history is not None
        done = len(state.history) - 1
        centroids, rows = dp_steps.next_centroids(before, radii, total, noise, done, box, state.mean)
        moved = float(np.sqrt(((centroids - before) ** 2).sum(axis=1)).max())
        if len(centroids) > self.params.k:
            clear = rows >= min(dp_sums.CLEAR * noise * math.sqrt(before.shape[1]), np.sort(rows)[-self.params.k])
            centroids, rows = dp_axes.joined(centroids[clear], rows[clear], self.params.k, rng)
        clear = np.maximum(rows, 0) / (noise * math.sqrt(before.shape[1]))
        state = replace(
            state,
            history=remember(state.history, centroids, self.params.k),
            counts=np.rint(np.maximum(rows, 0)).astype(np.int64),
            all_rows=max(float(rows.sum()), 0.0),
            signal_to_noise=clear,
        )
        diagnostics = {
            "noise": noise,
            "moved": moved,
            dp_server.BUDGET_SHARE: float(share),
            cluster_arrays.SIGNAL: float(np.median(clear)),
        }
        if done + 1 >= self.params.rounds:
            reach = dp_server.reach_of(radii, box)
            return Round({"centroids": centroids, cluster_arrays.REACH: reach}, True, diagnostics, state)
        if state.mean is None:
            radii = dp_steps.half_way(centroids, box)
        elif state.main_axes is not None:
            radii = dp_axes.settled_radii(radii, total, noise, box)
        task = {"centroids": centroids, "radii": radii[: len(centroids)], dp_site.SHARE: share}
        return Round(task, False, diagnostics, state, dp_lloyd.UPDATE)


def totals(step: str, sent: Sequence[Message]) -> list[FloatArray]:
    """Return the sums over all sites of each array of a step's replies, in the order of its schema."""
    fields = dp_lloyd.DPLloydExecutor.steps[step].schema.fields
    return [np.sum([reply[name] for reply in sent], axis=0) for name in fields]


def _reported(round_: _Round, share: float, noisy: FloatArray, noise: float) -> _Round:
    """Return a round whose diagnostics are those of an exchange of the start, which cost a share of the job's rho."""
    return replace(
        round_,
        diagnostics={dp_server.BUDGET_SHARE: share, cluster_arrays.SIGNAL: dp_sums.signal_to_noise(noisy, noise)},
    )


def box_of(round_: _Round) -> Box:
    """Return what all sites' bounds span together."""
    assert round_.state.box is not None
    return round_.state.box
