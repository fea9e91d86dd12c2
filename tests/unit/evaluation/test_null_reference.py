"""Rows without clusters, what is compared with them, and p-values."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest, spearmanr

import flareclust
from flareclust.core.assessment import assessment_sums
from flareclust.core.lloyd import kmeans
from flareclust.evaluation import null_reference
from flareclust.evaluation.null_reference import Comparison, NullTest

SITE = np.repeat([0, 1], [4000, 6000])


def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(10_000, 3)) @ np.array([[3.0, 2, 0], [0, 1, 0], [0, 0, 5]]) + [1, 2, 3]


def drawn(X, kind, *, site=None, categories=(), seed=1):
    site = np.zeros(len(X), dtype=np.int64) if site is None else site
    return null_reference.reference_rows(X, site, kind, categories)(np.random.default_rng(seed))


def test_a_box_has_the_mean_and_the_covariance_of_the_rows():
    real, box = rows(), drawn(rows(), "box", site=SITE)
    assert box.shape == real.shape
    np.testing.assert_allclose(box.mean(axis=0), real.mean(axis=0), atol=0.2)
    np.testing.assert_allclose(np.cov(box.T), np.cov(real.T), atol=0.8)


def test_along_the_principal_axes_the_rows_of_a_box_are_uniform():
    real, box = rows(), drawn(rows(), "box")
    axes = np.linalg.svd(real - real.mean(axis=0), full_matrices=False)[2]
    for scores, own in zip(
        ((box - real.mean(axis=0)) @ axes.T).T, ((real - real.mean(axis=0)) @ axes.T).T, strict=True
    ):
        side = np.sqrt(12) * own.std()
        assert kstest(scores, "uniform", args=(-side / 2, side)).pvalue > 0.001


@pytest.mark.parametrize("kind", null_reference.REFERENCES)
def test_a_column_that_does_not_vary_stays_as_it_is(kind):
    found = drawn(np.column_stack([np.arange(50.0), np.full(50, 0.1)]), kind)
    assert np.ptp(found[:, 1]) == 0
    assert np.ptp(found[:, 0]) > 10


@pytest.mark.parametrize("kind", null_reference.REFERENCES)
def test_one_column_has_rows_without_clusters_too(kind):
    found = drawn(np.arange(100.0)[:, None], kind)
    assert -3 < found.min() < 10
    assert 90 < found.max() < 102


def test_a_copula_keeps_rank_correlations_skewness_and_tails():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 2)) @ np.array([[1.0, 0.8], [0, 0.6]])
    X = np.column_stack([np.exp(z[:, 0]), z[:, 1], rng.standard_t(3, 3000)])
    found = drawn(X, "copula")
    np.testing.assert_allclose(spearmanr(found).statistic, spearmanr(X).statistic, atol=0.06)
    for j in range(3):
        assert kstest(found[:, j], X[:, j]).statistic < 0.03
    assert found[:, 0].max() > 0.5 * X[:, 0].max()


def test_a_column_of_two_groups_gets_one_mode():
    rng = np.random.default_rng(0)
    column = np.concatenate([rng.normal(0, 1, 300), rng.normal(10, 1, 300)])
    assert not ((column > 4) & (column < 6)).any()
    found = drawn(column[:, None], "copula")
    counts = np.histogram(found, np.linspace(-1, 11, 7))[0]
    assert counts.min() > 50
    assert column.min() <= found.min() < found.max() <= column.max()


def test_a_discrete_column_of_one_mode_keeps_its_values_in_a_copula():
    rng = np.random.default_rng(0)
    counts, binary = np.minimum(rng.poisson(1.0, 400), 4).astype(float), rng.integers(2, size=400).astype(float)
    X = np.column_stack([counts, binary])
    np.testing.assert_array_equal(np.sort(drawn(X, "copula"), axis=0), np.sort(X, axis=0))


def test_rounded_columns_of_two_groups_get_one_mode_on_the_same_grid():
    rng = np.random.default_rng(0)
    column = np.round(np.concatenate([rng.normal(0, 1, 300), rng.normal(10, 1, 300)]), 1)
    found = drawn(column[:, None], "copula")[:, 0]
    np.testing.assert_allclose(found, np.round(found, 1), atol=1e-9)
    assert np.histogram(found, np.linspace(-1, 11, 7))[0].min() > 50


def test_a_column_that_is_mostly_0_stays_so_in_a_copula():
    rng = np.random.default_rng(0)
    column = np.where(rng.random(400) < 0.7, 0.0, rng.exponential(size=400))
    found = drawn(column[:, None], "copula")
    assert (np.abs(found) < 0.02).mean() == pytest.approx(0.7, abs=0.06)
    assert kstest(found[:, 0][np.abs(found[:, 0]) > 0.02], column[column > 0.02]).pvalue > 0.01


def test_permuted_columns_hold_the_cells_of_their_site_but_not_its_rows():
    X, found = rows(), drawn(rows(), "permuted", site=SITE)
    for site in (0, 1):
        own = site == SITE
        np.testing.assert_array_equal(np.sort(found[own], axis=0), np.sort(X[own], axis=0))
        assert abs(np.corrcoef(found[own].T)[0, 1]) < 0.1 < np.corrcoef(X[own].T)[0, 1]


@pytest.mark.parametrize("kind", null_reference.REFERENCES)
def test_the_columns_of_a_category_stay_together(kind):
    rng = np.random.default_rng(0)
    which = rng.integers(3, size=200)
    X = np.column_stack([rng.normal(size=200), np.eye(3)[which]])
    found = drawn(X, kind, categories=[[1, 2, 3]])
    np.testing.assert_array_equal(found[:, 1:].sum(axis=1), 1)
    np.testing.assert_array_equal(found[:, 1:].sum(axis=0), X[:, 1:].sum(axis=0))
    assert not np.array_equal(found[:, 1:], X[:, 1:])


def test_the_silhouette_is_that_of_the_assessment():
    X = rows()[:300]
    silhouettes = null_reference.judged(X, (2, 5), np.random.default_rng(3))[0]
    rng = np.random.default_rng(3)
    for k, found in zip(range(2, 6), silhouettes, strict=True):
        centroids = kmeans(X - X.mean(axis=0), k, rng, n_init=4).centroids
        sums = assessment_sums(X - X.mean(axis=0), centroids)[1]
        assert found == pytest.approx(sums["silhouette"].sum() / 300)


def test_there_are_valleys_between_clusters_and_none_in_one_piece():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    apart = np.array([[0.0, 0], [6, 0], [0, 6]])[labels] + rng.normal(size=(300, 2))
    clusters, piece = (
        null_reference.judged(X, (2, 4), np.random.default_rng(1))[1] for X in (apart, rng.uniform(size=(300, 2)))
    )
    assert (clusters > 3).all()
    assert (piece < 2).all()


def test_valleys_do_not_depend_on_where_rows_are():
    X = rows()[:300]
    there = null_reference.judged(X + 1e6, (2, 5), np.random.default_rng(1))
    np.testing.assert_allclose(there, null_reference.judged(X, (2, 5), np.random.default_rng(1)), rtol=1e-6)


def test_a_silhouette_is_beside_those_of_the_same_k():
    runs = np.zeros((20, 2, 2))
    runs[:, 0, 0] = 0.9 + 0.01 * np.arange(20)[::-1] % 7 / 10
    runs[:, 0, 1] = 0.3 + 0.01 * np.arange(20) % 7 / 10
    runs[0, 0, 1] = 0.6
    silhouette, valleys = null_reference.compared("box", runs)
    assert (silhouette.criterion, silhouette.p) == ("silhouette", 0.05)
    assert (valleys.criterion, valleys.p) == ("valleys", 1.0)


def test_of_many_rows_some_are_drawn_in_the_order_of_their_sites():
    sites = {"a": np.zeros((4000, 1)), "b": np.ones((4000, 1))}
    X, site = null_reference.sampled(sites, np.random.default_rng(0))
    assert len(X) == 5000
    np.testing.assert_array_equal(X[:, 0], site)
    assert (np.diff(site) >= 0).all()
    assert len(null_reference.sampled({"a": np.zeros((7, 1))}, np.random.default_rng(0))[0]) == 7


@pytest.mark.parametrize(("observed", "p"), [(5.0, 0.25), (3.0, 0.5), (0.0, 1.0)])
def test_the_real_rows_count_in_the_p_value(observed, p):
    runs = np.zeros((4, 2, 1))
    runs[:, 1, 0] = observed, 1.0, 2.0, 3.0
    assert null_reference.compared("box", runs)[1].p == p


SHAPES = {
    "normal": lambda rng: rng.normal(size=(900, 3)),
    "uniform": lambda rng: rng.uniform(size=(900, 3)),
    "exponential": lambda rng: rng.exponential(size=(900, 3)),
    "two columns that agree": lambda rng: rng.normal(size=(900, 1)) * [1, 1, 0] + rng.normal(size=(900, 3)) / 5,
}


@pytest.mark.parametrize("policy", [None, {}])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_range_of_k_of_rows_without_clusters_says_that_there_may_be_none(shape, policy):
    X = SHAPES[shape](np.random.default_rng(1))
    result = flareclust.run("pooled", {site: X[i::3] for i, site in enumerate("abc")}, k=(2, 8), policy=policy)
    found = [warning for warning in result.warnings if "there may be no clusters" in warning]
    assert len(found) == 1
    assert f"before you interpret k={result.k}" in found[0]


@pytest.mark.parametrize("algorithm", ["pooled", "lloyd"])
@pytest.mark.parametrize("settings", [{}, {"scale": "standard"}])
def test_clusters_are_not_doubted(algorithm, settings):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 3)) + 7 * rng.normal(size=(4, 3))[rng.integers(0, 4, 900)]
    result = flareclust.run(algorithm, {site: X[i::3] for i, site in enumerate("abc")}, k=(2, 8), **settings)
    assert result.k == 4
    assert not any("no clusters" in warning for warning in result.warnings)


def test_all_comparisons_must_speak_for_clusters_and_the_least_sure_decides():
    null = np.zeros(19)
    for_, against = Comparison("silhouette", "box", 1.0, 0.05, null), Comparison("valleys", "copula", 0.0, 1.0, null)
    found = NullTest((2, 5), (for_, against))
    assert not found.evidence
    assert found.deciding is against
    assert found.sentence == (
        "no evidence of clusters: 19 of 19 runs on rows from columns of one mode with the same rank correlation have as deep valleys "
        "between clusters (k=2..5, p=1; 1 of 2 comparisons speak against them)"
    )
    assert replace(found, comparisons=(for_, for_)).evidence
    assert NullTest.from_json(found.to_json()).to_json() == found.to_json()


def test_the_comparison_of_an_earlier_version_can_be_read():
    earlier = {
        "criterion": "calinski-harabasz",
        "reference": "box",
        "k_range": [2, 5],
        "observed": 3.0,
        "null": [1.0, None],
    }
    found = NullTest.from_json({**earlier, "p": 1 / 3, "evidence": False})
    assert found.k_range == (2, 5)
    assert found.p == pytest.approx(1 / 3)
    assert "0 of 2 runs on rows from a uniform box have as good a calinski-harabasz" in found.sentence
