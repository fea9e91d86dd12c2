"""Distributions that stand for clusters: fits against NumPy, scikit-learn, SciPy and known parameters; draws; boxes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.stats import dirichlet
from sklearn.covariance import LedoitWolf

from flareclust._foundation.errors import UserError
from flareclust.core import proxies
from flareclust.core.proxies import (
    COVARIANCES,
    box,
    dirichlet_fit,
    gaussian_factor,
    proxy_size,
    sample_dirichlet,
    sample_gaussian,
)
from tests.examples import examples

rows_of_few_columns = arrays(
    np.float64, st.tuples(st.integers(3, 8), st.integers(1, 4)), elements=st.integers(-40, 40).map(lambda v: v / 8)
)


def test_a_cluster_gets_as_many_proxies_as_rows_between_30_and_100():
    assert [proxy_size(count) for count in (0, 3, 30, 31, 99, 100, 5000)] == [30, 30, 30, 31, 99, 100, 100]
    with pytest.raises(UserError, match="count"):
        proxy_size(-1)


@pytest.mark.parametrize("shape", [(200, 5), (6, 20), (20, 20), (3, 2), (40, 1)])
def test_the_factor_of_a_covariance_is_that_of_numpy(rng, shape):
    rows = rng.normal(size=shape) @ rng.normal(size=(shape[1], shape[1])) + 7
    factor = gaussian_factor(rows, "mle")
    expected = np.cov(rows, rowvar=False, bias=True).reshape(shape[1], shape[1])
    np.testing.assert_allclose(factor.T @ factor, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())
    assert len(factor) == min(shape[0] - 1, shape[1])  # the rank: never more rows than the covariance has directions


@pytest.mark.parametrize("spread", [1.0, 1e-1, 1e-2, 1e-7])
@pytest.mark.parametrize("place", [0.0, 10.0, 1e4])
def test_a_weak_axis_keeps_its_digits_whichever_way_it_is_found(rng, spread, place):
    # Orthogonal columns about their mean, so that the covariance is known; rounding of the rows is all that is lost.
    columns = np.linalg.qr(np.column_stack([np.ones(500), rng.normal(size=(500, 3))]))[0][:, 1:] * np.sqrt(500)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    factor = gaussian_factor(columns * [1, 1, spread] @ rotation + place)
    assert len(factor) == 3
    np.testing.assert_allclose(
        np.linalg.norm(factor, axis=1), [1, 1, spread], rtol=1e-10 + 1e-14 * (1 + place) / spread
    )


def test_columns_too_large_or_too_small_to_be_squared_have_a_factor_all_the_same(rng):
    rows = rng.normal(size=(100, 2))
    for scale in (1e-170, 1e160):
        np.testing.assert_allclose(gaussian_factor(rows * scale) / scale, gaussian_factor(rows), rtol=1e-10)


@settings(deadline=None, max_examples=examples(60))
@given(
    arrays(np.float64, st.tuples(st.integers(1, 60), st.integers(1, 4)), elements=st.integers(0, 2)), st.integers(1, 4)
)
def test_columns_vary_where_enough_rows_differ_from_the_most_frequent_value(rows, least):
    others = [len(rows) - np.unique(column, return_counts=True)[1].max() for column in rows.T]
    np.testing.assert_array_equal(proxies._varying(rows, least), np.array(others) >= least)


@settings(deadline=None, max_examples=examples(60))
@given(rows_of_few_columns)
def test_the_factor_has_the_rank_of_the_rows_whatever_they_are(rows):
    factor = gaussian_factor(rows)
    np.testing.assert_allclose(factor.T @ factor, np.atleast_2d(np.cov(rows, rowvar=False, bias=True)), atol=1e-12)
    assert len(factor) == np.linalg.matrix_rank(rows - rows.mean(axis=0), tol=1e-9)


@pytest.mark.parametrize("shape", [(200, 5), (6, 20)])
def test_the_shrunk_covariance_is_that_of_scikit_learn(rng, shape):
    rows = rng.normal(size=shape) * np.arange(1, shape[1] + 1) + 7
    factor = gaussian_factor(rows, "ledoit-wolf")
    np.testing.assert_allclose(factor.T @ factor, LedoitWolf().fit(rows).covariance_, rtol=1e-9, atol=1e-9)
    assert factor.shape == (shape[1], shape[1])


def test_the_diagonal_factor_holds_the_variances_of_the_columns_that_vary(rng):
    rows = rng.normal(size=(50, 4)) * [1, 2, 3, 0] + 7
    factor = gaussian_factor(rows, "diagonal")
    assert factor.shape == (3, 4)
    np.testing.assert_allclose(factor.T @ factor, np.diag(rows.var(axis=0)), atol=1e-12)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_rows_that_a_covariance_would_give_away_or_that_are_all_the_same_get_no_factor(rng, covariance):
    assert gaussian_factor(rng.normal(size=(3, 4)), covariance).shape[0] > 0
    assert gaussian_factor(rng.normal(size=(2, 4)), covariance).shape == (0, 4)
    assert gaussian_factor(rng.normal(size=(1, 4)), covariance).shape == (0, 4)
    assert gaussian_factor(np.full((9, 4), 0.1), covariance).shape == (0, 4)


@pytest.mark.parametrize("covariance", ["mle", "diagonal"])
def test_a_constant_column_stays_constant_in_the_proxies(rng, covariance):
    rows = rng.normal(size=(100, 60))
    rows[:, 1] = 0.1  # its mean is not 0.1 in binary digits
    factor = gaussian_factor(rows, covariance)
    assert (factor[:, 1] == 0).all()
    points = sample_gaussian(rows[0], factor, 50, rng)
    assert (points[:, 1] == 0.1).all()
    assert (points[:, 0] != points[0, 0]).any()


def test_the_factor_does_not_depend_on_the_order_of_the_rows(rng):
    rows = rng.normal(size=(30, 4)) * [1, 2, 4, 8]
    np.testing.assert_allclose(gaussian_factor(rows), gaussian_factor(rows[::-1]), atol=1e-12)


def test_a_misspelt_covariance_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="did you mean 'ledoit-wolf'"):
        gaussian_factor(np.eye(4), "ledoit_wolf")


@pytest.mark.parametrize("alpha", [[1.0, 1.0], [0.3, 2.0, 5.0], [20.0, 30.0, 50.0, 100.0], [0.05, 0.1, 0.2]])
def test_a_dirichlet_fit_of_many_rows_finds_the_alpha_they_were_drawn_with(rng, alpha):
    found = dirichlet_fit(rng.dirichlet(alpha, 40_000))
    np.testing.assert_allclose(found, alpha, rtol=0.04)


@pytest.mark.parametrize(
    ("n", "alpha"), [(3, [2.0, 3.0]), (10, [0.4, 1.0, 3.0]), (60, [5.0] * 6), (25, [300.0, 700.0])]
)
def test_a_dirichlet_fit_is_the_maximum_that_a_general_optimiser_finds(rng, n, alpha):
    rows = rng.dirichlet(alpha, n)

    def cost(log_alpha):
        return -sum(dirichlet.logpdf(row / row.sum(), np.exp(log_alpha)) for row in rows) / n

    start = np.log(rows.mean(axis=0) * 10)
    found = minimize(cost, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-13, "maxfev": 20_000})
    fitted = dirichlet_fit(rows)
    assert cost(np.log(fitted)) <= found.fun + 1e-11
    np.testing.assert_allclose(fitted, np.exp(found.x), rtol=1e-3)


@settings(deadline=None, max_examples=examples(100))
@given(arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(2, 6)), elements=st.integers(0, 50)))
def test_a_dirichlet_fit_is_positive_and_can_be_drawn_from_whatever_the_shares(counts):
    counts[:, 0] += 1
    rows = counts / counts.sum(axis=1, keepdims=True)
    alpha = dirichlet_fit(rows)
    assert (alpha > 0).all()
    assert np.isfinite(alpha).all()
    points = sample_dirichlet(alpha, 30, np.random.default_rng(0))
    np.testing.assert_allclose(points.sum(axis=1), 1)


def test_rows_without_spread_and_few_rows_become_a_point_at_their_mean(rng):
    rows = rng.dirichlet([1, 2, 3], 2)
    for few in (rows[:1], rows, np.repeat(rows[:1], 9, axis=0)):
        alpha = dirichlet_fit(few)
        np.testing.assert_allclose(alpha / alpha.sum(), few.mean(axis=0))
        np.testing.assert_allclose(sample_dirichlet(alpha, 50, rng), np.tile(few.mean(axis=0), (50, 1)), atol=1e-3)


def test_a_dirichlet_fit_of_rows_off_the_simplex_is_refused():
    for rows in ([[0.5, 0.6], [0.5, 0.5]], [[1.5, -0.5], [0.5, 0.5]]):
        with pytest.raises(UserError, match="shares"):
            dirichlet_fit(rows)
    with pytest.raises(UserError, match="two columns"):
        dirichlet_fit([[1.0], [1.0]])


@settings(deadline=None, max_examples=examples(100))
@given(rows_of_few_columns)
def test_a_box_holds_all_rows_and_no_corner_is_a_value_of_a_row(rows):
    low, high = box(rows)
    assert ((low < rows) & (rows < high)).all()
    np.testing.assert_allclose(high - low, 1.02 * (rows.max(axis=0) - rows.min(axis=0)), atol=1e-12)


def test_the_box_of_fewer_than_three_rows_tells_their_mean_alone():
    low, high = box([[1.0, 2.0], [3.0, 10.0]])
    assert low.tolist() == high.tolist() == [2.0, 6.0]


def test_draws_have_the_mean_and_the_covariance_asked_for(rng):
    factor = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    points = sample_gaussian([5, -3, 0], factor, 100_000, rng)
    np.testing.assert_allclose(points.mean(axis=0), [5, -3, 0], atol=0.03)
    np.testing.assert_allclose(np.cov(points, rowvar=False), factor.T @ factor, atol=0.06)
    assert np.linalg.matrix_rank(points - [5, -3, 0], tol=1e-9) == 2


def test_without_a_factor_all_draws_are_the_mean(rng):
    assert (sample_gaussian([5, -3], np.empty((0, 2)), 30, rng) == [5, -3]).all()


def test_draws_in_a_box_are_those_of_the_truncated_distribution_where_it_is_wide_enough(rng):
    points = sample_gaussian([0.0], [[1.0]], 20_000, rng, ([-1.0], [9.0]))
    assert points.shape == (20_000, 1)
    assert points.min() >= -1
    assert points.mean() == pytest.approx(0.2876, abs=0.02)  # phi(-1) / (1 - Phi(-1))
    assert (points == -1).sum() == 0  # drawn again, not pulled to the surface


def test_draws_end_even_where_hardly_any_is_inside_the_box(rng):
    mean, corner = np.zeros(200), np.full(200, 0.5)
    points = sample_gaussian(mean, np.eye(200), 40, rng, (-corner, corner))
    assert points.shape == (40, 200)
    assert (np.abs(points) <= 0.5).all()
    assert (points > -0.5).any()


def test_draws_depend_on_the_generator_alone():
    factor, alpha = np.eye(3), [1.0, 2.0, 3.0]
    for draw in (
        lambda rng: sample_gaussian(np.zeros(3), factor, 9, rng),
        lambda rng: sample_gaussian(np.zeros(3), factor, 9, rng, (-np.ones(3), np.ones(3))),
        lambda rng: sample_dirichlet(alpha, 9, rng),
    ):
        first, again, other = (draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


def test_draws_from_what_is_no_distribution_are_refused(rng):
    with pytest.raises(UserError, match="factor"):
        sample_gaussian([0, 0], np.eye(3), 5, rng)
    with pytest.raises(UserError, match="box"):
        sample_gaussian([0, 0], np.eye(2), 5, rng, ([1, 1], [0, 2]))
    with pytest.raises(UserError, match="alpha must be positive"):
        sample_dirichlet([1, 0], 5, rng)
    with pytest.raises(UserError, match="size"):
        sample_gaussian([0, 0], np.eye(2), 0, rng)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 7))
def test_a_column_varies_where_enough_rows_differ_from_the_most_frequent_value(seed, n, least):
    rows = np.random.default_rng(seed).integers(0, 3, (n, 4)).astype(float)
    differing = [n - np.unique(column, return_counts=True)[1].max() for column in rows.T]
    np.testing.assert_array_equal(proxies._varying(rows, least), np.array(differing) >= least)
