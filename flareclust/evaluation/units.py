"""What is odd about a column of one group of rows beside that of others, from number of cells, mean and standard deviation alone.

In another unit mean and deviation grow by the same ratio. Both must do so by more than the sampling of as many cells explains.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flareclust.data.cells import goes_with

#: Factors between units that sites mix up, and what is said of them; powers of ten come first.
_TENS = {10.0**power: f"{10**power:,}" for power in (1, 2, 3, 6)}
UNITS: Mapping[float, str] = {
    **_TENS,
    25.4: "25.4 (inches)",
    2.54: "2.54 (inches)",
    1 / 0.45359237: "2.2 (pounds)",
    365.25: "365 (years)",
}

#: Those between mg/dl and mmol/l, or µmol/l.
_LABORATORY: Mapping[float, str] = {
    18.0: "18 (glucose in mg/dl)",
    38.67: "38.7 (cholesterol in mg/dl)",
    88.4: "88.4 (creatinine in µmol/l)",
}

_KNOWN = {**UNITS, **_LABORATORY}

_RATIO = "is {} times {} than at other sites; is it in another unit?"

#: What can be odd about a column, in words that follow its name: a unit factor, larger or smaller; another ratio; and three more.
ODDITIES: Sequence[str] = (
    *(_RATIO.format(f"about {word}", how) for word in _KNOWN.values() for how in ("larger", "smaller")),
    *(_RATIO.format("several", how) for how in ("larger", "smaller")),
    "looks like Fahrenheit at some sites and Celsius at others",
    "has values apart from those of other sites; does it mean the same?",
    "has a few cells far from all others; are they a code for missing ones?",
)
_FAHRENHEIT, ELSEWHERE, FAR_CELLS = range(len(ODDITIES) - 3, len(ODDITIES))
_SEVERAL = _FAHRENHEIT - 2

#: A known factor is named where the logarithms of both ratios are so near to its own.
_NAMED = 0.1

#: Of a power of ten they may be farther from it, since patients differ from site to site: where both are the same, and where not.
_NEAR_SAME, _NEAR_DEVIATION, _NEAR_MEAN = 0.2, 0.3, 0.6

#: Where the means are clearly apart, and not by chance, both ratios may be farther from a known factor: 25 % of it.
_EXPLAINED = float(np.log(1.25))

#: Of fewer cells the deviation is hardly known.
_LEAST = 20

#: From this factor on values in two units are named although many occur in both.
_LARGE = 10.0

#: Degrees Fahrenheit of patients vary so many times less than 32.
_DEGREES = 4.0

#: Both ratios are the same where their logarithms differ by no more; the smallest that is named.
_SAME, _SMALLEST = 0.2, 2.0

#: Columns lie apart where means differ by more than so many deviations of both together.
_APART = 4.0

#: Where other sites' deviation, over their mean, is so many times a site's own, their values are in several units.
_MIXED = 1.25

#: Cells are far from others where they make the deviation so many times as large; they are few up to this share.
_FAR, _FEW = 10.0, 0.1

#: Of columns that are mostly 0, so many cells must be another number.
_NOT_ZERO = 10

#: Beyond so many standard errors a difference is not by chance.
_ERRORS = 3.0

#: Kurtosis assumed for the sampling error of a deviation: 9, as for exponential values; for a column that is mostly 0 it is
#: 3 (deviation / mean)^2.
_KURTOSIS, _OF_RARE = 9.0, 3.0

#: Values have several signs where their deviation over the mean is so many times the root of their number.
_ONE_SIGN = 1.5

#: Means and deviations that sites send are rounded to this part of a deviation at most, over the number of cells.
_ROUNDED = 4.0


class Cells(NamedTuple):
    """Known cells of a column: how many, their mean and standard deviation."""

    number: float
    mean: float
    deviation: float


class Varying(NamedTuple):
    """How much means, and logarithms of deviations, vary from site to site, as standard deviations; 0 where unknown."""

    mean: float = 0.0
    deviation: float = 0.0


#: Sites of which it is not known how much they vary.
_ALIKE = Varying()


class Odd(NamedTuple):
    """What is odd: a place in `ODDITIES`, and what is said of it."""

    code: int
    said: str


def oddity(own: Cells, others: Cells, varying: Varying = _ALIKE, unit: str = "") -> Odd | None:
    """Return what is odd about a column beside that of others; None for nothing. Factors that do not go with its unit are not named."""
    if not own.deviation > 0 or not others.deviation > 0:
        return None
    # Many deviations, the more where few cells tell how large these are.
    unsure = 1 + _ERRORS / np.sqrt(2 * max(own.number, others.number))
    apart = bool(abs(own.mean - others.mean) > _APART * unsure * (own.deviation + others.deviation))
    # Mean and deviation both differ by more than sampling, rounding and how much sites vary explain.
    if apart or (_deviates(own, others, varying) and (_flat(own, others) or _means_differ(own, others, varying))):
        if (named := _known(own, others, unit)) is not None:
            return Odd(named, ODDITIES[named])
        if (ratio := _same_ratio(own, others)) is not None:
            smaller, digits = ratio <= 1, float(f"{max(ratio, 1 / ratio):.2g}")
            return Odd(_SEVERAL + smaller, _RATIO.format(f"about {digits:,.10g}", "smaller" if smaller else "larger"))
    if (explaining := _explaining(own, others, varying, unit)) is not None:
        return Odd(explaining, ODDITIES[explaining])
    if (far := far_cells(own, others, varying)) is not None:
        return far
    return Odd(ELSEWHERE, ODDITIES[ELSEWHERE]) if apart else None


def far_cells(own: Cells, others: Cells, varying: Varying = _ALIKE) -> Odd | None:
    """Return that a few cells are far from all others; None where they are not, as of others without a deviation."""
    return (
        Odd(FAR_CELLS, ODDITIES[FAR_CELLS]) if _has_far_cells(own, others) and _deviates(own, others, varying) else None
    )


def says_smaller(odd: Odd) -> bool:
    """Return whether it is that of a column that is smaller than elsewhere."""
    return odd.code < _FAHRENHEIT and odd.code % 2 == 1


def may_be_mixed(own: Cells, others: Cells) -> bool:
    """Return whether one of the other sites, not this one, may have the other unit.

    Their deviation then grows more than their mean does; of columns about 0 nobody can say it.
    """
    return _flat(own, others) or others.deviation * abs(own.mean) > _MIXED * own.deviation * abs(others.mean)


def _has_far_cells(own: Cells, others: Cells) -> bool:
    """Return whether a few cells, far from all others, explain a deviation much larger than that of the others.

    A share p of cells at a distance D moves the mean by p D and makes the variance p (1 - p) D^2.
    """
    shift, variance = (own.mean - others.mean) ** 2, own.deviation**2
    if _mostly_zero(own, others) and _not_zero(others) < _NOT_ZERO:
        return False
    return own.deviation > _FAR * others.deviation and shift < _FEW * (shift + variance)


def _known(own: Cells, others: Cells, unit: str) -> int | None:
    """Return the place of the known factor, or of Fahrenheit, that both ratios agree with best; None where none is near."""
    spread = _log(own.deviation, others.deviation)
    if _flat(own, others):  # one number is left, so it must be a large factor
        found = min(_named_for(unit, 2 * len(UNITS)), key=lambda i: abs(spread - _factor(i)))
        factor = _factor(found)
        if abs(spread - factor) >= _NEAR_DEVIATION or abs(factor) < np.log(_LARGE):
            return None
        return found if not _mostly_zero(own, others) or _shown_by_others_than_zeros(own, others, factor) else None
    center = _log(own.mean, others.mean)
    off = {i: max(abs(spread - _factor(i)), abs(center - _factor(i))) for i in _named_for(unit)}
    if goes_with(1.8, unit):
        off[_FAHRENHEIT] = min(_from_fahrenheit(own, others), _from_fahrenheit(others, own))
    best = min(off, key=lambda i: off[i])
    if best < _SEVERAL and abs(_factor(best)) < np.log(_LARGE) and _overlap(own, others):
        return None
    if off[best] <= (_NEAR_SAME if best == _FAHRENHEIT else _NAMED):
        return best
    around = _NEAR_SAME if abs(spread - center) <= _SAME else _NEAR_DEVIATION
    powers = [
        i for i in range(2 * len(_TENS)) if abs(spread - _factor(i)) < around and abs(center - _factor(i)) < _NEAR_MEAN
    ]
    return min(powers, key=lambda i: off[i]) if powers else None


def _explaining(own: Cells, others: Cells, varying: Varying, unit: str) -> int | None:
    """Return the place of the known factor that explains about both ratios where no value occurs in both; None for none.

    That the means are apart is certain here, so the deviations need not differ by more than their own sampling, which is large.
    """
    if (
        min(own.number, others.number) < _LEAST
        or _flat(own, others)
        or _overlap(own, others)
        or not _means_differ(own, others, varying)
    ):
        return None
    spread, center = _log(own.deviation, others.deviation), _log(own.mean, others.mean)
    sampled = np.sqrt(
        (1 / own.number + 1 / others.number) / 2
    )  # one standard error of the deviations' ratio, of normal values
    off = {i: max(abs(spread - _factor(i)) - sampled, abs(center - _factor(i))) for i in _named_for(unit)}
    best = min(off, key=lambda i: off[i])
    return best if off[best] <= _EXPLAINED else None


def _named_for(unit: str, most: int = _SEVERAL) -> list[int]:
    """Return the places of known factors, among the first ones, that go with the unit of a column."""
    return [i for i in range(most) if goes_with(float(np.exp(_factor(i))), unit)]


def _factor(odd: int) -> float:
    """Return the logarithm of the known factor at a place in `ODDITIES`."""
    factor = float(np.log(list(_KNOWN)[odd // 2]))
    return -factor if odd % 2 else factor


def _from_fahrenheit(warm: Cells, cold: Cells) -> float:
    """Return how far the logarithms of mean and deviation are from those of the others' values in Fahrenheit.

    Only where the 32 degrees between both zeros are several times their deviation: 78 kg are as many pounds as 78 degrees are in
    Fahrenheit, but weights vary more.
    """
    if _DEGREES * warm.deviation >= 32 or 1.8 * cold.mean + 32 <= 0:
        return np.inf
    return max(abs(_log(warm.deviation, 1.8 * cold.deviation)), abs(_log(warm.mean, 1.8 * cold.mean + 32)))


def _same_ratio(own: Cells, others: Cells) -> float | None:
    """Return the ratio by which both mean and deviation differ; None where they differ by other ones."""
    if _flat(own, others):
        return None
    spread, center = _log(own.deviation, others.deviation), _log(own.mean, others.mean)
    if abs(spread - center) > _SAME or min(abs(spread), abs(center)) < np.log(_SMALLEST) or _overlap(own, others):
        return None
    return float(np.exp((spread + center) / 2))


def _means_differ(own: Cells, others: Cells, varying: Varying) -> bool:
    """Return whether means of columns not about 0 differ by more than sampling, rounding and how much sites vary explain."""
    relative = max(cells.deviation / abs(cells.mean) if cells.mean else np.inf for cells in (own, others))
    parts = 1 / own.number + 1 / others.number
    of_mean = relative * (_ERRORS * np.sqrt(parts) + _ROUNDED * parts)
    different = abs(_log(own.mean, others.mean)) > of_mean
    return bool(different and abs(own.mean - others.mean) > _ERRORS * varying.mean)


def _deviates(own: Cells, others: Cells, varying: Varying) -> bool:
    """Return whether deviations differ by more than sampling, rounding and how much sites vary explain."""
    parts, kurtosis = 1 / own.number + 1 / others.number, max(_KURTOSIS, _OF_RARE * _rarity(own, others) ** 2)
    error = np.hypot(np.sqrt((kurtosis - 1) / 4 * parts), varying.deviation)
    return bool(abs(_log(own.deviation, others.deviation)) > _ERRORS * error + _ROUNDED * parts)


def _rarity(own: Cells, others: Cells) -> float:
    """Return how large the deviation is over the mean where values may all have one sign; 0 where some have another.

    Of n values that are not negative it is at most the root of n, as the squares' sum is at most the squared sum. Rounding of
    single values beside zeros is allowed for.
    """
    found = []
    for cells in (own, others):
        relative = cells.deviation / (abs(cells.mean) + _ROUNDED / cells.number * cells.deviation)
        if relative > _ONE_SIGN * np.sqrt(cells.number):
            return 0.0
        found.append(float(relative))
    return max(found)


def _overlap(own: Cells, others: Cells) -> bool:
    """Return whether many values occur at both, so that other patients explain another mean and deviation as well as a unit."""
    return abs(own.mean - others.mean) < own.deviation + others.deviation


def _flat(own: Cells, others: Cells) -> bool:
    """Return whether both means are 0 within what deviates, so that they say nothing about a unit."""
    return abs(own.mean) < 0.5 * own.deviation and abs(others.mean) < 0.5 * others.deviation


def _mostly_zero(own: Cells, others: Cells) -> bool:
    """Return whether columns with such means may be 0 for most rows and of one sign for the others, since one mean surely has a sign."""
    sure = (abs(cells.mean) * np.sqrt(cells.number) > _ERRORS * cells.deviation for cells in (own, others))
    return own.mean * others.mean > 0 and any(sure)


def _shown_by_others_than_zeros(own: Cells, others: Cells, factor: float) -> bool:
    """Return whether cells that are not 0 show a factor's logarithm; more of them at one site, or one very large, are no other unit.

    The mean of squares over the mean has no part of the zeros. The mean of all cells must show the same factor.
    """
    squares = [(cells.deviation**2 + cells.mean**2) / cells.mean for cells in (own, others)]
    off = max(abs(_log(*squares) - factor), abs(_log(own.mean, others.mean) - factor))
    return min(map(_not_zero, (own, others))) >= _NOT_ZERO and off < _NEAR_DEVIATION


def _not_zero(cells: Cells) -> float:
    """Return a number of cells that are not 0 at least: the squared sum over the sum of squares."""
    return cells.number * cells.mean**2 / (cells.deviation**2 + cells.mean**2)


def _log(value: float, expected: float) -> float:
    """Return the logarithm of a ratio; infinite where it is none of two numbers of one sign."""
    return float(np.log(value / expected)) if value * expected > 0 else np.inf
