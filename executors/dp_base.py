"""What executors under differential privacy share: reserving a job's share of the site's budget, and a noisy assessment.

Every array that leaves a site goes through `SiteContext.dp` or does not depend on the rows. Noise is not drawn from the job's
seed: anyone with the seed could subtract it again.
"""

import logging
from collections.abc import Mapping
from typing import ClassVar, TypeVar

import numpy as np

from flareclust._foundation.errors import Aborted, BadMessage, Refusal
from flareclust._foundation.typing import AbortCheck, Array, FloatArray, IntArray, Message, never_abort
from flareclust._foundation.validation import LARGEST, check_int
from flareclust.core.chunks import pieces
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import LEAST_HALF, MOST_HALF, Box
from flareclust.core.lloyd import assign
from flareclust.data.tables import Table
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.phases import ColumnNames, Phase
from flareclust.preparation.settings import PrivateParams
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.budget import NO_TERMS, DPSession, misfitting
from flareclust.privacy.policy import PER_ID
from flareclust.protocol import cluster_arrays
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import ASSESSMENT, StepName, Task

_log = logging.getLogger(__name__)

#: Shares of the job's rho: for the assessment, and for a start from a grid, from moments, and from cells along axes after
#: moments. The updates get the rest.
ASSESSMENT_SHARE, GRID_START, MOMENTS_START, AXES_START = 0.05, 0.5, 0.2, 0.25

#: The array in which the server says what share of a job's rho an update costs, and the least that it can be.
SHARE, LEAST_SHARE = "share", 1e-5


class BoxSchema(Schema):
    """A schema that also checks that bounds are consistent, so that the error names the site."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Check that low is below high in every column, and that sums over such a box can be computed."""
        if not Box.of(message).usable:
            raise BadMessage(
                "low, high, radius: expected low below high for every column and a radius, neither too near nor too far apart"
            )


_P = TypeVar("_P", bound=PrivateParams)


def check_cells(params: _P) -> _P:
    """Return parameters with `cells`, the number of cells of a grid; UserError where there are fewer than clusters."""
    if (cells := vars(params)["cells"]) is not None:
        check_int("cells", cells, minimum=params.k)
    return params


class PrivateExecutor(ClusteringExecutor):
    """A site whose every number is differentially private."""

    params: PrivateParams

    private = True
    phases: ClassVar[tuple[type[Phase], ...]] = (ColumnNames,)

    steps = {StepName.ASSESS: Step(ASSESSMENT.extended(sse=real(""), clipped=real("")), "assess", summed=True)}

    @property
    def min_count(self) -> int:
        """Return 1: noise protects single rows."""
        return 1

    def granted_at_first(self, task: Task, rows: SiteRows) -> DPSession:
        """Return what `granted` does; the site's log names columns of the rows (n, d) that seem to be in another unit than the bounds."""
        terms = self.granted(rows.context, rows.aborted)
        for sentence in misfitting(terms.box, Table(rows.X, terms.columns)):
            _log.warning("%s: column %s", task.site, sentence)
        return terms

    def place(self, task: Task, rows: SiteRows) -> Message:
        """Return 0: the number of rows that are placed is private too."""
        return {"rows": np.array(0)}

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the nearest centroid of each row (n,); values whose squares overflow count as the largest that do not."""
        labels = np.empty(len(rows.X), np.int64)
        for part in pieces(*rows.X.shape):
            labels[part] = assign(np.clip(rows.X[part], -LARGEST, LARGEST), task.arrays["centroids"])[0]
        return labels

    def assess(self, task: Task, rows: SiteRows) -> Message:
        """Return noisy sums of squared distances and silhouettes and a noisy number of rows beyond the bounds.

        Numbers by cluster stay here, and 0 is sent for them. Totals are cut at 0 by the server only: cut at each site, noise
        would add up to a signal.
        """
        centroids, terms = task.arrays["centroids"], self.granted(rows.context, rows.aborted)
        reach = positive(task.arrays.get(cluster_arrays.REACH), cluster_arrays.REACH, ())
        sums = dp_sums.quality_sums(rows.X, own_box(terms), centroids, float(reach), never_abort)
        noisy = self.noisy(terms, sums, dp_sums.quality_sensitivity(), ASSESSMENT_SHARE, "assessment")
        zeros = np.zeros(len(centroids))
        return {
            "counts": zeros.astype(np.int64),
            "scatter": zeros,
            "sse": np.array(np.clip(float(noisy[0] / dp_sums.UNIT * reach**2), -LARGEST, LARGEST)),
            "silhouette": np.array(noisy[1] / dp_sums.SILHOUETTE),
            "clipped": np.array(noisy[2] / dp_sums.CLIPPED),
        }

    def granted(self, context: SiteContext, aborted: AbortCheck) -> DPSession:
        """Return the session for the epsilon and delta that the job requests; raise Refusal where the policy has none or grants less."""
        if aborted():
            raise Aborted("stopped before sums over the rows were taken")
        if context.dp is None:
            raise Refusal(NO_TERMS)
        if context.dp.dp.unit == PER_ID and self.params.unit != PER_ID:
            raise Refusal(
                "protects ids with all of their rows (its policy: unit), and the job protects single rows; submit with unit=id, and "
                "with rows_per_id for more than one row of each"
            )
        if context.dp.dp.unit != PER_ID and self.params.unit == PER_ID:
            # Without one row of an id the next takes its place: two rows change, and the budget is one for rows.
            raise Refusal("protects single rows (its policy: unit), and the job protects ids; submit with unit=row")
        return context.dp.granted(self.params.epsilon, self.params.delta)

    def granted_for_sums(self, context: SiteContext, aborted: AbortCheck) -> DPSession:
        """Return the session for sums: where they leave masked, each site adds only its share of the noise."""
        return self.granted(context, aborted).sharing(context.sum_sites, self.params.colluding)

    def alike(self) -> Message:
        """Return the settings that determine a site's share of the noise: where they differ between sites, totals cannot be decoded."""
        colluding = -1 if self.params.colluding is None else self.params.colluding
        unit = self.params.rows_of_unit, self.params.unit == PER_ID
        return {"noise": np.array([self.params.epsilon, self.params.delta, colluding, *unit])}

    def noisy(self, terms: DPSession, sums: IntArray, sensitivity: float, share: float, what: str) -> IntArray:
        """Return numbers with noise that costs a share of what the job may spend.

        Args:
            terms: of the site.
            sums: over the rows.
            sensitivity: most that a row changes them; an id changes them so many times as much as it has rows.
            share: of the job's rho.
            what: a description for readers of the ledger.
        """
        return terms.gaussian(
            sums, self.of_unit(sensitivity), share * accounting.WHOLE * terms.rho, what + self._protected
        )

    def noisy_sums(self, terms: DPSession, sums: IntArray, sensitivity: float, share: float, what: str) -> IntArray:
        """Return sums with noise as `noisy` does; masked sums get only the site's share of the noise."""
        return terms.summed(
            sums, self.of_unit(sensitivity), share * accounting.WHOLE * terms.rho, what + self._protected
        )

    def of_unit(self, sensitivity: float) -> float:
        """Return the sensitivity to the protected unit (a row or an id), from the sensitivity to a row."""
        return self.params.rows_of_unit * sensitivity

    @property
    def used_per_id(self) -> int | None:
        """Return how many rows of an id the sums are over, where ids are protected."""
        return self.params.rows_of_unit if self.params.unit == PER_ID else None

    @property
    def _protected(self) -> str:
        """Return what the ledger says of the unit."""
        return "" if self.used_per_id is None else f" (per id, {self.used_per_id} rows of each at most)"

    def check_task(self, task: Task, data: FloatArray) -> None:
        """Refuse a task that needs centroids and has none."""
        if task.step in (StepName.ASSESS, StepName.PLACE):
            self.check_centroids(task.arrays.get("centroids"), data, self.params.k)
        super().check_task(task, data)


