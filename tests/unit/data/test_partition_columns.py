"""Sites get the columns that a split by columns asks for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.data.feature_partition import Split, _importance, split_features
from tests.unit.data.partition_features_cases import SET_UPS, _clusters, _masks, _set_up


def _graded(n: int, d: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose columns separate the classes the worse the further right they stand."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return y[:, None] * np.linspace(5, 1, d) + rng.normal(size=(n, 1)), y


def _split(spec: str, X: np.ndarray, y: np.ndarray | None, m: int, seed: int = 0) -> Split:
    return split_features(spec, X, y, m, np.random.default_rng(seed))


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
    np.testing.assert_allclose(F / F[0], _importance(X, y) / _importance(X, y)[0], rtol=1e-9)


def test_a_constant_column_is_the_least_important_and_one_that_decides_the_class_the_most() -> None:
    y = np.array([0, 0, 0, 1, 1, 1])
    useless = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    X = np.column_stack([np.full(6, 0.1), useless, 0.1 + 0.2 * y])
    assert _importance(X, y).tolist() == [-1.0, 0.0, np.inf]
    assert _importance(X, None).tolist() == [0.0, 0.0, 0.0]
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


# Refusals


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
