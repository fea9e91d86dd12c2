"""The kernels of microaggregation beside plain NumPy: the same groups and the same order of the rows."""

import numpy as np
import pytest

from flareclust.core import microaggregation_kernels as kernels

SHAPES = [(12, 1), (30, 2), (60, 3), (200, 5)]
FLOOR, FAR = 4, 3.0


@pytest.fixture(params=range(5))
def rng(request):
    return np.random.default_rng(request.param)


def made(rng, n, d):
    """Return rows in clusters, some equal ones and, but in three columns, a few far away, and an order of them."""
    Z = rng.normal(size=(n, d)) + 4 * rng.integers(3, size=(n, 1))
    Z[: n // 12] += 0 if d == 3 else 60
    Z[-n // 6 :] = Z[-1]
    return Z, rng.permutation(n)


# ---- plain NumPy ----


def plain_without_far(Z, order, floor, far):
    """Return the order with the rows that lie far from all others at its end, and how many rows stay."""
    kept, gone = order, order[:0]
    while len(kept) >= max(floor, 2):
        n, most = len(kept), min(floor - 1, len(kept) // 2)
        away = Z[kept] - Z[kept].mean(axis=0)
        squared = (away**2).sum(axis=1)
        if most < 1 or squared.max() == 0:
            break
        first = np.argsort(-away @ away[squared.argmax()], kind="stable")[:most]
        sizes, totals = np.arange(1, most + 1), away[first].cumsum(axis=0)
        size = 1 + ((totals**2).sum(axis=1) * (1 / sizes + 1 / (n - sizes))).argmax()
        moved = np.isin(np.arange(n), first[:size])
        rest = Z[kept[~moved]]
        spread = ((rest - rest.mean(axis=0)) ** 2).sum() / len(rest)
        if ((Z[kept[moved]].mean(axis=0) - rest.mean(axis=0)) ** 2).sum() <= far**2 * spread:
            break
        kept, gone = kept[~moved], np.concatenate([kept[moved], gone])
    return np.concatenate([kept, gone]), len(kept)


def plain_axis(Y):
    """Return the axis after the steps of the power method, from that of the column with the largest variance."""
    axis = np.eye(Y.shape[1])[(Y**2).sum(axis=0).argmax()]
    for _ in range(kernels._POWER_STEPS):
        axis = Y.T @ (Y @ axis)
        axis /= np.linalg.norm(axis)
    return axis


def plain_cut(Z, order, floor):
    """Return the order along the best line, and where it is cut; 0 where it is not."""
    n, Y = len(order), Z[order] - Z[order].mean(axis=0)
    along, best, at, found = plain_axis(Y), 0.0, 0, np.arange(n)
    sizes = np.arange(floor, n - floor + 1)
    for _ in range(kernels._TRIES):
        ranked = np.argsort(Y @ along, kind="stable")
        totals = Y[ranked].cumsum(axis=0)[sizes - 1]
        gains = (totals**2).sum(axis=1) * (1 / sizes + 1 / (n - sizes))
        if not gains.max() > best * (1 + 1e-12):
            break
        best, at, found, along = gains.max(), sizes[gains.argmax()], ranked, -totals[gains.argmax()]
    return (order[found], at) if at else (order, 0)


def plain_means(Y, own, groups):
    return np.array([Y[own == g].mean(axis=0) if (own == g).any() else np.zeros(Y.shape[1]) for g in range(groups)])


def plain_refine(Y, own, groups, floor):
    """Return the groups after moves to nearer means, and swaps where a group would be too small."""
    own = own.copy()
    for _ in range(kernels._PASSES):
        before, sizes = own.copy(), np.bincount(own[own >= 0], minlength=groups)
        squared = ((Y[:, None] - plain_means(Y, own, groups)) ** 2).sum(axis=2)
        nearest, rows = squared.argmin(axis=1), np.arange(len(Y))
        gain = np.where(own >= 0, squared[rows, nearest] - squared[rows, own], 0.0)
        for i in np.argsort(gain, kind="stable"):
            a, b = own[i], nearest[i]
            if gain[i] >= 0:
                break
            if squared[i, b] >= squared[i, a]:
                continue
            if sizes[a] > floor:
                own[i] = b
                sizes += np.bincount([b], minlength=groups) - np.bincount([a], minlength=groups)
                continue
            cost = np.where(own == b, squared[:, a] - squared[:, b], np.inf)
            if cost.min() < (squared[i, a] - squared[i, b]) * (1 - 1e-9):
                own[i], own[cost.argmin()] = b, a
        if (own == before).all():
            break
    return own


def plain_different(Y):
    """Return the number of different rows, three for more."""
    kinds = []
    for y in Y:
        if all(((y - kind) ** 2).sum() > kernels._SAME for kind in kinds):
            kinds.append(y)
    return min(len(kinds), kernels._DIFFERENT)


def plain_merge_uniform(Y, own, groups):
    """Return the groups with those of too few different rows joined to the nearest ones."""
    own = own.copy()
    for g in range(groups):
        while (own == g).any() and plain_different(Y[own == g]) < kernels._DIFFERENT:
            others = [h for h in range(groups) if h != g and (own == h).any()]
            if not others:
                break
            means = plain_means(Y, own, groups)
            own[own == min(others, key=lambda h: ((means[h] - means[g]) ** 2).sum())] = g
    return own


# ---- beside the kernels ----


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_rows_far_from_all_others(rng, n, d):
    Z, order = made(rng, n, d)
    expected, kept = plain_without_far(Z, order, FLOOR, FAR)
    assert kernels._without_far(Z, order, 0, n, FLOOR, FAR) == kept
    np.testing.assert_array_equal(order, expected)


def test_the_far_rows_of_the_cases_are_found():
    """At least one case has rows to leave out, and one leaves out none."""
    kept = [plain_without_far(*made(np.random.default_rng(0), n, d), FLOOR, FAR)[1] / n for n, d in SHAPES]
    assert min(kept) < 1 == max(kept)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_the_first_rows_along_a_direction(rng, n, d):
    Z, order = made(rng, n, d)
    centre, along = Z[order[2:]].mean(axis=0), rng.normal(size=d)
    expected = 2 + np.argsort(-(Z[order[2:]] - centre) @ along, kind="stable")[:5]
    found = kernels._first(Z, order, 2, n, centre, along, 5)
    np.testing.assert_array_equal(Z[order[found]], Z[order[expected]])


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_the_principal_axis(rng, n, d):
    Z, order = made(rng, n, d)
    centre = Z.mean(axis=0)
    np.testing.assert_allclose(kernels._principal_axis(Z, order, 0, n, centre), plain_axis(Z - centre), atol=1e-9)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_a_cut(rng, n, d):
    Z, order = made(rng, n, d)
    Z += 1e-6 * rng.normal(size=(n, d))  # equal projections have an order of their last bits
    expected, at = plain_cut(Z, order, FLOOR)
    assert kernels._cut(Z, order, 0, n, FLOOR) == at
    np.testing.assert_array_equal(order, expected)


def test_equal_rows_are_not_cut():
    order = np.arange(3 * FLOOR)
    assert kernels._cut(np.ones((len(order), 2)), order, 0, len(order), FLOOR) == 0
    np.testing.assert_array_equal(order, np.arange(3 * FLOOR))


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_refinement_moves_and_swaps_the_same_rows(rng, n, d):
    Z, order = made(rng, n, d)
    groups = n // 6
    own = rng.permutation(np.arange(n) % groups)
    own[own == 0] = np.where(rng.random((own == 0).sum()) < 0.3, -1, 0)
    expected = plain_refine(Z[order], own, groups, FLOOR)
    kernels._refine(Z, order, own, groups, FLOOR)
    np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_groups_of_too_few_different_rows_are_joined(rng, n, d):
    Z = rng.integers(2, size=(n, 1)) * np.ones((1, d)) + 5 * (rng.random((n, 1)) < 0.1) * rng.normal(size=(n, d))
    order, own = rng.permutation(n), rng.integers(-1, n // 4, n)
    expected = plain_merge_uniform(Z[order], own, n // 4)
    assert (expected != own).any()
    kernels._merge_uniform(Z, order, own, n // 4)
    np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("kinds", range(1, 6))
def test_different_rows_are_counted_up_to_three(rng, kinds):
    Z = rng.normal(size=(kinds, 2))[rng.integers(kinds, size=20)]
    Z += 1e-9 * rng.normal(size=Z.shape)
    members = rng.permutation(20)[:9]
    assert kernels._different(Z, members) == plain_different(Z[members])
