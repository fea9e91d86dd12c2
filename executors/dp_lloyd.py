"""DP Lloyd, the site's side: noisy sums and numbers of the rows nearest to each centroid, in few rounds.

Source: Blum, Dwork, McSherry, Nissim, Practical Privacy: The SuLQ Framework (2005), section 5; the grid of the start after
Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4. Both have one holder of all rows and
Laplace noise; here every site adds Gaussian noise of its own, and nobody sees a sum without noise.

Readings and deviations:
1. Each site first sends the bounds of its columns, which its policy states. They say nothing of its rows.
2. The start: noisy numbers of rows in the cells of a grid over all sites' bounds; where there are too many columns for a
   grid, noisy sums of values and of their squares.
3. In an update a row counts with its distance to the nearest centroid, cut off at the cluster's radius, which the server
   states. So the noise is in proportion to the radius, and not to the whole box.
4. The shares of the job's budget: `GRID_START` or `MOMENTS_START` for the start, `ASSESSMENT_SHARE` for the assessment,
   the rest in equal parts for the updates.
"""

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust._foundation.validation import check_int
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.sums import UNIT
from flareclust.executors.dp_base import (
    BoxSchema,
    PrivateExecutor,
    own_box,
    sent_box,
    sent_radii,
    start_share,
    update_share,
)
from flareclust.executors.parameters import PrivateParams
from flareclust.privacy.context import SiteContext
from flareclust.protocol.params import MOST_ROUNDS, both
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import CLUSTER, Task

#: The bounds of the site's columns, from its policy.
BOUNDS = "bounds"

#: Noisy number of all rows, sums of their values and of the values' squares.
OUTLINE = "outline"

#: Noisy sums for each centroid.
UPDATE = "update"

#: The largest number of cells; a server that asks for more is refused.
MOST_CELLS = 10**6


class DPLloydParams(PrivateParams):
    """Parameters of DP Lloyd."""

    rounds: int = both(3, "Updates, among which the budget is split.", ge=1, le=MOST_ROUNDS)
    cells: int | None = both(None, "Cells of the grid that the start is found with; None for 25 for each cluster.")

    @model_validator(mode="after")
    def _cells_for_all(self) -> "DPLloydParams":
        if self.cells is not None:
            check_int("cells", self.cells, minimum=self.k)
        return self


class DPLloydExecutor(PrivateExecutor):
    """A site of DP Lloyd."""

    params: DPLloydParams

    steps = {
        CLUSTER: Step(Schema(cells="g")),
        BOUNDS: Step(BoxSchema(low="d", high="d", radius=""), "bounds"),
        OUTLINE: Step(Schema(rows="", values="d", squares="d"), "outline"),
        UPDATE: Step(Schema(shifts="K d", rows="K", squares="K"), "update"),
    }

    def local(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return noisy numbers of rows in the cells of a grid."""
        terms = self.granted(context, aborted)
        box, shape = sent_box(task.arrays, data.shape[1]), _shape(task.arrays, data.shape[1])
        counted = dp_sums.cell_counts(data, own_box(terms), box, shape, aborted)
        return {"cells": self.noisy(terms, counted, 1.0, self._start(data), "cells of a grid").astype(np.float64)}

    def bounds(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return the bounds of the site's columns, from its policy."""
        return own_box(self.granted(context, aborted)).sent()

    def outline(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return the noisy number of all rows, sums of their values and of the values' squares."""
        terms, d = self.granted(context, aborted), data.shape[1]
        sums = dp_sums.moment_sums(data, own_box(terms), sent_box(task.arrays, d), aborted)
        noisy = self.noisy(terms, sums, dp_sums.moment_sensitivity(), self._start(data), "moments") / UNIT
        return {"rows": noisy[0], "values": noisy[1 : 1 + d], "squares": noisy[1 + d :]}

    def update(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return noisy sums for each centroid."""
        terms = self.granted(context, aborted)
        self.check_centroids(task.arrays.get("centroids"), data, self.k)
        centroids = task.arrays["centroids"]
        radii = sent_radii(task.arrays, len(centroids))
        sums = dp_sums.cluster_sums(data, own_box(terms), centroids, radii, aborted)
        share = update_share(self.k, data.shape[1], self.params.cells, self.params.rounds)
        return dp_sums.in_units(
            self.noisy(terms, sums, dp_sums.cluster_sensitivity(), share, f"update of round {task.round}")
        )._asdict()

    def _start(self, data: FloatArray) -> float:
        return start_share(self.k, data.shape[1], self.params.cells)


def _shape(arrays: Message, d: int) -> tuple[int, ...]:
    """Return the numbers of cells along the columns that the server sent; raise BadMessage unless they make a grid."""
    shape = arrays.get("shape")
    formed = isinstance(shape, np.ndarray) and shape.dtype == np.int64 and shape.shape == (d,)
    if formed and shape is not None and ((shape >= 1) & (shape <= MOST_CELLS)).all():
        with np.errstate(over="ignore"):
            cells = float(np.prod(shape.astype(float)))
        if cells <= MOST_CELLS:
            return tuple(int(along) for along in shape)
    raise BadMessage(f"was sent a grid that is not one over {d} columns of at most {MOST_CELLS} cells")
