"""What the server believes where sites may lie: who is left out, what a site counts, scores, settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.core import robust
from flareclust.preparation import settings
from flareclust.protocol import registry
from flareclust.protocol.schema import MOST_ROWS

ALGORITHMS = ("mavg", "pooled", "portfolio", "fkm", "lloyd")
TRIMMED, MEDIAN = robust.Rule("trimmed", 0.2, 1.0), robust.Rule("median", 0.2, 1.0)


def column(*values):
    return np.array(values, dtype=float)[:, None]


# What one site counts


def test_a_cap_is_a_multiple_of_the_median_sites_total():
    site = np.array([0, 0, 1, 2, 3])
    weights = np.array([4000, 8000, 10, 20, 30])  # totals 12000, 10, 20, 30: the median is 25
    assert robust.capped(weights, site, 2.0).tolist() == [17, 33, 10, 20, 30]
    assert robust.capped(weights, site, 1.0).tolist() == [8, 17, 10, 20, 25]
    np.testing.assert_allclose(robust.capped(weights.astype(float), site, 2.0)[:2], [50 / 3, 100 / 3])
    assert robust.capped(weights, site, None) is weights


def test_a_cap_takes_no_row_from_zero_and_the_last_from_none():
    assert robust.capped(np.array([0, 10**6, 1, 1, 1]), np.array([0, 0, 0, 1, 2]), 1.0).tolist() == [0, 1, 1, 1, 1]


def test_a_cap_holds_for_the_largest_counts_that_pass():
    weights = np.array([MOST_ROWS, MOST_ROWS, 50, 50, 50])
    assert robust.capped(weights, np.array([0, 0, 1, 2, 3]), 1.0).tolist() == [25, 25, 50, 50, 50]


def test_in_a_group_a_site_speaks_once_and_counts_no_more_than_the_cap():
    points = column(0, 0, 0, 1, 2, 30)
    site, labels = np.array([0, 0, 0, 1, 2, 3]), np.zeros(6, dtype=int)
    weights = np.array([1, 1, 1, 3, 300, 3])
    found = robust.site_centers(np.zeros((2, 1)), points, weights, site, labels, robust.Rule("trimmed", 0.0, 1.0))
    # Sites say 0, 1, 2 and 30, which is left out; the third counts as the median site does.
    np.testing.assert_allclose(found, [[1.0], [0.0]])


# Who is believed


def reports(m, k=4, spread=0.1, seed=0):
    """Return centroids of m honest sites, the true ones of k far apart, and who sent which."""
    rng = np.random.default_rng(seed)
    truth = 10.0 * np.array([[i, i % 2] for i in range(k)])
    return (truth + spread * rng.normal(size=(m, k, 2))).reshape(-1, 2), truth, np.repeat(np.arange(m), k)


def test_honest_sites_are_all_believed():
    points, _, site = reports(10)
    filtered = robust.filter_outliers(points, np.ones(40), site, 4, TRIMMED)
    assert filtered.kept.all()
    assert not filtered.left_out.any()


@pytest.mark.parametrize("untrusted", [1, 2, 4])
def test_sites_that_tell_something_else_are_left_out(untrusted):
    points, _, site = reports(10)
    points[site < untrusted] += 5.0  # the same lie
    filtered = robust.filter_outliers(points, np.full(40, 7), site, 4, MEDIAN)
    assert filtered.left_out.tolist() == [True] * untrusted + [False] * (10 - untrusted)
    assert filtered.kept.tolist() == (site >= untrusted).tolist()
    assert np.array_equal(filtered.points, points[filtered.kept])
    numbers, believed = filtered.summary([f"site-{i}" for i in range(10)])
    assert numbers == {"left_out": untrusted}
    assert believed.left_out.tolist() == [f"site-{i}" for i in range(untrusted)]


def _half_false(rows):
    """Return what ten sites say of four clusters, of which two say the same of one cluster, and the `rows` of each."""
    points, _, site = reports(10)
    points[[0, 4]] = [15.0, 40.0]
    weights = np.full(40, 100)
    weights[:8] = rows + rows
    return points, weights, site


@pytest.mark.parametrize("rule", [TRIMMED, MEDIAN])
def test_a_site_that_puts_its_rows_on_few_false_centroids_is_left_out(rule):
    points, weights, site = _half_false([397, 1, 1, 1])
    assert np.flatnonzero(robust.filter_outliers(points, weights, site, 4, rule).left_out).tolist() == [0, 1]
    assert np.flatnonzero(robust.filter_outliers(points, weights * 1000, site, 4, rule).left_out).tolist() == [0, 1]
    # A quarter of the rows is what a single wrong start of an honest site looks like.
    points, weights, site = _half_false([100, 100, 100, 100])
    assert not robust.filter_outliers(points, weights, site, 4, rule).left_out.any()


def test_rows_on_one_honest_centroid_do_not_hide_false_ones():
    points, _, site = reports(10)
    points[[1, 2, 3]] += 5.0
    weights = np.full(40, 100)
    weights[:4] = [397, 1, 1, 1]
    assert np.flatnonzero(robust.filter_outliers(points, weights, site, 4, TRIMMED).left_out).tolist() == [0]


def test_a_heavy_cluster_that_all_sites_have_is_no_reason_to_leave_one_out():
    points, _, site = reports(10)
    weights = np.tile([5000, 3, 2, 1], 10)
    assert not robust.filter_outliers(points, weights, site, 4, TRIMMED).left_out.any()


def test_a_single_absurd_centroid_is_left_out_and_its_site_stays():
    points, _, site = reports(5)
    points[2] = 1e139
    with np.errstate(all="raise", under="ignore"):
        filtered = robust.filter_outliers(points, np.ones(20), site, 4, TRIMMED)
    assert np.flatnonzero(~filtered.kept).tolist() == [2]
    assert not filtered.left_out.any()


def test_a_cluster_that_is_wide_at_all_sites_is_believed():
    points, _, site = reports(8, k=6)
    points[3::6] += np.random.default_rng(1).normal(scale=3.0, size=(8, 2))  # thirty times as far apart as the others
    assert robust.filter_outliers(points, np.ones(48), site, 6, TRIMMED).kept.all()


def test_an_honest_site_with_clusters_of_its_own_looks_like_a_liar():
    points, _, site = reports(8)
    points[site == 3] += np.array([0.0, 25.0])
    assert robust.filter_outliers(points, np.ones(32), site, 4, TRIMMED).left_out.tolist() == [i == 3 for i in range(8)]


def _honest_left_out():
    """Return how many of 400 honest sites are left out where each has four of twelve clusters."""
    lost = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = rng.uniform(0, 100, (12, 2))
        of_four = [truth[rng.choice(12, 4, replace=False)][rng.integers(0, 4, 8)] for _ in range(10)]
        points, site = np.concatenate(of_four) + rng.normal(size=(80, 2)), np.repeat(np.arange(10), 8)
        lost += int(robust.filter_outliers(points, np.ones(80), site, 8, TRIMMED).left_out.sum())
    return lost


def test_where_honest_sites_have_little_in_common_few_of_them_are_left_out(monkeypatch):
    lost = _honest_left_out()
    assert lost <= 24
    monkeypatch.setattr("flareclust.core.robust.SPREADS", 0.0)
    assert lost < _honest_left_out()  # since more may be strange where all are


def test_of_two_sites_nobody_can_tell_who_lies():
    points, _, site = reports(2)
    points[site == 0] += 50.0
    assert robust.filter_outliers(points, np.ones(8), site, 4, TRIMMED).kept.all()


def test_all_stay_where_too_few_would_be_left():
    points, _, site = reports(3)
    points[site == 0] += 500.0
    assert not robust.filter_outliers(points, np.ones(12), site, 8, TRIMMED).left_out[1:].any()
    assert robust.filter_outliers(points, np.ones(12), site, 9, TRIMMED).kept.all()


def test_sites_without_centroids_are_no_reason_to_fail():
    points, _, site = reports(5)
    there = site != 2
    filtered = robust.filter_outliers(points[there], np.ones(16), site[there], 4, TRIMMED)
    assert filtered.kept.all()
    assert robust.filter_outliers(points[:0], np.ones(0), site[:0], 4, TRIMMED).points.shape == (0, 2)


@examples(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.permutations(range(7)), st.sampled_from([TRIMMED, MEDIAN]))
def test_who_is_believed_follows_translations_and_does_not_know_the_order(seed, order, rule):
    rng = np.random.default_rng(seed)
    points, _, site = reports(7, seed=seed)
    points[site == 0] = rng.uniform(0, 30, (4, 2))
    where = np.concatenate([np.flatnonzero(site == i) for i in order])
    labels = np.arange(28) % 4
    there, shuffled = (
        robust.filter_outliers(points, np.ones(28), site, 4, rule),
        robust.filter_outliers(points[where], np.ones(28), site, 4, rule),
    )
    assert np.array_equal(shuffled.kept, there.kept[where])
    moved = robust.filter_outliers(points + 64.0, np.ones(28), site, 4, rule)
    assert np.array_equal(moved.kept, there.kept)
    given_ = np.zeros((4, 2))
    found = there.centers(given_, labels[there.kept])
    np.testing.assert_allclose(shuffled.centers(given_, labels[where][shuffled.kept]), found, atol=1e-6)
    np.testing.assert_allclose(moved.centers(given_, labels[moved.kept]), found + 64.0, atol=1e-6)


def test_strangeness_is_measured_against_what_lies_near():
    points = np.array([[0.0], [1.0], [0.0], [1.0], [0.0], [1.0], [0.0], [6.0]])
    site = np.repeat(np.arange(4), 2)
    quotient, absurd = robust.outlier_score(points + 1e-3 * np.arange(8)[:, None] ** 2, site)
    assert (quotient[:7] < 5).all()
    assert quotient[7] > 50
    assert absurd.tolist() == [False] * 7 + [True]


def test_the_medoid_is_in_the_middle_of_those_with_most_centroids():
    sets = [np.zeros((3, 1)), np.zeros((2, 1)), np.zeros((3, 1)), np.zeros((3, 1))]
    apart = np.abs(np.subtract.outer([0.0, 2.0, 3.0, 5.0], [0.0, 2.0, 3.0, 5.0]))
    assert robust.medoid(sets, apart) == 2  # 1, 2 and 3 away from the others, as the second is, which has fewer
    assert robust.medoid(sets[:1], apart[:1, :1]) == 0


# Scores


def score(rows, *sse):
    return {"rows": np.array(rows), "sse": np.array(sse, dtype=float)}


def test_totals_are_sums_where_nothing_is_set():
    replies = [score(10, 1.0, 2.0), score(20, 5.0, 4.0)]
    assert robust.typical_totals(replies, ["sse"], robust.PLAIN)["sse"].tolist() == [6.0, 6.0]
    assert robust.typical_totals(replies, ["sse"], robust.Rule("none", 0.4, None))["sse"].tolist() == [6.0, 6.0]


@pytest.mark.parametrize("rule", [TRIMMED, MEDIAN])
def test_a_liars_scores_do_not_turn_the_choice(rule):
    honest = [score(100, 200.0 + i, 300.0 + i) for i in range(4)]
    for liar in (score(MOST_ROWS, 1e139, 0.0), score(1, 1e139, 0.0), score(100, 1e139, 1.0)):
        total = robust.typical_totals([liar, *honest], ["rows", "sse"], rule)
        assert total["sse"][0] < total["sse"][1]
        assert total["sse"][0] == pytest.approx(2.015 * total["rows"], rel=0.01)
    assert robust.typical_totals([score(0, 0.0, 0.0), *honest], ["sse"], rule)["sse"][0] == pytest.approx(806, rel=0.01)


# Settings


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"robust": "mean"}, "robust must be one of none, trimmed, median; got 'mean'"),
        ({"robust": True}, "robust must be one of"),
        ({"trim": 0.5}, "trim must be a number of at least 0 and less than 0.5, got 0.5"),
        ({"trim": -0.1}, "trim must be"),
        ({"trim": "a"}, "trim must be"),
        ({"trim": float("nan")}, "trim must be"),
        ({"trim": True}, "trim must be"),
        ({"cap": 0}, "cap must be a number greater than 0, or None, got 0"),
        ({"cap": float("inf")}, "cap must be"),
        ({"cap": float("nan")}, "cap must be"),
        ({"cap": "2"}, "cap must be"),
        ({"cap": True}, "cap must be"),
    ],
)
def test_bad_settings_are_reported(settings_, words):
    for name in ALGORITHMS:
        if set(settings_) <= set(registry.get(name).parameters()):
            with pytest.raises(UserError, match=words.replace("(", r"\(")):
                registry.get(name).build(3, 0, settings_)


def test_judging_sites_comes_with_a_cap_unless_one_is_set():
    def rule(**settings_):
        return settings.CappedParams(k=3, **settings_).rule

    assert rule() == robust.PLAIN
    assert rule(robust="median").cap == 1.0
    assert rule(robust="median", cap=5).cap == 5.0
    assert rule(cap=5).cap == 5.0
    assert registry.get("fkm").build(3, 0, {"robust": "median"})[1].params.cap is None  # as it was given
