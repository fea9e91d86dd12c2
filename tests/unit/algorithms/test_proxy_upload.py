"""Proxy clusters: what leaves a site, and that no row does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf

from flareclust._foundation.errors import Aborted, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.executors.proxy import ProxyExecutor, _fit_pdf, _several
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.examples import examples
from tests.unit.algorithms.different_columns_cases import two_clusters


def sent_by(rows, k, min_count=2, **params):
    """Return what a site with these rows sends, or None where it refuses."""
    executor = ProxyExecutor(k, min_count=min_count, **params)
    try:
        return executor.answer(
            Task(StepName.CLUSTER, 0, {}, "site-1"), np.asarray(rows, dtype=float), never_abort
        ).arrays
    except Refusal:
        return None


def covariances(sent):
    factors = np.split(sent["factors"], np.cumsum(sent["ranks"])[:-1])
    return [factor.T @ factor for factor in factors]


def test_a_site_sends_mean_rows_and_covariance_of_each_cluster():
    rng = np.random.default_rng(0)
    rows = two_clusters() @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(45, 4))
    for covariance in ("mle", "ledoit-wolf", "diagonal"):
        sent = sent_by(rows, k=2, covariance=covariance)
        labels = ((rows[:, None] - sent["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
        for r, found in enumerate(covariances(sent)):
            own = rows[labels == r]
            assert sent["counts"][r] == len(own)
            np.testing.assert_allclose(sent["centroids"][r], own.mean(axis=0))
            full = np.cov(own.T, bias=True)
            expected = {
                "mle": full,
                "ledoit-wolf": LedoitWolf().fit(own).covariance_,
                "diagonal": np.diag(np.diag(full)),
            }
            np.testing.assert_allclose(found, expected[covariance], atol=1e-9)
        assert not len(sent["low"])
        assert not len(sent["concentration"])


def test_clusters_with_fewer_rows_than_columns_have_a_low_rank():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(5, 30)), 50 + rng.normal(size=(4, 30))])
    sent = sent_by(rows, k=2, min_shape=4)
    assert sorted(sent["ranks"]) == [3, 4]
    assert len(sent["factors"]) == 7


def test_clusters_below_min_shape_are_described_by_their_mean_alone():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(12, 3)), 50 + rng.normal(size=(9, 3))])
    sent = sent_by(rows, k=2, boxes=True)
    small = int(sent["counts"].argmin())
    assert sent["ranks"].tolist() == [0 if r == small else 3 for r in range(2)]
    np.testing.assert_array_equal(sent["low"][small], sent["centroids"][small])
    with pytest.raises(UserError, match="min_shape must be an integer of at least 3"):
        ProxyExecutor(2, min_shape=2)


def test_sums_of_all_rows_less_the_covariances_do_not_tell_a_small_cluster():
    """With the sums of the description, the variances of a cluster without a covariance are what the others leave."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(40, 3)), 50 + rng.normal(size=(20, 3)), 100 + rng.normal(size=(4, 3))])
    plain, reported = (sent_by(rows, k=3, scale=scale) for scale in ("none", "standard"))
    by_size = plain["counts"].argsort()
    assert (plain["ranks"][by_size] > 0).tolist() == [False, True, True]
    assert (reported["ranks"][reported["counts"].argsort()] > 0).tolist() == [False, False, True]


