"""Groups of similar rows, and the synthetic rows in their place: nothing is about fewer rows than the floor."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust._foundation.errors import Refusal
from flareclust.core import microaggregation
from flareclust.core.microaggregation import SMALLEST_GROUP, _synthetic_rows, groups_of, microaggregate
from flareclust.data.tables import Table
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession

FLOOR = 10


def in_groups(X, labels):
    return [X[labels == g] for g in range(labels.max() + 1)]


def as_sets(X, labels):
    return {frozenset(map(bytes, rows)) for rows in in_groups(X, labels)}


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(c, 1, (100, 3)) * [1, 50, 1e-3] for c in (0, 9, -9)])


tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 90), st.integers(1, 3)),
    elements=st.one_of(st.integers(-3, 3), st.floats(-1e6, 1e6, width=32)),
)


@settings(deadline=None)
@given(tables, st.integers(1, 15))
def test_every_group_has_the_floor_and_different_rows(X, floor):
    labels = groups_of(X, floor)
    for group in in_groups(X, labels):
        assert len(group) >= max(floor, SMALLEST_GROUP)
        assert len(np.unique(group, axis=0)) >= SMALLEST_GROUP


@settings(deadline=None)
@given(tables)
def test_synthetic_rows_have_the_groups_sizes_means_and_the_spread_within_groups(X):
    labels = groups_of(X, 4)
    made = _synthetic_rows(X, labels)
    kept = X[labels >= 0]
    assert made.shape == kept.shape
    if not len(kept):
        return
    order = np.sort(labels[labels >= 0])
    close = {"rtol": 1e-9, "atol": 1e-9 * max(1.0, np.abs(X).max())}
    for g, group in enumerate(in_groups(X, labels)):
        np.testing.assert_allclose(made[order == g].mean(axis=0), group.mean(axis=0), **close)
    within = sum(((g - g.mean(axis=0)) ** 2).sum(axis=0) for g in in_groups(X, labels))
    again = sum(((g - g.mean(axis=0)) ** 2).sum(axis=0) for g in in_groups(made, order))
    np.testing.assert_allclose(again, within, rtol=1e-6, atol=1e-9 * max(1.0, np.abs(X).max()) ** 2)


def test_a_synthetic_row_is_no_row(rows):
    (made,) = microaggregate(rows, FLOOR)
    assert np.abs(made[:, None] - rows[None]).max(axis=2).min() > 0


@pytest.mark.parametrize("n", [300, 3000])
def test_the_groups_follow_from_the_values_alone(rng, n):
    X = rng.normal(size=(n, 4))
    (made,) = microaggregate(X, FLOOR)
    (again,) = microaggregate(X[rng.permutation(n)], FLOOR)
    np.testing.assert_array_equal(made, again)


def test_units_do_not_matter(rows):
    labels = groups_of(rows, FLOOR)
    np.testing.assert_array_equal(groups_of(rows * [2.0**30, 2.0**-20, 1.0] + [0, 0, 0], FLOOR), labels)


def test_groups_are_of_similar_rows(rows):
    """Of three clusters far apart no group has rows of two; the sum of squares within is a fraction of the clusters' own."""
    labels = groups_of(rows, FLOOR)
    cluster = np.repeat(range(3), 100)
    assert all(len(set(cluster[labels == g])) == 1 for g in range(labels.max() + 1))
    scaled = rows / [1, 50, 1e-3]
    within = sum(((g - g.mean(axis=0)) ** 2).sum() for g in in_groups(scaled, labels))
    assert within < 0.45 * sum(((g - g.mean(axis=0)) ** 2).sum() for g in in_groups(scaled, cluster))


@pytest.mark.parametrize("few", [1, 2, 9])
def test_few_rows_far_from_all_others_are_left_out(rng, few):
    X = np.concatenate([rng.normal(size=(200, 2)), 1e4 + rng.normal(size=(few, 2))])
    labels = groups_of(X, FLOOR)
    assert (labels[200:] == -1).all()
    assert (labels[:200] >= 0).mean() > 0.95


def test_a_row_that_stands_out_from_its_own_group_alone_is_left_out(rng):
    """Ten rows, nine of them within a thousandth: their mean would disclose the tenth."""
    tight = [c + 1e-3 * rng.normal(size=(size, 2)) for c, size in ((0.0, 9), (100.0, 40), (-100.0, 40))]
    X = np.concatenate([[[3.0, 4.0]], *tight])
    (made,) = microaggregate(X, FLOOR)
    assert np.abs(np.abs(made[:, 0]) - 100).max() < 1


def test_one_row_repeated_makes_no_group(rng):
    same, odd = np.full((50, 2), 7.0), np.array([[8.0, 7.0]])
    assert (groups_of(same, FLOOR) == -1).all()
    assert (groups_of(np.concatenate([same, odd]), FLOOR) == -1).all()
    mixed = np.concatenate([same, rng.normal(7, 1, (30, 2))])
    assert all(len(np.unique(g, axis=0)) >= SMALLEST_GROUP for g in in_groups(mixed, groups_of(mixed, FLOOR)))


def test_one_row_repeated_with_noise_makes_no_group_either(rng):
    """Ten rows within 1e-9 of each other have a mean that is each of them, to nine digits."""
    base = rng.normal(size=(20, 3))
    (made,) = microaggregate(np.repeat(base, 10, axis=0) + 1e-9 * rng.normal(size=(200, 3)), FLOOR)
    assert np.abs(made.mean(axis=0) - base[:, None]).max() > 1e-3
    centres = made.reshape(-1, 10, 3).mean(axis=1) if len(made) % 10 == 0 else made
    assert np.abs(base[:, None] - centres[None]).max(axis=2).min() > 1e-4


def test_a_table_in_chunks_keeps_its_totals(rng, monkeypatch):
    X = rng.normal(1e6, 1, (5000, 3))
    monkeypatch.setattr(microaggregation, "CHUNK", 8 * 3 * 800)
    made = np.concatenate(list(microaggregate(X, FLOOR)))
    assert len(made) == len(X)
    np.testing.assert_allclose(made.sum(axis=0), X.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(made.var(axis=0), X.var(axis=0), rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-150, 1e139])
def test_very_small_and_very_large_values(rng, scale):
    unit = rng.normal(size=(100, 2))
    unit /= np.abs(unit).max()
    (made,), (expected,) = microaggregate(unit * scale, FLOOR), microaggregate(unit, FLOOR)
    np.testing.assert_allclose(made / scale, expected, rtol=1e-6, atol=1e-9)


# ---- at a site ----


def test_a_site_makes_its_table_once_and_by_its_own_floor(rows):
    terms, table = SiteSession(Policy(min_count=20), "job"), Table(rows, ("a", "b", "c"), salt="s")
    seen = terms.microaggregated(table)
    assert terms.microaggregated(replace(table)) is seen
    np.testing.assert_array_equal(seen.X, next(microaggregate(rows, 20)))
    assert (seen.columns, seen.salt, seen.ids) == (("a", "b", "c"), "s", None)


def test_rows_in_a_mapped_file_go_to_another_one(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    seen = SiteSession(Policy(), "job").microaggregated(Table(mapped, scratch=tmp_path))
    np.testing.assert_array_equal(seen.X, next(microaggregate(rows, 10)))
    assert [file.name for file in tmp_path.iterdir()] == ["rows.npy"]


def test_a_site_without_any_group_says_so():
    with pytest.raises(Refusal, match="no group of at least 10 rows"):
        SiteSession(Policy(), "job").microaggregated(Table(np.ones((30, 2))))
