"""Slow literal twins of merging and scaled distances."""

from decimal import Decimal

import numpy as np

NAN = float("nan")


def lists(points):
    return [[None if np.isnan(v) else Decimal(float(v)) for v in row] for row in np.asarray(points)]


def common(*points):
    return [f for f in range(len(points[0])) if all(p[f] is not None for p in points)]


def twin_phi(x, y, phi):
    if phi == "euclidean":
        return sum((a - b) ** 2 for a, b in zip(x, y, strict=True)).sqrt()
    xx, yy = sum(a * a for a in x), sum(b * b for b in y)
    if xx == 0 or yy == 0:
        return Decimal(int(xx != yy))
    found = 1 - sum(a * b for a, b in zip(x, y, strict=True)) / (xx * yy).sqrt()
    return found if abs(found) > Decimal("1e-30") else Decimal(0)  # what 50 digits cannot hold


def twin_extremes(points):
    columns = [[v for v in column if v is not None] for column in zip(*points, strict=True)]
    return [max(c) if c else None for c in columns], [min(c) if c else None for c in columns]


def twin_contrasts(centroids):
    """The extremes of entries that two centroids know, or that belong to one which shares none with another."""
    shared = [m for m in range(len(centroids[0])) if sum(c[m] is not None for c in centroids) > 1]
    loners = [c for c in centroids if all(c[m] is None for m in shared)]
    counted = set(shared) | {m for c in loners for m in range(len(c)) if c[m] is not None}
    high, low = twin_extremes(centroids)
    return [[x if m in counted else None for m, x in enumerate(side)] for side in (high, low)]


def twin_distance(x, y, over, phi):
    """Equations 2 and 3; None without a common entry in which the extremes differ."""
    high, low = over
    entries = common(x, y, high)
    if phi == "euclidean":
        entries = [f for f in entries if high[f] - low[f] > Decimal("1e-12") * max(abs(high[f]), abs(low[f]))]
    if not entries:
        return None
    x, y, high, low = ([p[f] for f in entries] for p in (x, y, high, low))
    divisor = twin_phi(high, low, phi)
    return twin_phi(x, y, phi) / divisor if divisor > (0 if phi == "euclidean" else Decimal("1e-12")) else None


def twin_merge(members, counts):
    """Equation 4 as corrected."""
    merged = []
    for f in range(len(members[0])):
        above = sum(n * c[f] for c, n in zip(members, counts, strict=True) if c[f] is not None)
        less_than = sum(n for c, n in zip(members, counts, strict=True) if c[f] is not None)
        merged.append(above / max(1, less_than) if less_than else None)
    return merged
