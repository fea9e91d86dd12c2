"""The papers' set-ups for different columns: rows, columns and clusters of every site."""

import os
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.data.datasets import Dataset, load
from flareclust.data.feature_partition import split_features
from flareclust.data.partition_specs import SPECS, Spec
from tests.unit.data.partition_features_cases import SET_UPS, _clusters, _masks, _set_up, _stand_in


def _connected(edges: np.ndarray) -> bool:
    reached = np.zeros(len(edges), dtype=bool)
    reached[0] = True
    for _ in edges:
        reached |= edges[reached].any(axis=0)
    return bool(reached.all())


# Rows and columns


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ("har-a1", [0, 3]),
        ("har-a2", [0, 3]),
        ("qmnist-a1", [0, 3, 7]),
        ("dim-a1", list(range(16))),
        ("dim-a2", list(range(16))),
    ],
)
def test_every_row_of_the_classes_taken_is_at_one_site_and_no_other_row_is(spec: str, taken: list[int]) -> None:
    split, _, y, _ = _set_up(spec)
    np.testing.assert_array_equal(np.flatnonzero(np.isin(y, taken)), np.sort(np.concatenate(list(split.rows.values()))))
    assert split.k == len(taken)


@pytest.mark.parametrize(("spec", "m"), [("har-a1", 30), ("qmnist-a1", 10)])
def test_under_assumption_1_the_sites_are_of_equal_size_and_in_a_chain(spec: str, m: int) -> None:
    split, X, *_ = _set_up(spec)
    masks = _masks(split, X.shape[1])
    assert len(masks) == m
    assert np.ptp([len(rows) for rows in split.rows.values()]) <= 1
    assert masks.any(axis=0).all()
    assert (masks[1:] & masks[:-1]).any(axis=1).all()
    assert not (masks[0] & masks[-1]).any()


