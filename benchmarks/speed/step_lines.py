"""What is timed of the other steps: updates of Lloyd, fuzzy c-means, projections, fits, gaps, quality and sums of differential privacy."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from benchmarks.speed import twins
from benchmarks.speed.server_lines import centres
from benchmarks.speed.server_measure import Line, Trial
from flareclust._foundation.typing import FloatArray, never_abort
from flareclust.core import assessment, kpod
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.fuzzy import fuzzy_cmeans
from flareclust.core.local import lloyd_update
from flareclust.core.proxies import gaussian_factor
from flareclust.core.spectral import projected

_TWIN = "plain NumPy"

#: Of fuzzy c-means.
_STEPS = 5


def _update(n: int, d: int, k: int) -> Trial:
    X = centres(n, d, k, 0.1)
    C = X[:k] + 0.01

    def ours() -> FloatArray:
        return lloyd_update(X, C, min_count=5).centroids

    return Trial(ours, lambda: twins.lloyd_update(X, C), 1, lambda: _close(ours(), twins.lloyd_update(X, C)))


def _fuzzy(n: int, d: int, k: int, m: float) -> Trial:
    X = centres(n, d, k, 0.1)

    def ours() -> FloatArray:
        return fuzzy_cmeans(X, X[:k] + 0.01, m, max_iter=_STEPS, tol=0).centroids

    def plain() -> FloatArray:
        C = X[:k] + 0.01
        for _ in range(_STEPS):
            C = twins.fuzzy_step(X, C, m)
        return C

    return Trial(ours, plain, 1, lambda: _close(ours(), plain()))


def _singular(n: int, d: int, k: int) -> Trial:
    X = centres(n, d, k, 0.1)

    def close() -> str:
        return _close(np.abs(projected(X, k)), np.abs(twins.singular_projection(X, k)))

    return Trial(lambda: projected(X, k), lambda: twins.singular_projection(X, k), 1, close)


def _gaussian(n: int, d: int) -> Trial:
    X = centres(n, d, 5, 0.1)

    def close() -> str:
        ours, plain = gaussian_factor(X), twins.covariance_factor(X)
        return _close(ours.T @ ours, plain.T @ plain)

    return Trial(lambda: gaussian_factor(X), lambda: twins.covariance_factor(X), 1, close)


def _gaps(n: int, d: int, k: int) -> Trial:
    rng = np.random.default_rng(0)
    X = centres(n, d, k, 0.1)
    X[rng.random(X.shape) < 0.2] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    start = np.nan_to_num(X[:k]) + 0.01
    data = kpod.Observed(np.nan_to_num(X), (~np.isnan(X)).astype(float))
    fit = kpod.Fit(start, np.zeros(len(X), np.int64), 0.0)

    def close() -> str:
        return _close(kpod.move(data, fit).centroids, twins.kmeans_of_known(X, start)[1])

    return Trial(lambda: kpod.move(data, fit), lambda: twins.kmeans_of_known(X, start), 1, close)


def _silhouette(n: int, d: int, k: int) -> Trial:
    X = centres(n, d, k, 0.1)
    C = X[:k] + 0.01
    return Trial(
        lambda: assessment.assessment_sums(X, C),
        lambda: twins.silhouette_sums(X, C),
        1,
        lambda: _close(assessment.assessment_sums(X, C)[1]["silhouette"], twins.silhouette_sums(X, C)),
    )


def _private(n: int, d: int, k: int) -> Trial:
    X = centres(n, d, k, 0.1)
    C, radii = X[:k] + 0.01, np.full(k, 0.5)
    box = Box(np.full(d, -0.5), np.full(d, 1.5))

    def ours() -> FloatArray:
        return dp_sums.cluster_sums(X, box, C, radii, never_abort).astype(float)

    def plain() -> FloatArray:
        return twins.bounded_sums(X, box.low, box.high, C, radii).astype(float)

    return Trial(ours, plain, 1, lambda: _close(ours(), plain()))


def _close(found: FloatArray, plain: FloatArray) -> str:
    if np.array_equal(found, plain):
        return "yes"
    return f"to {np.abs(found - plain).max() / np.abs(plain).max():.0e}"


def _shaped(
    what: str, make: Callable[..., Trial], shapes: Iterable[tuple[int, int, int]], more: str = ""
) -> Iterator[Line]:
    """Give a line for each number of rows, columns and clusters."""
    for n, d, k in shapes:
        yield Line(what, f"{n:,} rows, d = {d}, k = {k}{more}", _TWIN, 2, partial(make, n, d, k), True)


_SHAPES = ((100_000, 2, 15), (100_000, 16, 30))

LINES = (
    *_shaped("a site's update of Lloyd", _update, (*_SHAPES, (100_000, 64, 60), (20_000, 784, 60))),
    *(
        line
        for shape in _SHAPES
        for m in (2.0, 1.5)
        for line in _shaped(f"fuzzy c-means, {_STEPS} steps", partial(_fuzzy, m=m), [shape], f", m = {m}")
    ),
    *_shaped("projection on singular vectors", _singular, ((100_000, 64, 20), (2_000, 64, 10), (200, 784, 10))),
    *(
        Line("fit of a normal distribution", f"{n:,} rows, d = {d}", _TWIN, 2, lambda n=n, d=d: _gaussian(n, d), True)
        for n, d in ((100_000, 16), (10_000, 64), (100, 500))
    ),
    *_shaped("k-means with gaps, a step", _gaps, _SHAPES, ", 20 % missing"),
    *_shaped("simplified silhouette", _silhouette, (*_SHAPES, (100_000, 64, 60))),
    *_shaped("sums of differential privacy", _private, _SHAPES),
)