def start_share(k: int, d: int, cells: int | None) -> float:
    """Return what share of a job's rho its start costs: a larger share with a grid, which decides which clusters are found."""
    return GRID_START if dp_grid.has_grid(k, d, cells) else MOMENTS_START


def update_share(k: int, d: int, cells: int | None, rounds: int) -> float:
    """Return what share of a job's rho one of its updates costs."""
    return (1 - ASSESSMENT_SHARE - start_share(k, d, cells)) / rounds


def own_box(terms: DPSession) -> Box:
    """Return the site's own bounds; raise Refusal where sums over such a box cannot be computed."""
    if not terms.box.usable:
        raise Refusal(
            f"has bounds that are not low < high, or too near or too far apart (half their diagonal must be from {LEAST_HALF:g} to "
            f"{MOST_HALF:g}); correct them in the site's policy"
        )
    return terms.box


def sent_box(arrays: Message, d: int) -> Box:
    """Return the box that the server sent; raise BadMessage unless it is one of d columns."""
    sent: Message = {name: arrays[name] for name in ("low", "high", "radius") if name in arrays}
    shapes = {"low": (d,), "high": (d,), "radius": ()}
    formed = all(value.dtype == np.float64 and value.shape == shapes[name] for name, value in sent.items())
    if not (formed and {"low", "high"} <= sent.keys()):
        raise BadMessage(f"was sent bounds that are not those of {d} columns")
    box = Box.of(sent)
    if not box.usable:
        raise BadMessage("was sent bounds that are not low < high, or too near or too far apart")
    return box


def sent_radii(arrays: Message, k: int) -> FloatArray:
    """Return the radii (k,) that the server sent; raise BadMessage unless they are numbers above 0 that can be squared."""
    return positive(arrays.get("radii"), "radii", (k,))


def sent_share(arrays: Message) -> float:
    """Return the share of the job's rho that the server asks a site to spend; raise BadMessage unless it is one.

    Whatever a server asks, the ledger ends the job where it has spent all of its rho.
    """
    share = arrays.get(SHARE)
    formed = isinstance(share, np.ndarray) and share.dtype == np.float64 and share.shape == ()
    if formed and share is not None and LEAST_SHARE <= share <= 1:
        return float(share)
    raise BadMessage(f"was sent a share of the budget that is not between {LEAST_SHARE:g} and 1")


def positive(value: Array | None, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return numbers above 0 that can be squared; raise BadMessage unless the server sent such."""
    formed = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == shape
    if formed and value is not None and ((value > dp_sums.LEAST_RADIUS) & (value < dp_sums.LARGEST_RADIUS)).all():
        return value
    raise BadMessage(
        f"was sent {name} that are not numbers between {dp_sums.LEAST_RADIUS:g} and {dp_sums.LARGEST_RADIUS:g}, as many as are needed"
    )
