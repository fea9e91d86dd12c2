"""What sites share under differential privacy: a job's share of the site's budget, and the noise that it pays for.

Every array that leaves a site goes through `Noise` or does not depend on the rows. Noise is not drawn from the job's seed:
anyone with the seed could subtract it again.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

import numpy as np

from flareclust._foundation.errors import Aborted, BadMessage, Refusal
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust._foundation.validation import check_int
from flareclust.core.dp import grid as dp_grid
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import LEAST_HALF, MOST_HALF, Box
from flareclust.data.tables import Table
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.budget import NO_TERMS, DPSession, misfitting
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.policy import PER_ID
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema
from flareclust.protocol.task import Task

_log = logging.getLogger(__name__)

#: Shares of the job's rho: for the assessment, and for a start from a grid, from moments, and from cells along axes after
#: moments. The updates get the rest.
ASSESSMENT_SHARE, GRID_START, MOMENTS_START, AXES_START = 0.05, 0.5, 0.2, 0.25

#: The array in which the server says what share of a job's rho an update costs, and the least that it can be.
SHARE, _LEAST_SHARE = "share", 1e-5


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


@dataclass(frozen=True)
class Noise:
    """What a job may spend at a site, by the job's settings and the site's terms, and the noise that it gets for it."""

    params: PrivateParams
    terms: DPSession

    @classmethod
    def granted(cls, params: PrivateParams, rows: SiteRows) -> "Noise":
        """Return what the site grants a job for the epsilon and delta that it requests; raise Refusal where it grants less."""
        if rows.aborted():
            raise Aborted("stopped before sums over the rows were taken")
        terms = rows.context.dp
        if not isinstance(terms, DPSession):
            raise Refusal(NO_TERMS)
        if terms.dp.unit == PER_ID and params.unit != PER_ID:
            raise Refusal(
                "protects ids with all of their rows (its policy: unit), and the job protects single rows; submit with unit=id, and "
                "with rows_per_id for more than one row of each"
            )
        if terms.dp.unit != PER_ID and params.unit == PER_ID:
            # Without one row of an id the next takes its place: two rows change, and the budget is one for rows.
            raise Refusal("protects single rows (its policy: unit), and the job protects ids; submit with unit=row")
        return cls(params, terms.granted(params.epsilon, params.delta, params.outcome_epsilon))

    @classmethod
    def granted_at_first(cls, params: PrivateParams, task: Task, rows: SiteRows) -> "Noise":
        """Return what `granted` does; the site's log names columns of the rows (n, d) that seem to be in another unit than the bounds."""
        noise = cls.granted(params, rows)
        for sentence in misfitting(noise.terms.box, Table(rows.X, noise.terms.columns)):
            _log.warning("%s: column %s", task.site, sentence)
        return noise

    @classmethod
    def granted_for_sums(cls, params: PrivateParams, rows: SiteRows) -> "Noise":
        """Return what `granted` does for sums: where they leave masked, each site adds only its share of the noise."""
        noise = cls.granted(params, rows)
        return cls(params, noise.terms.sharing(rows.context.sum_sites, params.colluding))

    @classmethod
    def granted_for_outcomes(cls, params: PrivateParams, rows: SiteRows) -> "Noise":
        """Return what `granted_for_sums` does, of what the job spends on outcomes; raise Refusal where that is nothing."""
        if params.outcome_epsilon is None:
            raise Refusal("was asked for outcomes by a job that spends nothing on them; submit with outcome_epsilon")
        noise = cls.granted_for_sums(params, rows)
        return cls(params, noise.terms.for_outcomes())

    @property
    def box(self) -> Box:
        """Return the site's own bounds; raise Refusal where sums over such a box cannot be computed."""
        if not self.terms.box.usable:
            raise Refusal(
                f"has bounds that are not low < high, or too near or too far apart (half their diagonal must be from {LEAST_HALF:g} to "
                f"{MOST_HALF:g}); correct them in the site's policy"
            )
        return self.terms.box

    def add(self, sums: IntArray, sensitivity: float, share: float, what: str) -> IntArray:
        """Return numbers with noise that costs a share of what the job may spend.

        Args:
            sums: over the rows.
            sensitivity: most that a row changes them; an id changes them so many times as much as it has rows.
            share: of the job's rho.
            what: a description for readers of the ledger.
        """
        return self.terms.gaussian(sums, self.of_unit(sensitivity), self.rho(share), what + self._protected)

    def add_to_sums(self, sums: IntArray, sensitivity: float, share: float, what: str) -> IntArray:
        """Return sums with noise as `add` does; masked sums get only the site's share of the noise."""
        return self.terms.summed(sums, self.of_unit(sensitivity), self.rho(share), what + self._protected)

    def rho(self, share: float) -> float:
        """Return a share of what the job may spend."""
        return share * accounting.WHOLE * self.terms.rho

    def of_unit(self, sensitivity: float) -> float:
        """Return the sensitivity to the protected unit (a row or an id), from the sensitivity to a row."""
        return self.params.rows_of_unit * sensitivity

    @property
    def _protected(self) -> str:
        """Return what the ledger says of the unit."""
        used = self.params.used_per_id
        return "" if used is None else f" (per id, {used} rows of each at most)"


def start_share(k: int, d: int, cells: int | None) -> float:
    """Return what share of a job's rho its start costs: a larger share with a grid, which decides which clusters are found."""
    return GRID_START if dp_grid.has_grid(k, d, cells) else MOMENTS_START


def update_share(k: int, d: int, cells: int | None, rounds: int) -> float:
    """Return what share of a job's rho one of its updates costs."""
    return (1 - ASSESSMENT_SHARE - start_share(k, d, cells)) / rounds


def _has_form(value: Array | None, shape: tuple[int, ...]) -> TypeGuard[FloatArray]:
    """Return whether a server sent float64 of this shape."""
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == shape


def sent_box(arrays: Message, d: int) -> Box:
    """Return the box that the server sent; raise BadMessage unless it is one of d columns."""
    shapes: dict[str, tuple[int, ...]] = {"low": (d,), "high": (d,), "radius": ()}
    sent = {name: arrays[name] for name in shapes if name in arrays}
    if not ({"low", "high"} <= sent.keys() and all(_has_form(value, shapes[name]) for name, value in sent.items())):
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
    if _has_form(share, ()) and _LEAST_SHARE <= share <= 1:
        return float(share)
    raise BadMessage(f"was sent a share of the budget that is not between {_LEAST_SHARE:g} and 1")


def positive(value: Array | None, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return numbers above 0 that can be squared; raise BadMessage unless the server sent such."""
    if _has_form(value, shape) and ((value > dp_sums.LEAST_RADIUS) & (value < dp_sums.LARGEST_RADIUS)).all():
        return value
    raise BadMessage(
        f"was sent {name} that are not numbers between {dp_sums.LEAST_RADIUS:g} and {dp_sums.LARGEST_RADIUS:g}, as many as are needed"
    )
