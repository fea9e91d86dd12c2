"""Sites get the columns and rows that the set-ups for different columns ask for, exactly."""

import os
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.data.datasets import Dataset, load
from flareclust.data.feature_partition import FEATURE_SPECS, Split, importance, split_features
from flareclust.data.partition import SPECS, Spec

SET_UPS = ["har-a1", "har-a2", "qmnist-a1", "qmnist-a2", "dim-a1", "dim-a2"]


def _graded(n: int, d: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose columns tell the classes apart the worse the further right they stand."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return y[:, None] * np.linspace(5, 1, d) + rng.normal(size=(n, 1)), y


def _split(spec: str, X: np.ndarray, y: np.ndarray | None, m: int, seed: int = 0) -> Split:
    return split_features(spec, X, y, m, np.random.default_rng(seed))


def _stand_in(spec: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, classes and owners such as the set-up asks for, of few columns."""
    rng = np.random.default_rng(1)
    if spec.startswith("har"):
        y, owners, d = np.tile(np.arange(6), 90), np.repeat(np.arange(1, 31), 18), 40
    elif spec.startswith("qmnist"):
        y, owners, d = np.tile(np.arange(10), 52), np.repeat(np.arange(13), 40), 30
        y[(owners % 6 == 0) & (y == 7)] = 8  # writers 0, 6 and 12 wrote no 7: ten are left
    else:
        y, owners, d = np.repeat(np.arange(16), 23), np.zeros(368, dtype=np.int64), 25
    return rng.normal(size=(len(y), d)) + 3 * rng.normal(size=(16, d))[y], y, owners


def _set_up(spec: str, seed: int = 0) -> tuple[Split, np.ndarray, np.ndarray, np.ndarray]:
    X, y, owners = _stand_in(spec)
    return split_features(spec, X, y, 1, np.random.default_rng(seed), owners), X, y, owners


def _masks(split: Split, d: int) -> np.ndarray:
    masks = np.zeros((len(split.columns), d), dtype=bool)
    for mask, columns in zip(masks, split.columns.values(), strict=True):
        mask[columns] = True
    return masks


def _clusters(split: Split, y: np.ndarray) -> np.ndarray:
    """Return (m, classes) how many rows of each class each site has."""
    return np.array([np.bincount(y[rows], minlength=y.max() + 1) for rows in split.rows.values()])


def _connected(edges: np.ndarray) -> bool:
    reached = np.zeros(len(edges), dtype=bool)
    reached[0] = True
    for _ in edges:
        reached |= edges[reached].any(axis=0)
    return bool(reached.all())


# Columns


@settings(deadline=None)  # the first run imports scipy
@given(st.integers(2, 60), st.data(), st.floats(0.01, 0.99), st.integers(0, 9))
def test_sites_in_a_chain_have_equally_many_columns_and_neighbours_some_in_common(
    d: int, data: st.DataObject, share: float, seed: int
) -> None:
    m = data.draw(st.integers(1, max(1, d - 1)))
    masks = _masks(_split(f"features-overlap:{share}", np.zeros((m, d)), None, m, seed), d)
    assert masks.any(axis=0).all()
    if m == 1:
        return
    sizes = masks.sum(axis=1)
    common = (masks[1:] & masks[:-1]).sum(axis=1)
    assert len(set(sizes)) == 1
    assert common.max() - common.min() <= 1
    assert common.min() >= 1
    assert common.max() < sizes[0]
    ideal = round(d / (1 + (m - 1) * (1 - share)))
    if (d + m - 1) / m <= ideal <= d - m + 1:  # else the share would be 0, or neighbours alike
        assert sizes[0] == ideal


@settings(deadline=None)  # the first run imports scipy
@given(st.integers(2, 60), st.data(), st.floats(0.01, 0.99), st.integers(0, 9))
def test_shared_columns_are_at_every_site_and_the_others_at_one(
    d: int, data: st.DataObject, share: float, seed: int
) -> None:
    shared = max(1, round(share * d))
    m = data.draw(st.integers(1, max(1, d - shared)))
    masks = _masks(_split(f"features-shared:{share}", np.zeros((m, d)), None, m, seed), d)
    holders = masks.sum(axis=0)
    assert (holders >= 1).all()
    if m == 1:
        return
    assert sorted(set(holders)) == [1, m]
    assert (holders == m).sum() == shared
    assert np.ptp(masks.sum(axis=1)) <= 1


@pytest.mark.parametrize(("d", "m", "share", "size"), [(561, 30, 0.3, 26), (784, 10, 0.3, 107), (10, 3, 0.5, 5)])
def test_the_overlap_is_a_share_of_a_sites_own_columns(d: int, m: int, share: float, size: int) -> None:
    masks = _masks(_split(f"features-overlap:{share}", np.zeros((m, d)), None, m), d)
    assert set(masks.sum(axis=1)) == {size}
    common = (masks[1:] & masks[:-1]).sum(axis=1)
    assert common.sum() == m * size - d
    np.testing.assert_allclose(common, share * size, atol=1.2)
    assert not (masks[2:] & masks[:-2]).any()


@pytest.mark.parametrize("spec", ["features-overlap:0.3", "features-overlap:0.7", "features-shared:0.2"])
def test_the_columns_of_several_sites_are_those_that_tell_the_classes_apart_best(spec: str) -> None:
    X, y = _graded(60, 20)
    for seed in range(5):
        holders = _masks(_split(spec, X, y, 4, seed), 20).sum(axis=0)
        assert holders[0] > 1
        assert holders[-1] == 1
        several = (holders > 1).tolist()
        assert several == sorted(several, reverse=True)


def test_columns_of_like_importance_go_to_different_sites() -> None:
    X, y = _graded(60, 29)
    for seed in range(5):
        masks = _masks(_split("features-shared:0.17", X, y, 6, seed), 29)  # 5 shared, 24 in four turns of six
        assert (masks[:, 5:].reshape(6, 4, 6).sum(axis=2) == 1).all()
        # 9 columns each, 3 of them in common with each neighbour:
        masks = _masks(_split("features-overlap:0.3", X[:, :27], y, 4, seed), 27)
        common = (masks[1:] & masks[:-1])[:, :9].reshape(3, 3, 3)
        assert (common.sum(axis=2) == 1).all()
        # A site at the end has 6 columns of its own and one in between 3, so of the best six and the rest 2 and 1.
        own = masks[:, 9:].reshape(4, 3, 6).sum(axis=2)
        np.testing.assert_array_equal([[2, 2, 2], [1, 1, 1], [1, 1, 1], [2, 2, 2]], own)


def test_without_labels_the_columns_are_in_random_order() -> None:
    X, y = _graded(60, 20)
    shared = [_masks(_split("features-shared:0.2", X, None, 4, seed), 20).all(axis=0) for seed in range(60)]
    times = np.sum(shared, axis=0)  # each column in one of five splits
    assert times.sum() == 4 * 60
    assert times.min() >= 2
    assert times.max() <= 26
    assert all(_masks(_split("features-shared:0.2", X, y, 4, s), 20)[:, :4].all() for s in range(5))


def test_importance_is_the_anova_f_up_to_a_factor() -> None:
    from sklearn.feature_selection import f_classif

    X, y = _graded(70, 6)
    X = X + np.random.default_rng(2).normal(size=X.shape)
    F = f_classif(X, y)[0]
    np.testing.assert_allclose(F / F[0], importance(X, y) / importance(X, y)[0], rtol=1e-9)


def test_a_constant_column_is_the_least_important_and_one_that_decides_the_class_the_most() -> None:
    y = np.array([0, 0, 0, 1, 1, 1])
    useless = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    X = np.column_stack([np.full(6, 0.1), useless, 0.1 + 0.2 * y])
    assert importance(X, y).tolist() == [-1.0, 0.0, np.inf]
    assert importance(X, None).tolist() == [0.0, 0.0, 0.0]
    for seed in range(5):
        split = _split("features-shared:0.1", X, y, 2, seed)
        assert all(2 in columns for columns in split.columns.values())


# Rows and columns


@pytest.mark.parametrize("spec", ["features-overlap:0.3", "features-shared:0.1"])
def test_rows_are_dealt_at_random_and_evenly(spec: str) -> None:
    X, y = _graded(103, 12)
    split = _split(spec, X, y, 5)
    assert split.k is None
    assert list(split.rows) == list(split.columns) == [f"site-{i}" for i in range(1, 6)]
    assert sorted(map(len, split.rows.values())) == [20, 20, 21, 21, 21]
    np.testing.assert_array_equal(np.arange(103), np.sort(np.concatenate(list(split.rows.values()))))
    assert (_clusters(split, y) > 0).all()
    for numbers in (*split.rows.values(), *split.columns.values()):
        assert numbers.dtype == np.int64
        assert (np.diff(numbers) > 0).all()


@pytest.mark.parametrize("spec", ["features-overlap:0.3", "features-shared:0.1", *SET_UPS])
def test_the_same_seed_gives_the_same_split_and_another_seed_other_columns(spec: str) -> None:
    def drawn(seed: int) -> Split:
        if spec in SET_UPS:
            return _set_up(spec, seed)[0]
        return _split(spec, *_graded(60, 20), 5, seed)

    first, again, other = drawn(7), drawn(7), drawn(8)
    for site in first.rows:
        np.testing.assert_array_equal(first.rows[site], again.rows[site])
        np.testing.assert_array_equal(first.columns[site], again.columns[site])
    assert any(not np.array_equal(first.columns[site], other.columns[site]) for site in first.columns)


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
    assert data.y is not None
    held = (_clusters(split, data.y) > 0).sum(axis=1)
    assert held.max() <= (15 if name == "dim128" else split.k)
    assert held.min() >= (7 if name == "dim128" else split.k)


def test_the_writers_of_qmnist_are_the_lowest_with_all_three_digits() -> None:
    data = _data("qmnist")
    assert data.y is not None
    assert data.owners is not None
    split = split_features("qmnist-a2", data.X, data.y, 1, np.random.default_rng(0), data.owners)
    digits: dict[int, set[int]] = {}
    for writer, digit in zip(data.owners.tolist(), data.y.tolist(), strict=True):
        digits.setdefault(writer, set()).add(digit)
    lowest = sorted(writer for writer, wrote in digits.items() if {0, 3, 7} <= wrote)[:10]
    assert [np.unique(data.owners[rows]).tolist() for rows in split.rows.values()] == [[w] for w in lowest]


def test_pixels_that_are_always_white_are_at_one_site_each() -> None:
    data = _data("qmnist")
    assert data.y is not None
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
    assert sorted(FEATURE_SPECS) == sorted(["features-overlap", "features-shared", *SET_UPS])
    assert {name for name, form in SPECS.items() if form.fixes_sites} == {*SET_UPS, "owners", "none"}
    assert Spec("har-a1").splits_columns
    assert not Spec("iid").splits_columns


def test_a_split_of_rows_only_is_refused() -> None:
    with pytest.raises(UserError, match=r"'iid' assigns rows only.*flareclust\.data\.partition\.partition"):
        _split("iid", np.zeros((4, 2)), None, 2)


@pytest.mark.parametrize(
    ("spec", "d", "m", "maximum"),
    [
        ("features-overlap:0.3", 4, 4, "at most 3 sites"),
        ("features-overlap:0.3", 2, 2, "at most 1 site,"),
        ("features-overlap:0.3", 1, 3, "at most 1 site,"),
        ("features-shared:0.5", 4, 3, "at most 2 sites"),
        ("features-shared:0.9", 4, 2, "at most 1 site,"),
        ("features-shared:0.1", 1, 2, "at most 1 site,"),
    ],
)
def test_more_sites_than_the_columns_allow_are_refused_with_how_many_work(
    spec: str, d: int, m: int, maximum: str
) -> None:
    with pytest.raises(
        UserError, match=rf"'{spec}' cannot give {m} sites different ones of {d} columns; take {maximum}"
    ):
        _split(spec, np.zeros((20, d)), None, m)
    works = int(maximum.split()[2])
    assert len(_split(spec, np.zeros((20, d)), None, works).columns) == works


def test_site_numbers_and_labels_that_make_no_sense_are_refused() -> None:
    X, y = _graded(6, 20)
    with pytest.raises(UserError, match=r"more sites \(7\) than rows \(6\)"):
        _split("features-shared:0.1", X, y, 7)
    with pytest.raises(UserError, match="number of sites must be an integer of at least 1, got 0"):
        _split("features-overlap:0.3", X, y, 0)
    with pytest.raises(UserError, match=r"expected one label per row, shape \(6,\), got shape \(5,\)"):
        _split("features-overlap:0.3", X, y[:5], 2)
    with pytest.raises(UserError, match="data to split"):
        _split("features-overlap:0.3", np.full((6, 3), np.nan), y, 2)


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
