"""Rows without clusters, and p-values."""

import numpy as np
import pytest
from scipy.stats import kstest

import flareclust
from flareclust.evaluation import null_reference
from tests.unit.evaluation.choice_cases import NAN, selection_with


def sites():
    rng = np.random.default_rng(0)
    mixed = np.array([[3.0, 2, 0], [0, 1, 0], [0, 0, 5]])
    return {site: rng.normal(size=(n, 3)) @ mixed + [1, 2, 3] for site, n in (("a", 4000), ("b", 6000))}


def test_a_box_has_the_rows_of_each_site_and_their_mean_and_covariance():
    found = null_reference.reference_rows(sites(), "box", np.random.default_rng(1))
    assert {site: X.shape for site, X in found.items()} == {"a": (4000, 3), "b": (6000, 3)}
    real, drawn = (np.concatenate(list(rows.values())) for rows in (sites(), found))
    np.testing.assert_allclose(drawn.mean(axis=0), real.mean(axis=0), atol=0.2)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(real.T), atol=0.8)


def test_along_the_principal_axes_the_rows_of_a_box_are_uniform():
    real = np.concatenate(list(sites().values()))
    axes = np.linalg.svd(real - real.mean(axis=0), full_matrices=False)[2]
    drawn = np.concatenate(list(null_reference.reference_rows(sites(), "box", np.random.default_rng(1)).values()))
    for scores, own in zip(
        ((drawn - real.mean(axis=0)) @ axes.T).T, ((real - real.mean(axis=0)) @ axes.T).T, strict=True
    ):
        side = np.sqrt(12) * own.std()
        assert kstest(scores, "uniform", args=(-side / 2, side)).pvalue > 0.001


def test_a_column_that_does_not_vary_stays_as_it_is():
    X = np.column_stack([np.arange(50.0), np.full(50, 0.1)])
    drawn = null_reference.reference_rows({"a": X}, "box", np.random.default_rng(0))["a"]
    assert np.ptp(drawn[:, 1]) == 0
    assert np.ptp(drawn[:, 0]) > 10


def test_one_column_has_a_box_too():
    drawn = null_reference.reference_rows({"a": np.arange(100.0)[:, None]}, "box", np.random.default_rng(0))["a"]
    assert -3 < drawn.min() < 10
    assert 90 < drawn.max() < 102


def test_permuted_columns_hold_the_cells_of_their_site_but_not_its_rows():
    found = null_reference.reference_rows(sites(), "permuted", np.random.default_rng(1))
    for site, X in sites().items():
        np.testing.assert_array_equal(np.sort(found[site], axis=0), np.sort(X, axis=0))
        assert abs(np.corrcoef(found[site].T)[0, 1]) < 0.1 < np.corrcoef(X.T)[0, 1]


@pytest.mark.parametrize(("observed", "p"), [(5.0, 0.25), (3.0, 0.5), (0.0, 1.0)])
def test_the_real_rows_count_in_the_p_value(observed, p):
    assert null_reference.p_value(observed, np.array([1.0, 2.0, 3.0])) == p


def test_the_best_is_over_the_solutions_with_a_known_value():
    assert null_reference.best(selection_with(silhouette=[0.1, NAN, 0.4, 0.2]), "silhouette") == 0.4
    assert null_reference.best(selection_with(davies_bouldin=[0.9, 0.3, 0.5, NAN]), "davies-bouldin") == -0.3
    assert null_reference.best(selection_with(silhouette=[NAN] * 4), "silhouette") == -np.inf


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
