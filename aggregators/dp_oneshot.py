"""DP one-shot, the server's side: weighted k-means on what all sites sent.

Source: Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4 (EUGkM).

Readings and deviations:
1. Grids over the same bounds are added up before noise is taken out, which then is smaller in proportion. So sites should
   agree on bounds. Grids over different bounds are cleaned on their own, and their cells clustered together.
2. The cells' numbers are not used as they are: see `flareclust.core.dp.grid`.
3. Centroids of sites (many columns) count with their noisy numbers of rows; those of not more rows than noise do not count,
   unless there are no others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import clusterers
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import lloyd as dp_steps
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.lloyd import sums_by_label
from flareclust.executors import dp_lloyd, dp_oneshot
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.privacy.dp import server as dp_server
from flareclust.privacy.dp import site as dp_site
from flareclust.protocol import cluster_arrays
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS


@dataclass(frozen=True, eq=False)
class _DPOneShotState(dp_server.NoisyState):
    """What the server knows; where sites sent centroids (c, d) also these."""

    received_centroids: FloatArray | None = None  # of the sites (c, d)
    received_rows: FloatArray | None = None  # their noisy numbers of rows (c,)
    received_radii: FloatArray | None = None  # root mean square distances of their rows (c,)
    received_site: IntArray | None = None  # whose they are (c,)
    received_signal_to_noise: FloatArray | None = None  # of each (c,)


_Round = Round[_DPOneShotState]


class DPOneShotAggregator(ClusteringAggregator):
    """The server of DP one-shot clustering."""

    params: dp_oneshot.DPOneShotParams
    executor = dp_oneshot.DPOneShotExecutor
    state = _DPOneShotState

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows in all noise moves a centroid by half a radius at most."""
        if dp_grid.has_grid(self.params.k, d, self.params.cells):
            cells = self.params.cells or dp_grid.CELLS_PER_CLUSTER * self.params.k
            noise = dp_server.noise_of(self.params, 1.0, dp_oneshot.GRID_SHARE, sites)
            return math.ceil(dp_sums.CLEAR * self.params.k * noise * math.sqrt(cells / self.params.k))
        return math.ceil(dp_sums.CLEAR * self.params.k * self._noise_of_site(d) * math.sqrt(d)) * sites

    def limits(self, round_: _Round) -> dict[str, int]:
        """Return the most entries of a reply."""
        return {"k": self.params.k, "g": dp_lloyd.MOST_CELLS, "d": MOST_COLUMNS}

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say so where noise is large beside the clusters."""
        state = round_.state
        needed = 0 if state.box is None else self.rows_needed(len(state.box.low), state.summed_sites)
        return dp_server.poor_signal(self.params, round_, needed)

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Add up grids, or gather centroids, and cluster them."""
        sent = list(replies.values())
        boxes = [Box.of(reply) for reply in sent]
        gridded = dp_grid.has_grid(self.params.k, len(boxes[0].low), self.params.cells)
        points, weights, noise, state = self._from_grids(boxes, sent) if gridded else self._from_centroids(sent)
        if not len(points):
            raise JobFailed("no site sent what this job asks for; all must have the same settings")
        centroids, labels = clusterers.weighted_kmeans(points, weights, self.params.k, self.params.restarts, rng)
        rows = sums_by_label(labels, weights, len(centroids))
        box, radii = Box.around(boxes), state.received_radii
        reach = dp_server.reach_of(dp_steps.half_way(centroids, box) if radii is None else radii, box)
        state = replace(
            state,
            box=box,
            counts=np.rint(rows).astype(np.int64),
            summed_sites=len(sent),
            signal_to_noise=rows / np.sqrt(sums_by_label(labels, noise**2, len(centroids))),
        )
        received = state.received_signal_to_noise
        signals = state.signal_to_noise if received is None else received
        assert signals is not None
        diagnostics = {
            "received": float(len(points)),
            "rows_needed": float(self.rows_needed(len(box.low), len(sent))),
            dp_server.BUDGET_SHARE: 1 - dp_site.ASSESSMENT_SHARE,
            cluster_arrays.SIGNAL: float(np.median(signals)),
        }
        return Round({"centroids": centroids, cluster_arrays.REACH: reach}, True, diagnostics, state)

    def _from_grids(
        self, boxes: Sequence[Box], sent: Sequence[Message]
    ) -> tuple[FloatArray, FloatArray, FloatArray, _DPOneShotState]:
        """Return the centers of cells that hold rows (c, d), how many each holds and its noise (c,), and the number of all rows."""
        alike: dict[bytes, list[int]] = {}
        for i, box in enumerate(boxes):
            alike.setdefault(b"".join(value.tobytes() for value in box.sent().values()), []).append(i)
        points, weights, noises, total = [np.empty((0, len(boxes[0].low)))], [np.empty(0)], [np.empty(0)], 0.0
        for sites in alike.values():
            box = boxes[sites[0]]
            shape = dp_grid.grid_shape(box, self.params.cells or dp_grid.CELLS_PER_CLUSTER * self.params.k)
            grids = [sent[i]["cells"] for i in sites if len(sent[i]["cells"]) == math.prod(shape)]
            if not grids:
                continue
            noisy = np.sum(grids, axis=0).reshape(shape)
            noise = dp_server.noise_of(self.params, 1.0, dp_oneshot.GRID_SHARE, len(grids))
            occupied = dp_grid.denoised(noisy, noise, self.params.k).ravel()
            points.append(dp_grid.cell_centers(box, shape)[occupied > 0])
            weights.append(occupied[occupied > 0])
            noises.append(np.full(len(points[-1]), noise))
            total += float(noisy.sum())
        state = _DPOneShotState(all_rows=max(total, 0.0))
        return np.concatenate(points), np.concatenate(weights), np.concatenate(noises), state

    def _from_centroids(self, sent: Sequence[Message]) -> tuple[FloatArray, FloatArray, FloatArray, _DPOneShotState]:
        """Return the sites' centroids that have more rows than noise (c, d), rows and noise of each (c,), and what is kept."""
        received, site = gathered(sent, ("centroids", "rows", "radii"))
        d = received["centroids"].shape[1]
        noise = self._noise_of_site(d)
        sure = received["rows"] > noise * dp_sums.UNIT / dp_sums.COUNT
        if np.count_nonzero(sure) < self.params.k:
            sure = np.ones(len(site), dtype=bool)
        state = _DPOneShotState(
            all_rows=max(float(received["rows"].sum()), 0.0),
            received_centroids=received["centroids"],
            received_rows=received["rows"],
            received_radii=received["radii"],
            received_site=site,
            # Of all that were received: those with more rows than noise alone would look clear where nothing is.
            received_signal_to_noise=np.maximum(received["rows"], 0) / (noise * math.sqrt(d)),
        )
        rows = np.maximum(received["rows"][sure], 1)
        return received["centroids"][sure], rows, np.full(len(rows), noise * math.sqrt(d)), state

    def _noise_of_site(self, d: int) -> float:
        """Return the deviation of the noise of a site's sum of shifts in one column, in radii."""
        share = dp_site.update_share(self.params.k, d, self.params.cells, self.params.rounds)
        return dp_server.noise_of(self.params, dp_sums.cluster_sensitivity(), share, 1) / dp_sums.UNIT
