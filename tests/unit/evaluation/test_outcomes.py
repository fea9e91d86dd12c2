"""Survival, shares, means and tests from counts: published values, scipy on the rows themselves, and loops over rows."""

import numpy as np
import pytest
from scipy import stats

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.outcomes import OutcomeForm, counts_by_outcome, sums_by_cluster
from flareclust.evaluation.outcomes import ClusterOutcomes, outcomes_of
from flareclust.protocol import cluster_arrays as keys

#: Weeks of remission of 42 children (Freireich et al. 1963); negative where it still lasted.
TREATED = (6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35)
PLACEBO = (1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23)


def counted(
    outcomes: FloatArray, labels: IntArray, k: int, form: OutcomeForm, sites: IntArray | None = None
) -> ClusterOutcomes:
    """Return the outcomes of a result about these rows."""
    arrays: dict[str, Array] = {keys.OUTCOME_FORM: form.numbers, keys.OUTCOME_ADJUSTED: np.array(0)}
    if form.kind == "number":
        origin = float(np.nanmean(outcomes))
        n, total, squares = sums_by_cluster(outcomes, labels, k, origin)
        mean = total / np.maximum(n, 1)
        arrays[keys.OUTCOME_MOMENTS] = np.array([n, origin + mean, squares - n * mean**2])
    else:
        arrays[keys.OUTCOME_COUNTS] = counts_by_outcome(outcomes, labels, k, form)
    if sites is not None:
        parts = [counts_by_outcome(outcomes[sites == s], labels[sites == s], k, form) for s in range(sites.max() + 1)]
        arrays[keys.OUTCOME_SITE_COUNTS] = np.array(parts)
        arrays[keys.OUTCOME_SITES] = np.array([f"site-{s}" for s in range(sites.max() + 1)])
    found = outcomes_of(arrays)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def children() -> ClusterOutcomes:
    signed = np.array(TREATED + PLACEBO, dtype=np.float64)
    outcomes = np.column_stack([np.abs(signed), signed > 0]).astype(np.float64)
    return counted(outcomes, np.repeat([0, 1], 21), 2, OutcomeForm("time", every=1.0, until=35.0))


def test_kaplan_meier_has_the_published_values(children: ClusterOutcomes) -> None:
    treated = dict(zip(children.form.times.tolist(), children.survival[0].tolist(), strict=True))
    published = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {week: round(treated[week], 3) for week in published} == published
    assert children.medians.tolist() == [23, 8]
    assert children.at_risk[0, [6, 7, 10]].tolist() == [21, 17, 15]


@pytest.mark.parametrize("n", range(2, 200, 2))
def test_the_median_of_distinct_times_is_that_of_the_middle_row(n: int) -> None:
    outcomes = np.column_stack([np.arange(1.0, n + 1), np.ones(n)])
    form = OutcomeForm("time", every=1.0, until=float(n))
    assert counted(outcomes, np.zeros(n, dtype=np.int64), 1, form).medians.tolist() == [n / 2]


def test_log_rank_has_the_published_value(children: ClusterOutcomes) -> None:
    [test] = children.tests()
    assert (round(test.statistic, 2), test.degrees) == (16.79, 1)
    assert test.p == pytest.approx(4.17e-5, rel=1e-2)


def test_the_interval_is_that_of_the_logarithm_of_the_logarithm(children: ClusterOutcomes) -> None:
    low, high = children.bands
    share, spread = 18 / 21, np.sqrt(3 / (21 * 18))  # Greenwood's sum after week 6
    theta = np.exp(1.959963984540054 * spread / np.log(share))
    assert (low[0, 6], high[0, 6]) == pytest.approx((share ** (1 / theta), share**theta), abs=1e-14)
    assert low[0, 0] == high[0, 0] == 1.0
    assert np.isnan(low[1, 23])  # all have had the event


def rows(seed: int, k: int = 3, sites: int = 4) -> tuple[FloatArray, IntArray, IntArray]:
    """Return times with events, clusters and sites of 300 rows."""
    rng = np.random.default_rng(seed)
    labels, place = rng.integers(k, size=300), rng.integers(sites, size=300)
    times = np.ceil(rng.exponential(8.0 + 4 * labels + 3 * place))
    return np.column_stack([np.minimum(times, 40), rng.random(300) < 0.6]).astype(np.float64), labels, place