@pytest.mark.parametrize("covariance", ["mle", "diagonal", "ledoit-wolf"])
def test_a_flag_that_one_row_has_does_not_tell_the_row(covariance):
    """Mean plus n times its covariances with a column in which it alone differs is a row."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(50, 10, 200), rng.normal(100, 30, 200), np.zeros(200)])
    rows[17, 2] = 1.0
    sent = sent_by(rows, k=1, covariance=covariance)
    cov = sent["factors"].T @ sent["factors"]
    found = sent["centroids"][0] + 200 * cov[2]
    assert np.abs(found[:2] - rows[17, :2]).max() > 1
    if covariance != "ledoit-wolf":  # which gives every column some variance
        assert not cov[2].any()
    rows[:3, 2] = 1.0  # four rows, whose mean the covariances disclose
    assert sent_by(rows, k=1, covariance=covariance)["factors"][:, 2].any()


def test_two_different_rows_send_no_covariance():
    far = np.array([[100.0, 0.0, 3.0], [101.0, 1.0, 1.0]])
    crowd = np.random.default_rng(0).normal(size=(40, 3))
    for pair in (far, far[[0, 1, 1, 0, 1]]):
        for params in ({}, {"covariance": "ledoit-wolf"}, {"covariance": "diagonal"}, {"boxes": True}):
            sent = sent_by(np.concatenate([crowd, pair]), k=2, **params)
            small = int(sent["counts"].argmin())
            assert sent["counts"][small] == len(pair)
            assert sent["ranks"][small] == 0
            assert sent["ranks"][1 - small] == 3
            if "boxes" in params:
                np.testing.assert_array_equal(sent["low"][small], sent["centroids"][small])
                np.testing.assert_array_equal(sent["high"][small], sent["centroids"][small])


def test_a_deviation_that_is_a_row_by_chance_is_not_sent():
    far = 100 + np.array([-7.0, -1, 1, 7])  # deviation 5
    for value, rank in ((5.0, 0), (5.2, 1)):
        rows = np.concatenate([far, [3, 4.5, value, 8]])[:, None]
        sent = sent_by(rows, k=2, min_shape=3)
        assert sent["ranks"][sent["centroids"][:, 0] == 100].tolist() == [rank]


def test_without_boxes_bounds_are_not_even_computed():
    rows = two_clusters()[:20]
    pdf = _fit_pdf(rows, rows.mean(axis=0), "gaussian", "mle")
    np.testing.assert_array_equal(pdf.low, pdf.mean)
    np.testing.assert_array_equal(pdf.high, pdf.mean)


def test_boxes_hold_the_rows_and_no_corner_is_a_value():
    rows = two_clusters()
    sent = sent_by(rows, k=2, boxes=True)
    labels = ((rows[:, None] - sent["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
    for r in range(2):
        own = rows[labels == r]
        assert (sent["low"][r] < own.min(axis=0)).all()
        assert (sent["high"][r] > own.max(axis=0)).all()
        assert (sent["high"][r] - sent["low"][r] < 1.1 * np.ptp(own, axis=0)).all()


whole_rows = st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=25)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=whole_rows,
    columns=st.integers(1, 2),
    k=st.integers(1, 4),
    min_count=st.integers(1, 4),
    covariance=st.sampled_from(["mle", "ledoit-wolf", "diagonal"]),
    boxes=st.booleans(),
)
def test_nothing_sent_is_a_row_however_odd_the_rows(rows, columns, k, min_count, covariance, boxes):
    rows = np.array(rows, dtype=float)[:, :columns]
    sent = sent_by(rows, k, min_count, covariance=covariance, boxes=boxes, n_init=1)
    if sent is None:
        return
    assert (sent["counts"] >= min_count).all()
    for name in ("centroids", "factors", "low", "high"):
        gaps = np.abs(sent[name][:, None] - rows[None]).max(axis=2)
        assert gaps.min(initial=np.inf) > 1e-12, name
    for found, centroid in zip(covariances(sent), sent["centroids"], strict=True):
        own = rows[
            ((rows[:, None] - sent["centroids"][None]) ** 2).sum(axis=2).argmin(axis=1)
            == np.flatnonzero((sent["centroids"] == centroid).all(axis=1))[0]
        ]
        if found.any():
            assert len(np.unique(own, axis=0)) >= 3


def test_different_rows_are_counted():
    rows = np.array([[0.0, 1], [0, 1], [0, 2], [0, 1], [1, 1]])
    assert _several(rows, 3)
    assert not _several(rows, 4)
    assert not _several(rows[:4], 3)
    assert _several(rows[:1], 1)
    assert not _several(rows[:0], 1)


# ---- shares ----


def test_a_dirichlet_distribution_travels_as_mean_and_concentration():
    rows = np.random.default_rng(0).dirichlet([20.0, 10.0, 30.0], size=4000)
    sent = sent_by(rows, k=1, distribution="dirichlet")
    np.testing.assert_allclose(sent["concentration"][:, None] * sent["centroids"], [[20, 10, 30]], rtol=0.05)
    assert not len(sent["factors"])
    np.testing.assert_allclose(sent["centroids"].sum(), 1.0)


def test_rows_that_are_no_shares_are_refused():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), size=50)
    executor = ProxyExecutor(2, distribution="dirichlet")
    for bad in (2 * rows, rows - [0.5, -0.25, -0.25], np.where(np.arange(50)[:, None] == 7, 1.01 * rows, rows)):
        with pytest.raises(Refusal, match="not shares of a whole"):
            executor.answer(Task(StepName.CLUSTER, 0, {}, "site-1"), bad, never_abort)
    assert executor.answer(Task(StepName.CLUSTER, 0, {}, "site-1"), rows, never_abort).arrays["counts"].sum() == 50


def test_two_different_shares_send_no_concentration():
    pair = np.array([[0.9, 0.1], [0.8, 0.2], [0.8, 0.2]])
    pdf = _fit_pdf(pair, pair.mean(axis=0), "dirichlet", "mle")
    assert pdf.concentration == 0
    np.testing.assert_array_equal(pdf.mean, pair.mean(axis=0))


# ---- settings, trouble ----


def test_a_site_stops_between_clusters_when_aborted():
    rows, asked = two_clusters(), []

    def later():
        asked.append(1)
        return len(asked) > calls - 1

    calls = 10**9
    computed(ProxyExecutor(2, n_init=1), Task(StepName.CLUSTER, 0, {}, "a"), rows, np.random.default_rng(0), later)
    calls, asked = len(asked), []
    with pytest.raises(Aborted, match="after the distributions of"):
        computed(ProxyExecutor(2, n_init=1), Task(StepName.CLUSTER, 0, {}, "a"), rows, np.random.default_rng(0), later)
