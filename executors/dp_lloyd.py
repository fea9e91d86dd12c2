"""DP Lloyd, the site's side: noisy sums and numbers of the rows nearest to each centroid, in few rounds.

Source: Blum, Dwork, McSherry, Nissim, Practical Privacy: The SuLQ Framework (2005), section 5; the grid of the start after
Su, Cao, Li, Bertino, Jin, Differentially Private K-Means Clustering (2016), section 4. Both have one holder of all rows and
Laplace noise; here every site adds Gaussian noise of its own, or with secure sums its share of one noise (Kairouz, Liu,
Steinke 2021), and nobody sees a sum without noise.

Readings and deviations:
1. Each site first sends the bounds of its columns, which its policy states. They say nothing of its rows.
2. The start: noisy numbers of rows in the cells of a grid over all sites' bounds; where there are too many columns for a
   grid, noisy sums of values and of their squares.
   With the second moments of many columns, the server finds the main axes of all rows, and sites count rows in cells along
   these (`flareclust.core.dp.axes`).
   The first update after that is of up to `parts` centroids for each cluster, which the server then joins.
3. In an update a row counts with its distance to the nearest centroid, cut off at the cluster's radius, which the server
   states. So the noise is in proportion to the radius, and not to the whole box.
4. The shares of the job's budget: `GRID_START`, or `MOMENTS_START` and where cells follow `AXES_START`, for the start,
   `ASSESSMENT_SHARE` for the assessment, the rest in equal parts for the updates. The server states the share of an update,
   since only it knows whether moments were clear enough for cells.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Array, IntArray, Message
from flareclust._foundation.validation import LARGEST
from flareclust.core.dp import axes as dp_axes
from flareclust.core.dp import sums as dp_sums
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.stages import check_centroids
from flareclust.privacy.dp import site as dp_site
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.protocol.params import MOST_ROUNDS, both, server
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

BOUNDS = "bounds"  # of the site's columns, from its policy
OUTLINE = "outline"  # noisy number of all rows, sums of their values and of the values' squares
SECOND_MOMENTS = "second_moments"  # noisy number of all rows, sums of their values and of the products of any two
AXES = "axes"  # noisy numbers of rows in cells along the main axes
UPDATE = "update"  # noisy sums for each centroid

#: The largest number of cells; a server that asks for more is refused.
MOST_CELLS = 10**6

#: The ways to a start.
_STARTS = ("auto", "grid", "axes", "spread")


class DPLloydParams(PrivateParams):
    """Parameters of DP Lloyd."""

    rounds: int = both(3, "Updates, among which the budget is split.", ge=1, le=MOST_ROUNDS)
    cells: int | None = both(
        None, "Cells of the grid that the start is found with; None for 25 for each cluster, 128 or more along axes."
    )
    start: Annotated[str, OneOf(_STARTS)] = server(
        "auto",
        "How the start is found: cells of a grid over the columns (grid), cells along the main axes of all rows (axes), or points "
        "about their mean (spread); auto for grid with one or two columns, else for axes where noise allows it.",
    )

    _enough_cells = model_validator(mode="after")(dp_site.check_cells)


class _SecondMoments(Schema):
    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage unless there is a product for any two columns."""
        if sizes["t"] != sizes["d"] * (sizes["d"] + 1) // 2:
            raise BadMessage(f"products: expected one for any two of {sizes['d']} columns, got {sizes['t']}")


