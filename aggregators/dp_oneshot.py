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

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.dp_base import ALL_ROWS, BUDGET_SHARE, SITES, PrivateAggregator, reach_of
from flareclust.core import clusterers
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import lloyd as dp_steps
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.lloyd import sums_by_label
from flareclust.executors import dp_lloyd, dp_oneshot
from flareclust.privacy.dp import site as dp_site
from flareclust.protocol import cluster_arrays
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS


class DPOneShotAggregator(PrivateAggregator):
    """The server of DP one-shot clustering.

    Kept on the server: `counts` (k,), the noisy numbers of rows behind each centroid; `signal_to_noise` (k,); the bounds; where sites sent centroids also
    `received_centroids` (c, d), `received_rows` (c,), `received_radii` (c,), `received_site` (c,) and
    `received_signal_to_noise` (c,).
    """

    params: dp_oneshot.DPOneShotParams

    steps = dp_oneshot.DPOneShotExecutor.job_steps()

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows in all noise moves a centroid by half a radius at most, from public numbers only.

        Args:
            d: number of columns.
            sites: how many take part.
        """
        if dp_grid.has_grid(self.params.k, d, self.params.cells):
            cells = self.params.cells or dp_grid.CELLS_PER_CLUSTER * self.params.k
            return math.ceil(
                dp_sums.CLEAR
                * self.params.k
                * self.noise(1.0, dp_oneshot.GRID_SHARE, sites)
                * math.sqrt(cells / self.params.k)
            )
        return math.ceil(dp_sums.CLEAR * self.params.k * self._noise_of_site(d) * math.sqrt(d)) * sites

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries of a reply."""
        return {"k": self.params.k, "g": dp_lloyd.MOST_CELLS, "d": MOST_COLUMNS}

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Add up grids, or gather centroids, and cluster them."""
        sent = list(replies.values())
        boxes = [Box.of(reply) for reply in sent]
        gridded = dp_grid.has_grid(self.params.k, len(boxes[0].low), self.params.cells)
        points, weights, noise, kept = self._from_grids(boxes, sent) if gridded else self._from_centroids(sent)
        if not len(points):
            raise JobFailed("no site sent what this job asks for; all must have the same settings")
        centroids, labels = clusterers.weighted_kmeans(points, weights, self.params.k, self.params.restarts, rng)
        rows = sums_by_label(labels, weights, len(centroids))
        box = Box.around(boxes)
        reach = reach_of(kept.get("received_radii", dp_steps.half_way(centroids, box)), box)
        record = {**kept, **box.sent(), "counts": np.rint(rows).astype(np.int64), SITES: np.array(len(sent))}
        record[cluster_arrays.SIGNAL] = rows / np.sqrt(sums_by_label(labels, noise**2, len(centroids)))
        diagnostics = {
            "received": float(len(points)),
            "rows_needed": float(self.rows_needed(len(box.low), len(sent))),
            BUDGET_SHARE: 1 - dp_site.ASSESSMENT_SHARE,
            cluster_arrays.SIGNAL: float(
                np.median(record[cluster_arrays.SIGNAL] if gridded else kept["received_signal_to_noise"])
            ),
        }
        return Round({"centroids": centroids, cluster_arrays.REACH: reach}, True, diagnostics, record)

    def _from_grids(
        self, boxes: Sequence[Box], sent: Sequence[Message]
    ) -> tuple[FloatArray, FloatArray, FloatArray, Message]:
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
            noisy, noise = np.sum(grids, axis=0).reshape(shape), self.noise(1.0, dp_oneshot.GRID_SHARE, len(grids))
            occupied = dp_grid.denoised(noisy, noise, self.params.k).ravel()
            points.append(dp_grid.cell_centers(box, shape)[occupied > 0])
            weights.append(occupied[occupied > 0])
            noises.append(np.full(len(points[-1]), noise))
            total += float(noisy.sum())
        kept: Message = {ALL_ROWS: np.array(max(total, 0.0))}
        return np.concatenate(points), np.concatenate(weights), np.concatenate(noises), kept

    def _from_centroids(self, sent: Sequence[Message]) -> tuple[FloatArray, FloatArray, FloatArray, Message]:
        """Return the sites' centroids that have more rows than noise (c, d), rows and noise of each (c,), and all for the record."""
        names = ("centroids", "rows", "radii")
        received, site = gathered([{name: reply[name] for name in names} for reply in sent])
        d = received["centroids"].shape[1]
        noise = self._noise_of_site(d)
        sure = received["rows"] > noise * dp_sums.UNIT / dp_sums.COUNT
        if np.count_nonzero(sure) < self.params.k:
            sure = np.ones(len(site), dtype=bool)
        kept = {f"received_{name}": received[name] for name in names} | {"received_site": site}
        kept[ALL_ROWS] = np.array(max(float(received["rows"].sum()), 0.0))
        # Of all that were received: those with more rows than noise alone would look clear where nothing is.
        kept["received_signal_to_noise"] = np.maximum(received["rows"], 0) / (noise * math.sqrt(d))
        rows = np.maximum(received["rows"][sure], 1)
        return received["centroids"][sure], rows, np.full(len(rows), noise * math.sqrt(d)), kept

    def _noise_of_site(self, d: int) -> float:
        """Return the deviation of the noise of a site's sum of shifts in one column, in radii."""
        share = dp_site.update_share(self.params.k, d, self.params.cells, self.params.rounds)
        return self.noise(dp_sums.cluster_sensitivity(), share, 1) / dp_sums.UNIT
