"""What is said of rows that come after a run: columns unlike those of its own rows, and rows far from every cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray
from flareclust.data.words import DAYS
from flareclust.evaluation.agreement import unlike_columns
from flareclust.evaluation.profiles import profiles_of
from flareclust.features import result as partial
from flareclust.features.placement import placements, thresholds_of
from flareclust.features.scaling import filled
from flareclust.protocol.profile_arrays import UNITS


def columns_unlike_those_of(
    arrays: Mapping[str, Array],
    params: Mapping[str, Any],
    columns: Sequence[str] | None,
    X: FloatArray,
    rows: int | None = None,
) -> list[str]:
    """Return a sentence for each column of new rows (n, d) that seems to be in another unit than in the rows of a run.

    The run knows mean and deviation of its columns from its profiles, or with `scale=standard`; else nothing is said.

    Args:
        arrays: of the result.
        params: of its algorithm.
        columns: names (d,), None where there are none.
        X: NaN where a cell is missing.
        rows: of the run, that its means and deviations are of; None where it does not say.
    """
    profiles, d = profiles_of(arrays, columns), X.shape[1]
    if profiles is not None and profiles.mean.shape[1] == d:
        cells = profiles.cells.sum(axis=0)
        center, deviation = profiles.overall
        valued = ~profiles.shares
    elif params.get("scale") == "standard" and len(arrays.get("mean", ())) == d and not params.get("categories"):
        if not rows:
            return []
        cells, valued = np.full(d, rows), np.ones(d, dtype=bool)
        center, deviation = arrays["mean"], arrays["deviation"]
    else:
        return []
    names = columns or [f"column {j + 1}" for j in range(d)]
    dates = [name for name, unit in zip(names, arrays.get(UNITS, ()), strict=False) if unit == DAYS]
    return unlike_columns(X[:, valued], (cells[valued], center[valued], deviation[valued]), _of(names, valued), dates)


def far_rows(arrays: Mapping[str, Array], about: Mapping[str, Any], X: FloatArray) -> str:
    """Return how many of new rows (n, d) are far from every cluster of a saved run; empty where that is not known.

    Args:
        arrays: of the result, `centroids` (k, d) among them.
        about: the saved summary.
        X: in the units of the data.
    """
    if partial.is_partial(arrays) or arrays["centroids"].shape[1:] != X.shape[1:] or not len(X):
        return ""
    rows = filled(arrays, X)
    known = about.get("metrics", {}).get("inertia"), (about.get("assessed") or {}).get("rows")
    thresholds = thresholds_of(arrays, *known)
    if thresholds is None or not np.isfinite(rows).all():
        return ""
    far = placements(arrays, rows, thresholds).far
    assert far is not None
    n = int(np.count_nonzero(far))
    return f"{n:,} of {len(X):,} rows ({n / len(X):.1%}) are far from every cluster"


def _of(names: Sequence[str], chosen: BoolArray) -> list[str]:
    return [name for name, known in zip(names, chosen.tolist(), strict=True) if known]
