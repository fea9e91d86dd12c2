"""Paired measurement: contenders take turns in one process, in CPU time at one thread, in wall time at more."""

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.speed.cases import Case, rows_of, start_of
from benchmarks.speed.contenders import Contender, Found, Input
from benchmarks.speed.server_measure import peak
from flareclust._foundation.typing import FloatArray

#: Seconds before a measurement: threads of OpenMP, which scikit-learn, oneDAL and faiss use, turn for some milliseconds after their work.
_REST = 0.05


def measured(case: Case, contenders: Mapping[str, Contender], rounds: int, threads: int = 1) -> list[dict[str, Any]]:
    """Return one line per contender: the first is what ratios and labels are compared with.

    They may use so many `threads`, which the caller limits.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    X, weights = rows_of(case)
    given = Input(case, X, weights, start_of(case, X))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, Found] = {}
    for turn in range(rounds + 1):  # turn 0 compiles, and fills caches
        for name, contender in contenders.items():
            if turn == 0 and given.X.size > 20_000_000 and name != "flareclust":
                continue
            time.sleep(_REST)
            started = clock()
            for _ in range(case.fits):
                found[name] = contender(given)
            seconds[name].append(clock() - started)
    first = next(iter(contenders))
    # Of float32 rows the largest memory is measured, too, in one more turn.
    memory = {name: peak(lambda run=run: run(given)) for name, run in contenders.items()} if case.single else {}
    return [
        {
            "case": case.name,
            "contender": name,
            "seconds": statistics.median(seconds[name][-rounds:]) / case.fits,
            "ratio": statistics.median(
                a / b for a, b in zip(seconds[first][-rounds:], seconds[name][-rounds:], strict=True)
            ),
            "inertia": inertia(X, weights, found[name].centroids),
            "equal": float(np.mean(found[name].labels == found[first].labels)),
            "iterations": found[name].iterations,
            **({"memory": memory[name] / X.nbytes} if memory else {}),
        }
        for name in contenders
    ]


def inertia(X: FloatArray, weights: FloatArray | None, centroids: FloatArray) -> float:
    """Return the weighted sum of squared distances to the nearest centroid, in float64 about the rows' mean."""
    origin = X.mean(axis=0, dtype=np.float64)
    C, total = centroids - origin, 0.0
    for start in range(0, len(X), 10_000):
        Y = X[start : start + 10_000] - origin
        nearest = ((C**2).sum(axis=1) - 2 * Y @ C.T).argmin(axis=1)
        squared = ((Y - C[nearest]) ** 2).sum(axis=1)
        total += float(squared.sum() if weights is None else weights[start : start + 10_000] @ squared)
    return total
