"""Whether a site's columns fit what was agreed on them: the bounds of differential privacy, or the ranges of a schema.

For the site's own eyes: no number of rows or value leaves it, so nothing of a privacy budget is spent.
"""

from collections.abc import Sequence

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.data.cells import goes_with
from flareclust.data.schema.columns import TableSchema
from flareclust.data.tables import Table
from flareclust.evaluation.units import UNITS

#: With fewer values nothing is said of a column.
_LEAST = 20

#: Of longer columns so many rows are looked at, evenly spaced.
_LOOKED_AT = 100_000

#: From this share of values beyond the bounds on it is said; a unit factor is named that leaves a tenth of them, at most.
_BEYOND, _FEWER = 0.2, 0.1

#: A column that fills a smaller part of its bounds is in another unit where a factor makes it fill this part, and none leave them.
_NARROW, _FILLED, _FEW = 0.1, 0.25, 0.01

#: The part of the bounds that is filled is that between these quantiles, so that single values do not count.
_ENDS = (0.005, 0.995)

_FACTORS = sorted({*UNITS, *(1 / factor for factor in UNITS)}, key=lambda factor: abs(np.log(factor)))


def misfits(
    X: FloatArray, low: FloatArray, high: FloatArray, names: Sequence[str], what: str, units: Sequence[str] = ()
) -> list[str]:
    """Return a sentence for each column that piles up at its bounds, or fills a small part of them as one in another unit does.

    Rows (n, d) have NaN where a cell is missing, low and high (d,) where nothing was agreed. `what` was agreed, such as "bounds".
    A factor that does not go with a column's unit, of `units` (d,) where they are known, is not named.
    """
    rows, found = X[:: -(-len(X) // _LOOKED_AT) or 1], []
    for j, name in enumerate(names):
        values = rows[:, j][~np.isnan(rows[:, j])]
        if len(values) >= _LEAST and low[j] < high[j]:
            factors = [factor for factor in _FACTORS if goes_with(factor, units[j] if units else "")]
            said = _misfit(values, float(low[j]), float(high[j]), factors)
            if said is not None:
                found.append(f"{name!r} {said.format(what=f'{what} {low[j]:g} to {high[j]:g}')}")
    return found


def beside_ranges(schema: TableSchema | None, table: Table) -> list[str]:
    """Return which of a table's columns seem to be in another unit than the ranges of its schema, a sentence each."""
    ranges = [] if schema is None else schema.ranges
    if table.columns is None or len(ranges) != len(table.columns):
        return []
    low, high = np.array([(np.nan, np.nan) if pair is None else pair for pair in ranges], dtype=np.float64).T
    return misfits(table.X, low, high, table.columns, "schema's range", schema.feature_units if schema else ())


def _misfit(values: FloatArray, low: float, high: float, factors: Sequence[float]) -> str | None:
    """Return what is to be said of values with such bounds, `{what}` in the place of these; None for nothing."""
    beyond = _beyond(values, low, high)
    if beyond >= _BEYOND:
        shares = [_beyond(factor * values, low, high) for factor in factors]
        best = int(np.argmin(shares))
        would_fit = f"; is it in another unit? {factors[best]:.4g} times its values would fit"
        unit = would_fit if shares[best] <= _FEWER * beyond else ""
        return f"has {beyond:.0%} of its values beyond the {{what}}{unit}"
    first, last = np.quantile(values, _ENDS)
    filled = (last - first) / (high - low)
    if not 0 < filled <= _NARROW:
        return None
    fitting = [f for f in factors if f * filled >= _FILLED and _beyond(f * values, low, high) <= _FEW]
    if not fitting:
        return None
    return f"fills only {filled:.1%} of the {{what}}; is it in another unit? {fitting[0]:.4g} times its values would fit, too"


def _beyond(values: FloatArray, low: float, high: float) -> float:
    """Return the share of values that are not between the bounds."""
    return float(np.mean((values < low) | (values > high)))
