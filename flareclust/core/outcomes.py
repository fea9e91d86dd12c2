"""Numbers of rows by cluster and outcome: times to an event on a grid, values of a category, and sums of a number.

Outcomes are what happened to the rows' patients; no algorithm sees them. A time is counted at the end of its interval: with an
interval of 30 days and times in days, an event on day 31 counts at day 60. Times beyond the last one are censored there.

Under a floor all numbers that leave are multiples of it, so that no small one follows from others. Of times, each `floor`
consecutive rows count at the time of the middle one of them. What is left of these, and of the rows of a category, becomes 0 or the
floor, with the chances that make its mean right. The chance is drawn from the values of the rows themselves, so that the same rows
always give the same number.

Source: the cell key method of the Australian Bureau of Statistics, after Fraser, Wooton (2005), A proposed method for
confidentialising tabular output to protect against differencing.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: Most intervals of a grid of times, and values of a category.
MOST_TIMES, MOST_VALUES = 4000, 100

#: The most numbers of rows of an answer.
MOST_NUMBERS = 10**7

#: Rounding errors of a time in units of the grid.
_ROUNDING = 1e-9

#: Kinds of outcomes: a time to an event, a category, a category whose values have an order, a number.
Kind = Literal["time", "category", "ordered", "number"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class OutcomeForm:
    """What a job asks about outcomes.

    Attributes:
        kind: what the outcome is.
        values: number of values of a category.
        every: width of an interval of times, in the unit of the times.
        until: the last time.

    Raises:
        ValueError: the category has fewer than two values, or the grid of times is empty, or too fine.
    """

    kind: Kind
    values: int = 0
    every: float = 1.0
    until: float = 1.0

    def __post_init__(self) -> None:
        if self.kind == "time" and not (0 < self.every <= self.until <= self.every * MOST_TIMES):
            raise ValueError(
                f"outcome: times need every and until with 0 < every <= until, and at most {MOST_TIMES:,} intervals"
            )
        if self.kind in ("category", "ordered") and not 2 <= self.values <= MOST_VALUES:
            raise ValueError(f"outcome: a category needs 2 to {MOST_VALUES} values")

    @classmethod
    def of(cls, numbers: FloatArray) -> "OutcomeForm":
        """Return the form that `numbers` (4,) state; raise ValueError for others."""
        kind, values, every, until = numbers.tolist()
        if kind not in range(len(_KINDS)) or values not in range(MOST_VALUES + 1):
            raise ValueError("outcome: unknown kind")
        return cls(_KINDS[int(kind)], int(values), every, until)

    @property
    def numbers(self) -> FloatArray:
        """Return the form as numbers (4,): of the kind and of values, width and last time."""
        return np.array([_KINDS.index(self.kind), self.values, self.every, self.until], dtype=np.float64)

    @property
    def width(self) -> int:
        """Return how many numbers a row's outcome has: time and event, or a value."""
        return 2 if self.kind == "time" else 1

    @property
    def shape(self) -> tuple[int, int]:
        """Return the axes of the counts of one cluster (o, t): censored rows and events by time, or rows by value."""
        return (2, int(np.ceil(self.until / self.every - _ROUNDING)) + 1) if self.kind == "time" else (1, self.values)

    @property
    def times(self) -> FloatArray:
        """Return the ends of the intervals (t,), from 0."""
        return np.asarray(np.minimum(np.arange(self.shape[1]) * self.every, self.until))


def counts_by_outcome(outcomes: FloatArray, labels: IntArray, k: int, form: OutcomeForm) -> IntArray:
    """Return rows (o, k, t) by cluster (n,), -1 for none, and outcome (n, w), NaN where it is not known."""
    kinds, size = form.shape
    known = (labels >= 0) & ~np.isnan(outcomes).any(axis=1)
    own, values = labels[known], outcomes[known]
    if form.kind != "time":
        at, kind = values[:, 0].astype(np.int64), np.zeros(len(own), dtype=np.int64)
    else:
        late = values[:, 0] > form.until
        at = np.ceil(np.minimum(values[:, 0], form.until) / form.every - _ROUNDING).astype(np.int64)
        kind = ((values[:, 1] > 0) & ~late).astype(np.int64)
    flat = np.bincount((kind * k + own) * size + at, minlength=kinds * k * size)
    return flat.reshape(kinds, k, size)


def as_multiples(counts: IntArray, floor: int, chances: FloatArray, form: OutcomeForm) -> IntArray:
    """Return counts (o, k, t) as multiples of `floor`; `chances` (k,) from 0 to 1 are those of the clusters."""
    if floor <= 1:
        return counts
    if form.kind != "time":
        rest = counts % floor
        return np.asarray(counts - rest + floor * (chances[None, :, None] < rest / floor))
    kept = np.zeros_like(counts)
    for kind, cluster in np.ndindex(counts.shape[:2]):
        _add_up(counts[kind, cluster], kept[kind, cluster], floor, float(chances[cluster]))
    return kept


def _add_up(counts: IntArray, kept: IntArray, floor: int, chance: float) -> None:
    """Write counts (t,), `floor` rows after the other at the time of their middle one, into `kept` (t,), which holds zeros."""
    at = np.repeat(np.arange(len(counts)), counts)
    for part in np.split(at, floor * np.arange(1, len(at) // floor + 1)):
        if len(part) == floor or chance < len(part) / floor:
            kept[part[len(part) // 2]] += floor


def chances_of(X: FloatArray, outcomes: FloatArray, labels: IntArray, k: int) -> FloatArray:
    """Return a number from 0 to 1 for each cluster (k,), a hash of its rows X (n, d) and their outcomes (n, w) in any order."""
    totals = [0] * k
    for row, label in zip(np.column_stack([X, outcomes]), labels.tolist(), strict=True):
        if label >= 0:
            totals[label] += int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "little")
    return np.array([total % 2**53 / 2**53 for total in totals])


def sums_by_cluster(
    outcomes: FloatArray, labels: IntArray, k: int, origin: float
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return known rows (k,), and the sums (k,) of their differences from `origin` and of the squares of these.

    Arguments as of `counts_by_outcome`, of a number.
    """
    known = (labels >= 0) & ~np.isnan(outcomes[:, 0])
    own, away = labels[known], outcomes[known, 0] - origin
    rows = np.bincount(own, minlength=k)
    total, squares = (np.asarray(np.bincount(own, one, minlength=k), dtype=np.float64) for one in (away, away**2))
    return rows, total, squares