@pytest.mark.parametrize(("spec", "m"), [("har-a2", 30), ("qmnist-a2", 10)])
def test_under_assumption_2_a_site_is_a_person_and_all_share_a_tenth_of_the_columns(spec: str, m: int) -> None:
    split, X, y, owners = _set_up(spec)
    persons = [set(owners[rows].tolist()) for rows in split.rows.values()]
    expected = range(1, 31) if spec == "har-a2" else [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert persons == [{person} for person in expected]
    taken = np.isin(y, [0, 3] if spec == "har-a2" else [0, 3, 7])
    for person, rows in zip(expected, split.rows.values(), strict=True):
        np.testing.assert_array_equal(np.flatnonzero(taken & (owners == person)), rows)
    holders = _masks(split, X.shape[1]).sum(axis=0)
    assert sorted(set(holders)) == [1, m]
    assert (holders == m).sum() == round(0.1 * X.shape[1])


@pytest.mark.parametrize("spec", ["dim-a1", "dim-a2"])
@pytest.mark.parametrize("seed", range(12))
def test_dim_sites_hold_some_clusters_and_each_cluster_all_columns(spec: str, seed: int) -> None:
    split, X, y, _ = _set_up(spec, seed)
    masks, counts = _masks(split, X.shape[1]), _clusters(split, y)
    assert len(np.unique(masks, axis=0)) == 5
    np.testing.assert_array_equal(masks[::2], masks[1::2])
    held = (counts > 0).sum(axis=1)
    assert held.min() >= 7
    assert held.max() <= 15
    edges = (masks[:, None] & masks[None]).any(axis=2)
    for rows in counts.T:
        holders = rows > 0
        assert (holders[::2] | holders[1::2]).all()
        assert rows[holders].max() - rows[holders].min() <= 1
        assert masks[holders].any(axis=0).all()
        between = edges[np.ix_(holders, holders)]
        assert between.all() if spec == "dim-a2" else _connected(between)
    if spec == "dim-a1":
        assert not edges.all()


def test_dim_rows_are_cut_along_the_first_column_under_assumption_2_only() -> None:
    for spec, sorted_ in (("dim-a1", False), ("dim-a2", True)):
        split, X, y, _ = _set_up(spec)
        runs = []
        for cluster in range(16):
            values = [X[rows[y[rows] == cluster], 0] for rows in split.rows.values() if (y[rows] == cluster).any()]
            runs.append(all(a.max() <= b.min() for a, b in pairwise(values)))
        assert all(runs) if sorted_ else not any(runs)


def test_dim_clusters_are_at_one_or_both_holders_in_equal_measure() -> None:
    patterns = np.zeros(3)
    for seed in range(300):  # without the bounds some 45 would have a site with fewer clusters, and 5 one with all
        split, _, y, _ = _set_up("dim-a1", seed)
        held = _clusters(split, y) > 0
        assert set(held.sum(axis=1)) <= set(range(7, 16))
        first, second = held[::2], held[1::2]
        patterns += (first & ~second).sum(), (~first & second).sum(), (first & second).sum()
    # 24000 draws from three, a standard deviation of 0.003; the bounds make "both" a little likelier.
    np.testing.assert_allclose(patterns / patterns.sum(), 1 / 3, atol=0.02)


# Data sets of the paper


@cache
def _data(name: str) -> Dataset:
    if not os.environ.get("FLARECLUST_DATA"):
        pytest.skip(f"the data set {name} is read from the folder in FLARECLUST_DATA, which is not set")
    return load(name)


@pytest.mark.parametrize(
    ("spec", "name", "m", "sizes", "common", "rows"),
    [
        ("har-a1", "har", 30, {26}, {7, 8}, 3499),
        ("har-a2", "har", 30, {72, 73}, {56}, 3499),
        ("qmnist-a1", "qmnist", 10, {107}, {31, 32}, 18319),
        ("qmnist-a2", "qmnist", 10, {148, 149}, {78}, 330),
        ("dim-a1", "dim128", 10, {34}, {10, 11, 34}, 1024),
        ("dim-a2", "dim128", 10, {36}, {13, 36}, 1024),
    ],
)
def test_the_papers_set_ups_on_their_data(
    spec: str, name: str, m: int, sizes: set[int], common: set[int], rows: int
) -> None:
    data = _data(name)
    split = split_features(spec, data.X, data.y, 1, np.random.default_rng(3), data.owners)
    masks = _masks(split, data.X.shape[1])
    assert len(masks) == m
    assert masks.any(axis=0).all()
    assert set(masks.sum(axis=1)) == sizes
    assert set((masks[1:] & masks[:-1]).sum(axis=1)) == common
    assert sum(map(len, split.rows.values())) == rows
    held = (_clusters(split, data.y) > 0).sum(axis=1)
    assert held.max() <= (15 if name == "dim128" else split.k)
    assert held.min() >= (7 if name == "dim128" else split.k)


def test_the_writers_of_qmnist_are_the_lowest_with_all_three_digits() -> None:
    data = _data("qmnist")
    split = split_features("qmnist-a2", data.X, data.y, 1, np.random.default_rng(0), data.owners)
    digits: dict[int, set[int]] = {}
    for writer, digit in zip(data.owners.tolist(), data.y.tolist(), strict=True):
        digits.setdefault(writer, set()).add(digit)
    lowest = sorted(writer for writer, wrote in digits.items() if {0, 3, 7} <= wrote)[:10]
    assert [np.unique(data.owners[rows]).tolist() for rows in split.rows.values()] == [[w] for w in lowest]


def test_pixels_that_are_always_white_are_at_one_site_each() -> None:
    data = _data("qmnist")
    split = split_features("qmnist-a1", data.X, data.y, 1, np.random.default_rng(0), data.owners)
    constant = np.ptp(data.X[np.isin(data.y, [0, 3, 7])], axis=0) == 0
    assert constant.sum() == 119
    masks = _masks(split, 784)
    assert (masks[:, constant].sum(axis=0) == 1).all()
    # They are assigned evenly, too: a site at the end, with more columns of its own, has more of them.
    own = (masks & (masks.sum(axis=0) == 1)).sum(axis=1)
    np.testing.assert_allclose((masks & constant).sum(axis=1), 119 * own / own.sum(), atol=1)


# Refusals


def test_the_specifications_that_deal_columns_are_those_listed() -> None:
    assert sorted(name for name, form in SPECS.items() if form.splits_columns) == sorted(
        ["features-overlap", "features-shared", *SET_UPS]
    )
    assert {name for name, form in SPECS.items() if form.fixes_sites} == {*SET_UPS, "owners", "none"}
    assert Spec("har-a1").splits_columns
    assert not Spec("iid").splits_columns


@pytest.mark.parametrize("spec", SET_UPS)
def test_data_that_a_set_up_is_not_for_are_refused(spec: str) -> None:
    X, y, owners = _stand_in(spec)
    rng = np.random.default_rng(0)
    data = {"h": "the data set har", "q": "the data set qmnist", "d": "a dim data set"}[spec[0]]
    last = {"h": 5, "q": 9, "d": 15}[spec[0]]
    with pytest.raises(
        UserError, match=rf"'{spec}' is a set-up for {data}, with classes 0 to {last}; these data have 3"
    ):
        split_features(spec, X, y % 3, 1, rng, owners)
    with pytest.raises(UserError, match=rf"these data have {last + 1} \(c0, c1, "):
        split_features(spec, X, np.array([f"c{one}" for one in y]), 1, rng, owners)
    with pytest.raises(UserError, match=rf"'{spec}' needs a class label for every row"):
        split_features(spec, X, None, 1, rng, owners)
    with pytest.raises(
        UserError, match=rf"'{spec}' cannot give .* sites different ones of 3 columns; take data with more"
    ):
        split_features(spec, X[:, :3], y, 1, rng, owners)


@pytest.mark.parametrize("spec", ["har-a2", "qmnist-a2"])
def test_set_ups_by_person_need_to_know_whose_the_rows_are(spec: str) -> None:
    X, y, owners = _stand_in(spec)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=f"'{spec}' needs to know whose each row is"):
        split_features(spec, X, y, 1, rng)
    with pytest.raises(UserError, match="expected one owner per row"):
        split_features(spec, X, y, 1, rng, owners[:-1])


def test_too_few_rows_or_writers_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, y, owners = _stand_in("qmnist-a2")
    with pytest.raises(UserError, match=r"needs 10 writers with all of the digits 0, 3 and 7, and there are only 6"):
        split_features("qmnist-a2", X, y, 1, rng, owners // 2)
    with pytest.raises(UserError, match="'har-a1' has 30 sites, and there are only 2 rows"):
        split_features("har-a1", np.zeros((6, 40)), np.arange(6), 1, rng)
    with pytest.raises(UserError, match="'dim-a2' needs at least 10 rows of each cluster, got 2"):
        split_features("dim-a2", np.zeros((32, 25)), np.arange(32) % 16, 1, rng)