class DPLloydExecutor(ClusteringExecutor):
    """A site of DP Lloyd."""

    params: DPLloydParams
    private = True
    parts = 3

    steps = {
        StepName.CLUSTER: Step(Schema(cells="g"), summed=True),
        BOUNDS: Step(dp_site.BoxSchema(low="d", high="d", radius=""), "bounds", public=True),
        SECOND_MOMENTS: Step(_SecondMoments(rows="", values="d", products="t"), "second_moments", summed=True),
        AXES: Step(Schema(cells="g"), "axes", summed=True),
        OUTLINE: Step(Schema(rows="", values="d", squares="d"), "outline", summed=True),
        UPDATE: Step(Schema(shifts="K d", rows="K", squares="K"), "update", summed=True),
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Return noisy numbers of rows in the cells of a grid."""
        noise = dp_site.Noise.granted_for_sums(self.params, rows)
        box, shape = dp_site.sent_box(task.arrays, rows.X.shape[1]), _shape(task.arrays, rows.X.shape[1])
        counted = dp_sums.cell_counts(rows.X, noise.box, box, shape, rows.aborted)
        return _noisy_cells(noise, counted, dp_site.GRID_START, "cells of a grid")

    def bounds(self, task: Task, rows: SiteRows) -> Message:
        """Return the bounds of the site's columns, from its policy."""
        return dp_site.Noise.granted_at_first(self.params, task, rows).box.sent()

    def outline(self, task: Task, rows: SiteRows) -> Message:
        """Return the noisy number of all rows, sums of their values and of the values' squares."""
        noise, d = dp_site.Noise.granted_for_sums(self.params, rows), rows.X.shape[1]
        sums = dp_sums.moment_sums(rows.X, noise.box, dp_site.sent_box(task.arrays, d), rows.aborted)
        noisy = noise.add_to_sums(sums, dp_sums.moment_sensitivity(), dp_site.MOMENTS_START, "moments") / dp_sums.UNIT
        return {"rows": noisy[0], "values": noisy[1 : 1 + d], "squares": noisy[1 + d :]}

    def second_moments(self, task: Task, rows: SiteRows) -> Message:
        """Return the noisy number of all rows, sums of their values and of the products of any two."""
        noise, d = dp_site.Noise.granted_for_sums(self.params, rows), rows.X.shape[1]
        if d > dp_axes.MOST_COLUMNS:
            raise Refusal(
                f"has {d} columns, too many for second moments ({dp_axes.MOST_COLUMNS}); submit with start=spread"
            )
        sums = dp_axes.second_moment_sums(rows.X, noise.box, dp_site.sent_box(task.arrays, d), rows.aborted)
        sensitivity = dp_axes.second_moment_sensitivity()
        noisy = noise.add_to_sums(sums, sensitivity, dp_site.MOMENTS_START, "second moments")
        return {
            "rows": noisy[0] / dp_axes.ROW_UNIT,
            "values": noisy[1 : 1 + d] / dp_axes.VALUE_UNIT,
            "products": noisy[1 + d :] / dp_axes.SQUARE_UNIT,
        }

    def axes(self, task: Task, rows: SiteRows) -> Message:
        """Return noisy numbers of rows in cells along the main axes."""
        noise, grid = dp_site.Noise.granted_for_sums(self.params, rows), _grid(task.arrays, rows.X.shape[1])
        counted = dp_axes.axis_cell_counts(rows.X, noise.box, grid, rows.aborted)
        return _noisy_cells(noise, counted, dp_site.AXES_START, "cells along the main axes")

    def update(self, task: Task, rows: SiteRows) -> Message:
        """Return noisy sums for each centroid."""
        noise = dp_site.Noise.granted_for_sums(self.params, rows)
        check_centroids(task.arrays.get("centroids"), rows.d, self.params.k * self.parts)
        centroids = task.arrays["centroids"]
        radii = dp_site.sent_radii(task.arrays, len(centroids))
        sums = dp_sums.cluster_sums(rows.X, noise.box, centroids, radii, rows.aborted)
        share = dp_site.sent_share(task.arrays)
        return dp_sums.in_units(
            noise.add_to_sums(sums, dp_sums.cluster_sensitivity(), share, f"update of round {task.round}")
        )._asdict()


def _noisy_cells(noise: dp_site.Noise, counted: IntArray, share: float, what: str) -> Message:
    """Return noisy numbers of rows: a row counts UNIT, so that shares of the noise are not too small for integers."""
    return {"cells": noise.add_to_sums(counted * dp_sums.UNIT, float(dp_sums.UNIT), share, what) / dp_sums.UNIT}


def _grid(arrays: Message, d: int) -> dp_axes.Grid:
    """Return the grid along axes that the server sent; raise BadMessage unless it is one of d columns."""
    axes, p = arrays.get("axes"), np.size(arrays.get("half", ()))
    formed = isinstance(axes, np.ndarray) and axes.dtype == np.float64 and axes.shape == (p, d)
    middle = arrays.get("middle")
    formed = formed and isinstance(middle, np.ndarray) and middle.dtype == np.float64 and middle.shape == (d,)
    if not (formed and axes is not None and middle is not None):
        raise BadMessage(f"was sent axes that are not those of {d} columns")
    if not (p and (np.abs(axes) <= 1).all() and (np.abs(middle) <= LARGEST).all()):
        raise BadMessage("was sent axes that are no directions, or with a middle too far away")
    return dp_axes.Grid(middle, axes, dp_site.positive(arrays["half"], "half", (p,)), _shape(arrays, p))


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
