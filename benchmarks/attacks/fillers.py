"""Cells that no group shows, computed from what stands in the place of missing ones.

A value in the place of missing cells that is a mean over more cells than the groups show tells the sum of the others: with n rows
shown, of which the column's mean is m, and this value f, h hidden cells add up to n (f - m) + h f. The same holds for whatever
was taken off values before they were shown, with h = 0.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.attacks.case import CURIOUS, IN_PROCESS, MALICIOUS, Case, Found, number
from benchmarks.attacks.differencing import CLOSE, tapped
from benchmarks.attacks.server import group_sums
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.microaggregation import grouped, in_order
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get

_FLOOR, _TABLES = Policy().min_count, 4

#: Most hidden cells of a column that an attack adds up, and the digits of a laboratory value.
_HIDDEN, _DECIMALS = 3, 2

_GIVEN = "all groups given"


def behind_fillers(sums: FloatArray, sizes: FloatArray, cells: FloatArray) -> list[FloatArray]:
    """Claim hidden cells of each column, with each group's mean for the filler.

    Args:
        sums: of what the groups show (g, d).
        sizes: of the groups (g,).
        cells: their known cells in each column (g, d), which may be what a filler was weighted by.
    """
    claims = []
    for means, known in zip((sums / sizes[:, None]).T, cells.T, strict=True):
        weights = (sizes, known, np.where(2 * known >= _FLOOR, known, 0.0), np.where(2 * known >= _FLOOR, sizes, 0.0))
        claims.append(np.concatenate([_claims(means, own, np.arange(_HIDDEN + 1)) for own in weights]))
    return claims


def _claims(means: FloatArray, weights: FloatArray, hidden: IntArray) -> FloatArray:
    """Claim what h hidden cells of a column add up to, of each h and each of the groups' means (g,)."""
    total, n = float(weights @ means), float(weights.sum())
    claims: FloatArray = (n * means - total)[:, None] + means[:, None] * hidden
    return claims.ravel()


def curious(rows: FloatArray, policy: Policy | None) -> list[FloatArray]:
    """Claim the same from the rounds of an honest job of `lloyd`, in which each cluster's mean is tried for the filler."""
    others = {site: rows + np.nanstd(rows, axis=0) * (i + 1) / 70 for i, site in enumerate(("other", "third"))}
    options = JobOptions(k=3, min_sites=1)
    with tapped() as seen:
        run_inprocess(get("lloyd"), {"missing": "mean"}, {"victim": rows, **others}, options, policy=policy)
    claims: list[list[FloatArray]] = [[] for _ in rows.T]
    for _, _, replies in seen:
        reply = replies.get("victim", {})
        if "counts" not in reply or not len(reply["counts"]):
            continue
        for own, means in zip(claims, reply["centroids"].T, strict=True):
            own.append(_claims(means, reply["counts"].astype(np.float64), np.arange(2)))
    return [np.concatenate(own) if own else np.empty(0) for own in claims]


# ---- tables ----


def with_outlying_row(seed: int) -> tuple[FloatArray, FloatArray]:
    """Return rows (121, 6) in three clusters that each lack two columns, and the row (6,) far away that none of them is near."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.uniform(-9, 9, (3, 6)) + np.array([[0.0], [40.0], [-40.0]]), 40, axis=0)
    rows += rng.normal(size=rows.shape)
    for i in range(3):
        rows[40 * i : 40 * i + 40, 2 * i : 2 * i + 2] = np.nan
    outlying = rng.uniform(3e4, 4e4, 6)
    return np.concatenate([rows, outlying[None]]), outlying


def ward(seed: int) -> tuple[FloatArray, FloatArray]:
    """Return patients (240, 5) of a ward of adults and one of children, and the value (1,) of the one that has any of a marker.

    Only adults have it measured. A tenth of the other cells is missing. The values have two decimals.
    """
    rng = np.random.default_rng(100 + seed)
    adult = np.arange(240) % 2 == 1
    rows = np.column_stack([
        np.where(adult, rng.normal(60, 9, 240), rng.normal(8, 3, 240)),
        np.where(adult, rng.normal(80, 10, 240), rng.normal(30, 6, 240)),
        rng.lognormal(1.0, 0.4, 240),
        rng.normal(90, 15, 240),
    ])  # fmt: skip
    rows[rng.random(rows.shape) < 0.1] = np.nan
    marker = np.where(adult, 0.0, np.nan)
    marker[rng.choice(np.flatnonzero(adult))] = rng.lognormal(5.0, 0.8)
    rows = np.round(np.column_stack([rows, marker]), _DECIMALS)
    return rows, np.array([np.nanmax(rows[:, -1])])


# ---- cases ----


def _right(claims: Sequence[FloatArray], values: FloatArray, tolerance: float) -> int:
    """Return how many of the values, one a column, are claimed there."""
    return sum(
        bool(np.abs(own - value).min(initial=np.inf) <= tolerance) for own, value in zip(claims, values, strict=True)
    )


def _given(rows: FloatArray) -> list[FloatArray]:
    ordered = in_order(rows)
    labels = grouped(ordered, _FLOOR)[1]
    known = [np.count_nonzero(~np.isnan(ordered[labels == g]), axis=0) for g in range(labels.max() + 1)]
    return behind_fillers(*group_sums(rows, _FLOOR), np.array(known, dtype=np.float64))


def _groups(fast: bool) -> list[Found]:
    """Compute the cells of outlying rows, and values that the p % rule moves, from groups that are given."""
    tables = 1 if fast else _TABLES
    made = [with_outlying_row(seed) for seed in range(tables)]
    right = sum(_right(_given(rows), row, CLOSE * float(row.std())) for rows, row in made)
    wards = [ward(seed) for seed in range(5 * tables)]
    values = sum(_right(_given(rows)[-1:], value, 0.5 * 10.0**-_DECIMALS) for rows, value in wards)
    return [
        Found(f"generated, {number(tables, 'table')} with an outlying row", right, 6 * tables, _GIVEN, unit="values"),
        Found(f"generated, {len(wards)} wards with a rare marker", values, len(wards), _GIVEN, unit="values"),
    ]


def _honest_jobs(fast: bool) -> list[Found]:
    """Compute the cells of outlying rows from the rounds of honest jobs."""
    tables = 1 if fast else _TABLES
    made = [with_outlying_row(seed) for seed in range(tables)]
    right = sum(_right(curious(rows, Policy()), row, CLOSE * float(row.std())) for rows, row in made)
    asked = number(tables, "job")
    title = f"generated, {number(tables, 'table')} with an outlying row"
    return [Found(title, right, 6 * tables, asked, unit="values")]


_STOPS = "what stands for missing cells follows from what groups show"

CASES = [
    Case("fillers", "all groups are known: from what they show for missing cells, cells that no group shows", MALICIOUS, IN_PROCESS,
         "24 of 24 values, 17 of 20 values (commit d86f16b)", _STOPS, _groups),
    Case("fillers-job", "the same from the rounds of `lloyd`, `missing=mean`", CURIOUS, IN_PROCESS,
         "24 of 24 values (commit d86f16b)", _STOPS, _honest_jobs),
]  # fmt: skip
