"""Logistic regression from sums over rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import OpenBLASController, threadpool_limits

from flareclust.core.logistic import improved, moments, sums, with_constant


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 4)) * [1.0, 10.0, 0.1, 3.0] + y[:, None] * [0.5, 2.0, 0.0, 1.0]
    return with_constant(X), y


def fitted(parts, steps):
    products = sum(moments(X) for X, _ in parts)
    at = after = np.zeros((3, products.shape[0]))
    losses = []
    for step in range(steps):
        own = [sums(X, y, at) for X, y in parts]
        losses.append(sum(one.loss for one in own))
        _before, (after, at) = after, improved(at, after, sum(one.gradient for one in own), products, step)
    return after, losses


def test_sums_at_zero_by_hand():
    X, y = np.array([[2.0, 1.0], [4.0, 1.0]]), np.array([0, 1])
    found = sums(X, y, np.zeros((2, 2)))
    assert found.loss == pytest.approx(2 * np.log(2))
    np.testing.assert_allclose(found.gradient, [[0.5 * 2 - 0.5 * 4, 0.0], [-0.5 * 2 + 0.5 * 4, 0.0]])
    assert found.correct == 1


def test_the_gradient_is_that_of_the_loss(rows):
    X, y = rows
    at = np.random.default_rng(1).normal(scale=0.1, size=(3, 5))
    gradient = sums(X, y, at).gradient
    for i, j in ((0, 0), (1, 3), (2, 4)):
        moved = at.copy()
        moved[i, j] += 1e-6
        assert (sums(X, y, at).loss - sums(X, y, moved).loss) / 1e-6 == pytest.approx(
            gradient[i, j], rel=1e-3, abs=1e-3
        )


def test_steps_reach_the_maximum_likelihood_of_scikit_learn(rows):
    X, y = rows
    found, losses = fitted([(X, y)], 200)
    model = LogisticRegression(C=1e8, max_iter=5000, tol=1e-10).fit(X[:, :-1], y)
    theirs = -np.log(model.predict_proba(X[:, :-1])[np.arange(300), y]).sum()
    assert losses[-1] == pytest.approx(theirs, rel=1e-4)
    assert (np.argmax(X @ found.T, axis=1) == model.predict(X[:, :-1])).mean() > 0.99


def test_rows_at_several_sites_give_the_steps_of_all_rows(rows):
    X, y = rows
    whole, _ = fitted([(X, y)], 5)
    parts, _ = fitted([(X[:40], y[:40]), (X[40:], y[40:])], 5)
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)


def test_large_scores_do_not_overflow(rows):
    X, y = rows
    found = sums(X, y, np.full((3, 5), 1e4) * [[1], [2], [3]])
    assert np.isfinite(found.loss)
    assert np.isfinite(found.gradient).all()


def test_sums_do_not_depend_on_the_threads_of_blas(rng):
    X, y, C = rng.normal(size=(3000, 785)), rng.integers(10, size=3000), rng.normal(size=(10, 785))
    found = []
    for threads in (1, 2):
        OpenBLASController.clear_controlling_thread(force=True)
        with threadpool_limits(threads):
            found.append((moments(X), sums(X, y, C)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1].gradient, found[1][1].gradient)
    assert found[0][1].loss == found[1][1].loss
