"""Sites and messages of FKM that several test files use."""

import numpy as np

from tests.twins import first_min, mu, squared


def in_order(centroids):
    return centroids[np.lexsort(centroids.T[::-1])]


def assigned(X, C):
    return [first_min(range(len(C)), key=lambda c: squared(x, C[c])) for x in X]


def twin_update(X, C_g, p, local_iter):
    """Algorithm 1, lines 13-18, with the rules about rows: what is sent, as pairs of mean and count."""
    C = list(C_g)
    for _ in range(local_iter):
        S = assigned(X, C)
        groups = [[x for x, s in zip(X, S, strict=True) if s == c] for c in range(len(C))]
        groups = [group for group in groups if group]
        C = [mu(group) for group in groups]
    return [(c, len(group)) for c, group in zip(C, groups, strict=True) if may_be_sent(c, group, p)]


def may_be_sent(mean, group, p):
    return len(group) >= p and len(set(group)) > 1 and mean not in group