def log_rank_of_rows(outcomes: FloatArray, labels: IntArray, strata: IntArray, k: int) -> float:
    """Return the stratified log-rank statistic, row by row and time by time."""
    away, variance = np.zeros(k), np.zeros((k, k))
    for stratum in np.unique(strata):
        time, event = outcomes[strata == stratum].T
        own = labels[strata == stratum]
        for t in np.unique(time[event == 1]):
            n = np.array([((time >= t) & (own == c)).sum() for c in range(k)])
            d = np.array([((time == t) & (event == 1) & (own == c)).sum() for c in range(k)])
            away += d - d.sum() * n / n.sum()
            if n.sum() > 1:
                weight = d.sum() * (n.sum() - d.sum()) / (n.sum() - 1)
                variance += weight * (np.diag(n / n.sum()) - np.outer(n, n) / n.sum() ** 2)
    return float(away @ np.linalg.pinv(variance) @ away)


@pytest.mark.parametrize("seed", range(3))
def test_log_rank_is_that_of_the_rows_with_and_without_strata(seed: int) -> None:
    outcomes, labels, place = rows(seed)
    found = counted(outcomes, labels, 3, OutcomeForm("time", every=1.0, until=40.0), place)
    plain, by_site = found.tests()
    assert plain.statistic == pytest.approx(log_rank_of_rows(outcomes, labels, np.zeros(300), 3), rel=1e-9)
    assert by_site.statistic == pytest.approx(log_rank_of_rows(outcomes, labels, place, 3), rel=1e-9)
    assert plain.p == pytest.approx(stats.chi2.sf(plain.statistic, 2), rel=1e-9)


def test_shares_and_their_test_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=200)
    values = (rng.random(200) < 0.2 + 0.2 * labels).astype(np.float64)
    found = counted(values[:, None], labels, 3, OutcomeForm("category", values=2))
    table = np.array([[np.sum((labels == c) & (values == v)) for v in (0, 1)] for c in range(3)])
    [test] = found.tests()
    expected = stats.chi2_contingency(table, correction=False)
    assert (test.statistic, test.p, test.degrees) == pytest.approx((expected.statistic, expected.pvalue, 2), rel=1e-12)
    lines = found.table()
    interval = stats.binomtest(int(table[1, 1]), int(table[1].sum())).proportion_ci(method="wilson")
    assert (lines["lower"][3], lines["upper"][3]) == pytest.approx((interval.low, interval.high), rel=1e-12)


def test_an_ordered_outcome_is_tested_by_ranks() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=150)
    values = np.minimum(rng.integers(5, size=150), 2 + labels).astype(np.float64)
    [test] = counted(values[:, None], labels, 3, OutcomeForm("ordered", values=5)).tests()
    expected = stats.kruskal(*[values[labels == c] for c in range(3)])
    assert (test.statistic, test.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-12)


def test_means_and_welchs_test_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(2, size=120)
    values = 1e6 + rng.normal(labels, 1 + 2 * labels)
    found = counted(values[:, None], labels, 2, OutcomeForm("number"))
    [test] = found.tests()
    parts = [values[labels == c] for c in range(2)]
    expected = stats.ttest_ind(*parts, equal_var=False)
    assert (test.statistic, test.p) == pytest.approx((expected.statistic**2, expected.pvalue), rel=1e-6)
    lines = found.table()
    for c, part in enumerate(parts):
        ends = stats.t.interval(0.95, len(part) - 1, part.mean(), stats.sem(part))
        assert (lines["lower"][c], lines["upper"][c]) == pytest.approx(ends, rel=1e-12)


def test_clusters_without_known_outcomes_are_left_out_of_tests() -> None:
    outcomes, labels, _ = rows(0, k=2)
    form = OutcomeForm("time", every=1.0, until=40.0)
    two, three = counted(outcomes, labels, 2, form), counted(outcomes, labels, 3, form)
    assert two.tests() == three.tests()
    assert np.isnan(three.survival[2]).all()
    assert counted(outcomes, np.zeros(300, dtype=np.int64), 2, form).tests() == []


def test_clusters_that_share_no_site_are_not_compared_within_sites() -> None:
    outcomes, labels, _ = rows(1, k=4)
    place = (labels >= 2).astype(np.int64)  # two clusters at each site
    plain, by_site = counted(outcomes, labels, 4, OutcomeForm("time", every=1.0, until=40.0), place).tests()
    assert (plain.degrees, by_site.degrees) == (3, 2)
    assert by_site.statistic == pytest.approx(log_rank_of_rows(outcomes, labels, place, 4), rel=1e-9)
    assert by_site.p == pytest.approx(stats.chi2.sf(by_site.statistic, 2), rel=1e-9)


def test_clusters_of_one_row_or_without_spread_are_in_no_test_of_means() -> None:
    arrays = {keys.OUTCOME_FORM: OutcomeForm("number").numbers, keys.OUTCOME_ADJUSTED: np.array(0)}
    for moments in ([[5, 1], [2, 3], [4, 0]], [[5, 5], [2, 3], [4, 0]]):
        found = outcomes_of({**arrays, keys.OUTCOME_MOMENTS: np.array(moments, dtype=np.float64)})
        assert found is not None
        assert found.tests() == []
