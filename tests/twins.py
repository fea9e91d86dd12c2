"""Slow literal twins of FeCA's and k-FED's algorithms: plain loops, named as in the papers, one line per printed line.

They share no code with the package. Numbers may be floats or `fractions.Fraction`; with fractions the comparisons that
an algorithm makes are exact. Where a paper leaves something open, the reading that the package documents is taken, and
of equals the first.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Number = Any
Point = tuple[Number, ...]
Clusters = list[list[Point]]


# ---- geometry ----


def points(rows: Any) -> list[Point]:
    """Return the rows of an array as tuples of Python numbers."""
    return [tuple(row) for row in np.asarray(rows).tolist()]


def mu(members: Sequence[Point]) -> Point:
    """Return the mean of a set of points."""
    return tuple(sum(column) / len(members) for column in zip(*members, strict=True))


def squared(x: Point, y: Point) -> Number:
    """Return the squared Euclidean distance."""
    return sum((a - b) * (a - b) for a, b in zip(x, y, strict=True))


def distance(x: Point, y: Point) -> float:
    """Return the Euclidean distance."""
    return float(np.sqrt(float(squared(x, y))))


def first_min(candidates: Any, key: Callable[[Any], Number]) -> Any:
    """Return the first candidate with the smallest key."""
    best = None
    for candidate in candidates:
        if best is None or key(candidate) < key(best):
            best = candidate
    return best


# ---- FeCA ----


def objective(D: Sequence[Point], c: Point) -> Number:
    """Return G, equations 3 and 4."""
    return sum(squared(x, c) for x in D)


def client_update(C: list[Point], D: Clusters, after_removal: str = "drop") -> tuple[list[Point], Clusters, list[Any]]:
    """Algorithm 2, lines 3-14, on centroids C and their clusters D.

    Returns C and D as they are left, and for each the indices of the clusters at the start that it is made of.
    """
    C, D = list(C), [list(cluster) for cluster in D]
    origin: list[Any] = [(i,) for i in range(len(C))]
    while len(C) >= 2:  # line 3: no pair to look at with fewer
        # line 4
        i = first_min(range(len(C)), key=lambda i: -objective(D[i], C[i]) / len(D[i]))
        G_i = objective(D[i], C[i])
        # line 5
        pairs = [(p, q) for p in range(len(C)) for q in range(p + 1, len(C))]
        p, q = first_min(pairs, key=lambda pair: squared(C[pair[0]], C[pair[1]]))
        # line 6
        D_j = D[p] + D[q]
        c_j = mu(D_j)
        G_j = objective(D_j, c_j)
        if not G_i >= G_j:  # lines 7 and 10-11
            break
        gone = {i}
        if after_removal == "merge" and i not in (p, q):
            gone = {i, p, q}
            C, D, origin = [*C, c_j], [*D, D_j], [*origin, origin[p] + origin[q]]
        C = [c for index, c in enumerate(C) if index not in gone]  # line 8
        D = [cluster for index, cluster in enumerate(D) if index not in gone]  # line 9
        origin = [sources for index, sources in enumerate(origin) if index not in gone]
    return C, D, origin


def r_prime(C: list[Point], D: Clusters) -> list[float]:
    """Algorithm 3, line 3, and Algorithm 4, line 2."""
    return [max(distance(x, c) for x in cluster) for c, cluster in zip(C, D, strict=True)]


def radius_assign_theoretical(C: list[Point], D: Clusters) -> list[float]:
    """Algorithm 3."""
    r = r_prime(C, D)
    if len(C) == 1:
        return r
    C_tilde = list(range(len(C)))  # line 2, by index
    for i in range(len(C)):  # line 4
        if i not in C_tilde or len(C_tilde) < 2:
            continue
        j = first_min([j for j in C_tilde if j != i], key=lambda j: distance(C[i], C[j]))  # line 5
        if r[i] + r[j] > distance(C[i], C[j]):  # line 6
            C_tilde = [index for index in C_tilde if index not in (i, j)]  # line 7
    if len(C_tilde) < 2:
        C_tilde = list(range(len(C)))
    delta_min = min(distance(C[i], C[j]) for i in C_tilde for j in C_tilde if i != j)  # line 10
    return [delta_min / 2 for _ in C]  # line 11


def radius_assign_empirical(C: list[Point], D: Clusters) -> list[float]:
    """Algorithm 4."""
    r = r_prime(C, D)
    radii = []
    for i in range(len(C)):  # line 3
        others = [distance(C[i], C[j]) for j in range(len(C)) if j != i]
        radii.append(min(r[i], min(others) / 2) if others else r[i])  # lines 4-5
    return radii


def server_aggregation(k: int, C: list[Point], R: list[float]) -> tuple[list[Point], list[list[int]], list[int]]:
    """Algorithm 5 on centroids and their radii.

    Returns C*, the groups S_n behind them by index, and the index of the centroid that was picked for each.
    """
    left = list(range(len(C)))
    S: list[list[int]] = []
    picked: list[int] = []
    while left:  # line 3
        i = first_min(left, key=lambda i: -R[i])  # line 4
        S_n = [t for t in left if distance(C[t], C[i]) <= R[i]]  # line 5
        left = [t for t in left if t not in S_n]  # line 6
        S, picked = [*S, S_n], [*picked, i]
    top = sorted(range(len(S)), key=lambda n: -len(S[n]))[:k]  # line 9: a stable sort, so the first formed of equals
    return [mu([C[t] for t in S[n]]) for n in top], [S[n] for n in top], [picked[n] for n in top]


# ---- k-FED ----


def project(A: Any, k_z: int) -> Any:
    """Algorithm 1, step 2: project the rows onto the span of the k(z) leading right singular vectors; (n, d)."""
    _, _, V = np.linalg.svd(A, full_matrices=False)
    V = V[:k_z].T
    return A @ V @ V.T


def trusted_sets(A_hat: list[Point], nu: list[Point]) -> list[list[int]]:
    """Algorithm 1, step 3: S_r by index; where it is empty, the rows nearest to nu_r."""
    S = []
    for r in range(len(nu)):
        S_r = []
        for i, x in enumerate(A_hat):
            if all(distance(x, nu[r]) <= distance(x, nu[s]) / 3 for s in range(len(nu)) if s != r):
                S_r.append(i)
        if not S_r:
            S_r = [i for i, x in enumerate(A_hat) if nearest(x, nu) == r]
        S.append(S_r)
    return S


def nearest(x: Point, among: Sequence[Point]) -> int:
    """Return the index of the nearest point, the first of equally near ones."""
    index: int = first_min(range(len(among)), key=lambda index: squared(x, among[index]))
    return index


def lloyd(A: list[Point], theta: list[Point]) -> tuple[list[int], list[Point]] | None:
    """Algorithm 1, step 4: until the labels no longer change; None when a cluster loses all its rows."""
    labels: list[int] = []
    while True:
        new = [nearest(x, theta) for x in A]
        if set(new) != set(range(len(theta))):
            return None
        if new == labels:
            return labels, theta
        labels = new
        theta = [mu([x for x, label in zip(A, labels, strict=True) if label == r]) for r in range(len(theta))]


def local_kmeans(A: Any, k_z: int, approximation: Callable[[Any], Any]) -> tuple[list[int], list[Point]] | None:
    """Algorithm 1; `approximation` returns the centers nu of the projected rows (n, d)."""
    A_hat = project(A, k_z)
    S = trusted_sets(points(A_hat), points(approximation(A_hat)))
    rows = points(A)
    return lloyd(rows, [mu([rows[i] for i in S_r]) for S_r in S])


def kfed_server(k: int, Theta: list[list[Point]], z: int = 0) -> tuple[list[Point], list[list[int]]]:
    """Algorithm 2, steps 2-8, on the devices' centers Theta, M starting from those of device z.

    Returns M and for each device the set tau that each of its centers belongs to.
    """
    M = list(Theta[z])  # step 2
    everything = [theta for device in Theta for theta in device]
    while len(M) < k:  # steps 3 and 6
        theta_bar = first_min(everything, key=lambda theta: -min(squared(theta, m) for m in M))  # step 4
        M = [*M, theta_bar]  # step 5
    return M, [[nearest(theta, M) for theta in device] for device in Theta]  # step 7


def induced_clustering(U: list[list[int]], tau: list[list[int]]) -> list[list[int]]:
    """Definition 3.3: rows' clusters from each device's assignments U and its centers' sets tau."""
    return [[tau[z][s] for s in U[z]] for z in range(len(U))]
