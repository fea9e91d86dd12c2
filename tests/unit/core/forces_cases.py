"""Problems and distances that the tests of attraction share."""

import numpy as np
from hypothesis import strategies as st


def phi_of(x, y, phi):
    if phi == "euclidean":
        return np.linalg.norm(x - y)
    lengths = np.linalg.norm(x), np.linalg.norm(y)
    if 0 in lengths:
        return float(lengths != (0, 0))
    return ((x / lengths[0] - y / lengths[1]) ** 2).sum() / 2  # 1 - cos without cancellation


def plain_distance(points, i, j, phi):
    """Equations 2 and 3 for one pair; None where the points are not comparable."""
    high, low = np.fmax.reduce(points, axis=0), np.fmin.reduce(points, axis=0)
    common = ~np.isnan(points[i] + points[j])
    if not common.any() or (largest := phi_of(high[common], low[common], phi)) <= 1e-12 * (phi == "cosine"):
        return None
    return phi_of(points[i, common], points[j, common], phi) / largest


@st.composite
def problems(draw):
    """Points of clusters of sites with few columns, on a grid (coinciding points, constant columns) or off it."""
    D, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    on_grid = draw(st.booleans())
    points, cluster = [], []
    for _ in range(m):
        mask = rng.random(D) < 0.5
        mask[rng.integers(D)] = True
        for _ in range(rng.integers(1, 4)):
            size = rng.integers(1, 4)
            x = rng.integers(0, 4, (size, D)).astype(float) if on_grid else 100 + rng.normal(size=(size, D))
            points.append(np.where(mask, x, np.nan))
            cluster += [len(points) - 1] * size
    points, cluster = np.concatenate(points), rng.permutation(len(points))[cluster]
    order = rng.permutation(len(points))
    return points[order], cluster[order]
