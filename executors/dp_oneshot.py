"""DP one-shot, the site's side: one message of differentially private numbers.

Source: Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4 (EUGkM), which has one holder
of all rows and Laplace noise.

Readings and deviations:
1. With few columns: noisy numbers of the rows in the cells of a grid over the site's bounds. A row is in one cell.
2. With more columns than a grid can have (`flareclust.core.dp.grid.has_grid`): the site runs DP Lloyd on its own rows, and sends its
   centroids with noisy numbers of rows and root mean square radii. A radius by the maximum has no finite sensitivity.
3. The number of cells follows from k, not from the number of rows, which is private.
"""

import numpy as np
from pydantic import model_validator

from flareclust._foundation.typing import Message
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import lloyd as dp_steps
from flareclust.core.dp import sums as dp_sums
from flareclust.federation.executor import ClusteringExecutor
from flareclust.privacy.dp import site as dp_site
from flareclust.privacy.dp.mechanism import sigma
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.protocol.params import MOST_ROUNDS, MOST_STARTS, both, server
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: Share of the job's rho that the grid costs, where there is one.
GRID_SHARE = 1 - dp_site.ASSESSMENT_SHARE


class DPOneShotParams(PrivateParams):
    """Parameters of DP one-shot clustering."""

    rounds: int = both(3, "Updates at the sites, where there are too many columns for a grid.", ge=1, le=MOST_ROUNDS)
    cells: int | None = both(None, "Cells of the grid; None for 25 for each cluster.")
    restarts: int = server(10, "Starts of the server's k-means.", ge=1, le=MOST_STARTS)

    _enough_cells = model_validator(mode="after")(dp_site.check_cells)


class DPOneShotExecutor(ClusteringExecutor):
    """A site of DP one-shot clustering."""

    params: DPOneShotParams
    private = True

    steps = {
        StepName.CLUSTER: Step(
            dp_site.BoxSchema(
                may_be_empty=True,
                low="d",
                high="d",
                radius="",
                cells="g",
                centroids="k d",
                rows="k",
                radii=real("k", minimum=0),
            )
        )
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Count rows in cells, or run DP Lloyd on the site's own rows."""
        noise = dp_site.Noise.granted_at_first(self.params, task, rows)
        box, d = noise.box, rows.X.shape[1]
        no_centroids: Message = {"centroids": np.empty((0, d)), "rows": np.empty(0), "radii": np.empty(0)}
        if dp_grid.has_grid(self.params.k, d, self.params.cells):
            shape = dp_grid.grid_shape(box, self.params.cells or dp_grid.CELLS_PER_CLUSTER * self.params.k)
            counted = dp_sums.cell_counts(rows.X, box, box, shape, rows.aborted)
            noisy = noise.add(counted, 1.0, GRID_SHARE, "cells of a grid").astype(np.float64)
            return {**box.sent(), "cells": noisy, **no_centroids}
        return {**box.sent(), "cells": np.empty(0), **self._clusters(rows, noise)}

    def _clusters(self, rows: SiteRows, noise: dp_site.Noise) -> Message:
        """Run DP Lloyd with the site as its own server: every sum has its noise before it is used."""
        data, box, shape = rows.X, noise.box, (self.params.k, rows.X.shape[1], self.params.cells)
        sums = dp_sums.moment_sums(data, box, box, rows.aborted)
        noisy = noise.add(sums, dp_sums.moment_sensitivity(), dp_site.start_share(*shape), "moments")
        deviation = _sigma(noise, dp_sums.moment_sensitivity(), dp_site.start_share(*shape))
        outline = dp_steps.moments(noisy / dp_sums.UNIT, box, deviation)
        centroids, radii = dp_steps.spread_start(outline, box, self.params.k, rows.rng)
        share, sensitivity = dp_site.update_share(*shape, self.params.rounds), dp_sums.cluster_sensitivity()
        moves = _sigma(noise, sensitivity, share)
        for update in range(self.params.rounds):
            exact = dp_sums.cluster_sums(data, box, centroids, radii, rows.aborted)
            noisy_sums = dp_sums.in_units(noise.add(exact, sensitivity, share, f"update {update} at the site"))
            centroids, counts = dp_steps.next_centroids(centroids, radii, noisy_sums, moves, update, box, outline.mean)
        return {"centroids": centroids, "rows": counts, "radii": dp_steps.rms_radii(radii, noisy_sums)}


def _sigma(noise: dp_site.Noise, sensitivity: float, share: float) -> float:
    """Return the standard deviation of the noise of sums for a share of what the job may spend, in their units."""
    return sigma(noise.of_unit(sensitivity), noise.rho(share)) / dp_sums.UNIT
