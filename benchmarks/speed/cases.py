"""What is timed: rows of several shapes, the same start for every contender, and how often."""

from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray


class Case(NamedTuple):
    """One line of the tables.

    `weighted`: rows have random weights. `fits`: how many fits one measurement adds up. `single`: rows are float32.
    `starts`: of k-means, the best of which counts. `init`: how they are drawn. `goal`: how many times as fast as scikit-learn is wanted. `gemm_goal`: which
    share of the rate of a product of matrices is.
    """

    n: int
    d: int
    k: int
    max_iter: int = 300
    weighted: bool = False
    fits: int = 1
    single: bool = False
    starts: int = 1
    init: Literal["k-means++", "random"] = "k-means++"
    goal: float | None = None
    gemm_goal: float | None = None

    @property
    def name(self) -> str:
        return (
            f"{self.n},{self.d},{self.k}"
            + (",weighted" if self.weighted else "")
            + (",random" if self.init == "random" else "")
        )


#: Lloyd's algorithm from given centroids, tolerance 0, to convergence or for `max_iter` iterations.
LLOYD = (
    Case(1_000_000, 2, 15, 30, goal=12),
    Case(100_000, 2, 15, 40, goal=10),
    Case(100_000, 2, 15, 40, weighted=True, goal=1),
    Case(100_000, 3, 15, 40),
    Case(5_000, 2, 15, 40, fits=10, goal=5),
    Case(100_000, 8, 20, 30, goal=4),
    Case(100_000, 16, 30, 30, goal=2),
    Case(100_000, 16, 30, 30, weighted=True, goal=1),
    Case(1_000_000, 16, 100, 6, goal=2),
    Case(100_000, 64, 60, 15, goal=2, gemm_goal=0.55),
    Case(100_000, 64, 60, 15, weighted=True, goal=1),
    Case(100_000, 128, 1_000, 5),  # as embeddings are
    Case(100_000, 784, 60, 6, goal=2, gemm_goal=0.55),
    Case(100_000, 784, 60, 6, weighted=True, goal=1),
)
#: The same shapes without weights, at two threads by wall time.
THREADS = tuple(
    case._replace(goal=None, gemm_goal=None) for case in LLOYD if not case.weighted and case.n * case.d >= 200_000
)
#: Sites of 500 rows.
SITES = (
    Case(500, 2, 5, fits=100, goal=10),
    Case(500, 2, 15, fits=100, goal=10),
    Case(500, 16, 10, fits=100, goal=6),
    Case(500, 64, 15, fits=50, goal=2.5),
)
#: k-means++ from scikit-learn's random numbers.
SEEDS = (
    Case(1_000_000, 2, 15, goal=2.5),
    Case(100_000, 2, 15, goal=2.5),
    Case(5_000, 2, 15, fits=10, goal=2.5),
    Case(500, 2, 15, fits=50, goal=2.5),
    Case(100_000, 8, 20),
    Case(100_000, 16, 30, goal=1.5),
    Case(1_000_000, 16, 100, goal=1.5),
    Case(100_000, 64, 60, goal=1.2),
    Case(100_000, 784, 60, goal=1),
)
#: The same from float32 rows.
FLOAT32 = tuple(
    Case(n, d, k, max_iter, single=True, goal=1.5)
    for n, d, k, max_iter in (
        (1_000_000, 2, 15, 30),
        (100_000, 16, 30, 30),
        (100_000, 64, 60, 15),
        (100_000, 784, 60, 6),
    )
)
#: k-means from ten starts.
STARTS = (
    Case(5_000, 2, 15, 20, starts=10),
    Case(100_000, 2, 15, 20, starts=10),
    Case(100_000, 2, 15, 20, starts=10, init="random"),
    Case(100_000, 16, 30, 20, starts=10),
    Case(100_000, 16, 30, 20, starts=10, init="random"),
    Case(100_000, 64, 60, 20, starts=10),
)
#: The tables.
GROUPS = MappingProxyType(
    {"lloyd": LLOYD, "threads": THREADS, "float32": FLOAT32, "starts": STARTS, "sites": SITES, "seeds": SEEDS}
)
#: `--quick` leaves out what takes minutes.
QUICK_SIZE = 10_000_000


def threads_of(group: str) -> int:
    """Return how many threads the contenders of a table may use; more than one are measured by wall time."""
    return 2 if group == "threads" else 1


def rows_of(case: Case) -> tuple[FloatArray, FloatArray | None]:
    """Return rows (n, d), and weights or None.

    Up to 12 columns, overlapping normal clusters; beyond, clusters on a curved surface of 8 dimensions: bounds and
    filters gain little on either, so nobody is favoured.
    """
    rng = np.random.default_rng(case.n + case.d)
    inner = min(case.d, 8)
    centres = rng.uniform(-4, 4, (case.k, inner))
    rows = centres[rng.integers(case.k, size=case.n)] + rng.normal(size=(case.n, inner))
    if case.d > 12:
        rows = np.tanh(0.3 * rows @ rng.normal(size=(inner, case.d))) + 0.05 * rng.normal(size=(case.n, case.d))
    weights = rng.uniform(0.5, 2.0, case.n) if case.weighted else None
    return np.ascontiguousarray(rows, np.float32 if case.single else np.float64), weights


def start_of(case: Case, X: FloatArray) -> FloatArray:
    """Return k different rows to start from."""
    return X[np.random.default_rng(1).choice(case.n, case.k, replace=False)].copy()
