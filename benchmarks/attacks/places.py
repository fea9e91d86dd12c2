"""Sums of distances from chosen places, solved for the rows of a small cell by least squares.

A cell is what lies on one side of several lines. A solution of a place and its mirror images across the lines has exactly
this cell, wherever on that side the place is. So the sums of many places are about the same few rows, and more sums
than values determine them.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial.distance import cdist

from benchmarks.attacks.questions import Ask
from flareclust._foundation.typing import FloatArray
from flareclust.evaluation.scores import stack
from flareclust.protocol.task import StepName

#: Neighbours whose borders make a cell, and places per value that is sought.
_BORDERS, _PER_VALUE = 4, 2

#: Starts of a search, and how well its end must fit, in units of the sums.
_STARTS, _FITS = 6, 1e-11

#: Values that a search is tried for; beyond it finds nothing.
_MOST = 44


def distances_from_places(ask: Ask, exchanges: int, maximum: int = 1000) -> list[FloatArray]:
    """Claim the rows of small cells of two columns.

    Args:
        ask: what the site answers; of `pooled`, whose own clusters say where rows are.
        exchanges: how often the site is asked.
        most: centroids in a message.
    """
    own = ask(StepName.CLUSTER, {})
    if own is None or not len(own["counts"]):
        return []
    rng = np.random.default_rng(0)
    order = np.argsort(own["counts"], kind="stable")
    centers, sizes = own["centroids"][order], own["counts"][order]
    # A site without a policy answers with no more numbers than it has values: two a centroid and three a solution.
    maximum = min(maximum, (2 * int(sizes.sum()) - 60) * (1 + _BORDERS) // (2 * (1 + _BORDERS) + 3))
    left = list(range(len(centers)))
    claims: list[FloatArray] = []
    for _ in range(exchanges - 1):
        cells, solutions = [], list[FloatArray]()
        while left:
            some = _cell(centers, left[0], int(sizes[left[0]]), maximum, rng)
            if (len(solutions) + len(some)) * (1 + _BORDERS) > maximum:
                break
            left.pop(0)
            cells.append((len(solutions), some))
            solutions += some
        answer = ask(StepName.SCORE, stack(solutions)) if solutions else None
        if answer is None:
            break
        counts = answer["counts"][:: 1 + _BORDERS]
        sums = answer["scatter"][:: 1 + _BORDERS]
        for at, some in cells:
            own_sums, n = sums[at : at + len(some)], int(counts[at])
            if 0 < 2 * n <= min(_MOST, len(some) - 2):
                claims += _solved(np.array([one[0] for one in some]), own_sums, n, rng)
    return claims


def _cell(centers: FloatArray, c: int, size: int, maximum: int, rng: np.random.Generator) -> list[FloatArray]:
    """Return solutions with one and the same cell, about one center: each a place and its images (1 + borders, 2)."""
    own = centers[c]
    near = np.argsort(((centers - own) ** 2).sum(axis=1), kind="stable")[1 : 1 + _BORDERS]
    across = centers[near] - own
    reach = np.sqrt((across**2).sum(axis=1))
    across, borders = across / reach[:, None], (across / reach[:, None] * (own + centers[near]) / 2).sum(axis=1)
    wanted = min(max(8, _PER_VALUE * 2 * int(1.5 * size)), maximum // (1 + _BORDERS))
    places = own + reach.min() * rng.normal(size=(40 * wanted, 2))
    inside = places[(places @ across.T < borders - 1e-3 * reach).all(axis=1)][:wanted]
    return [np.vstack([p, p + 2 * (borders - across @ p)[:, None] * across]) for p in inside]


def _solved(places: FloatArray, sums: FloatArray, n: int, rng: np.random.Generator) -> Sequence[FloatArray]:
    """Return n rows (2,) with these sums of distances from the places (p, 2), where they are found."""
    middle, unit = places.mean(axis=0), float(places.std())
    at, totals = (places - middle) / unit, sums / unit

    def errors(values: FloatArray) -> FloatArray:
        off: FloatArray = cdist(at, values.reshape(n, 2)).sum(axis=1) - totals
        return off

    def slopes(values: FloatArray) -> FloatArray:
        gaps = values.reshape(n, 2)[None] - at[:, None]
        found: FloatArray = (gaps / np.sqrt((gaps**2).sum(axis=2, keepdims=True) + 1e-300)).reshape(len(at), 2 * n)
        return found

    for _ in range(_STARTS):
        start = 0.7 * rng.normal(size=2 * n)
        found = least_squares(errors, start, slopes, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=300)
        if np.abs(found.fun).max() <= _FITS * totals.max():
            rows: FloatArray = found.x.reshape(n, 2) * unit + middle
            return list(rows)
    return []
