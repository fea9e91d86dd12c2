"""Mean and variance of columns in one compiled pass each, apart from what is loaded without numba."""

from flareclust._foundation.typing import FloatArray
from flareclust.core.jit import kernel


@kernel()
def column_means(X: FloatArray, mean: FloatArray) -> None:
    """mean (d,) becomes `X.mean(axis=0)`, bit for bit for d > 1."""
    n, d = X.shape
    mean[:] = 0.0
    if d <= 3:
        b, e = d // 2, d - 1
        s0 = s1 = s2 = 0.0
        for i in range(n):
            s0 += X[i, 0]
            s1 += X[i, b]
            s2 += X[i, e]
        mean[0], mean[b], mean[e] = s0 / n, s1 / n, s2 / n
        return
    for i in range(n):
        for j in range(d):
            mean[j] += X[i, j]
    for j in range(d):
        mean[j] /= n


@kernel()
def column_moments(X: FloatArray, mean: FloatArray, variance: FloatArray) -> None:
    """mean and variance (d,) become `X.mean(axis=0)` and `X.var(axis=0)`, bit for bit for d > 1.

    One row after the other, as NumPy adds; two and three columns in registers.
    """
    n, d = X.shape
    column_means(X, mean)
    variance[:] = 0.0
    if d <= 3:
        b, e = d // 2, d - 1
        m0, m1, m2 = mean[0], mean[b], mean[e]
        s0 = s1 = s2 = 0.0
        for i in range(n):
            x, y, z = X[i, 0] - m0, X[i, b] - m1, X[i, e] - m2
            s0 += x * x
            s1 += y * y
            s2 += z * z
        variance[0], variance[b], variance[e] = s0 / n, s1 / n, s2 / n
        return
    for i in range(n):
        for j in range(d):
            deviation = X[i, j] - mean[j]
            variance[j] += deviation * deviation
    for j in range(d):
        variance[j] /= n
