"""Bits do not depend on the number of threads: one, as many as units of rows, and more than there is work for."""

import os
from itertools import count

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.core import lloyd_team, microaggregation_kernels, mixtures, threads
from flareclust.core.assessment import assessment_sums
from flareclust.core.disclosure import _described
from flareclust.core.lloyd import assign, kmeans, labels_of, lloyd, moments
from flareclust.core.microaggregation import groups_of, in_order
from flareclust.core.missing import gaps
from flareclust.core.screen import screen_of
from flareclust.core.seeds import kmeans_plusplus
from flareclust.core.threads import THREADS, Team, allowed_threads, set_threads, team

#: Rows, columns, clusters: with and without tiles, screens, grids and whole lines of columns, and fewer rows than threads.
SHAPES = [
    (5000, 16, 30),
    (3000, 2, 7),
    (4001, 5, 9),
    (300, 40, 4),
    (900, 130, 20),
    (70, 1, 3),
    (9, 3, 4),
    (200, 3, 150),
]
NUMBERS = (1, 2, 3, 8, 16)


@pytest.fixture(autouse=True)
def small_work_is_divided(monkeypatch):
    monkeypatch.setattr(threads, "_SMALL", 0)
    monkeypatch.setattr(lloyd_team, "_SHORT", 64)
    monkeypatch.setenv(THREADS, "1")  # so that it is put back
    monkeypatch.delenv(THREADS)


def with_each_number(compute):
    """Return what is computed with each number of threads."""
    found = []
    for number in NUMBERS:
        set_threads(number)
        found.append(compute())
    return found


def assert_same_bits(results):
    first, *others = results
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.fixture(params=SHAPES, ids=str)
def rows(request):
    n, d, k = request.param
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) * 3 + 5, rng.random(n), k


def test_kmeans_and_its_starts_have_the_same_bits(rows):
    X, weights, k = rows
    assert_same_bits(with_each_number(lambda: kmeans(X, k, np.random.default_rng(1), n_init=2, weights=weights)))
    assert_same_bits(with_each_number(lambda: kmeans_plusplus(X, k, np.random.RandomState(3))))


def test_labels_and_assessments_have_the_same_bits(rows):
    X, _, k = rows
    centroids = X[:k] + 0.25
    found = with_each_number(lambda: assign(X, centroids))
    assert_same_bits(found)
    assert_same_bits([found[0][:1], *with_each_number(lambda: (labels_of(X, centroids),))])
    assert_same_bits(with_each_number(lambda: list(assessment_sums(X, centroids)[1].values())))


def test_what_may_be_described_has_the_same_bits(rows):
    """Also where a cluster has no rows, is one row repeated, or has a centroid that is a row."""
    X, _, k = rows
    X[len(X) // 2 :] = np.round(X[len(X) // 2 :])
    labels = np.arange(len(X)) % (k + 2) - 2
    labels[labels < 1], labels[-1] = -1, -1
    X[labels == 1] = X[0]
    centroids = X[:k] + 0.25
    centroids[-1] = X[labels == k - 1][-1]
    found = with_each_number(lambda: _described(X, labels, centroids))
    assert_same_bits(found)
    assert found[0][2][-1], "a centroid is a row"


def test_labels_that_do_not_fit_are_refused_by_threads_as_well():
    set_threads(2)
    for labels in (np.full(9, 3), np.zeros(8, np.int64), np.zeros(10, np.int64)):
        with pytest.raises((IndexError, ValueError), match=r"no cluster's number|do not fit together"):
            _described(np.ones((9, 2)), labels, np.ones((2, 2)))


def test_a_thread_that_fails_leaves_no_segment_to_the_others():
    begun = []

    class InTurn(Team):
        """One thread after the other."""

        def each(self, work, parts):
            with pytest.raises(MemoryError):
                work(parts[0])
            work(parts[1])
            raise MemoryError

    def fail(lo, hi):
        begun.append((lo, hi))
        raise MemoryError

    with pytest.raises(MemoryError):
        microaggregation_kernels._of_each(InTurn(2), fail, [(0, 3), (3, 9), (9, 11)])
    assert begun == [(3, 9)], "the largest"


def test_rows_with_gaps_are_completed_with_the_same_bits(rows):
    X, _, k = rows
    centroids = X[:k].copy()
    X[:, 0][np.arange(len(X)) % 3 == 0] = np.nan if X.shape[1] > 1 else 0.0
    assert_same_bits(with_each_number(lambda: gaps.complete(X, centroids)[:1]))


@pytest.mark.parametrize(("n", "d", "floor"), [(2000, 3, 5), (700, 2, 3), (520, 6, 40), (40, 1, 9), (2, 2, 3)])
def test_groups_of_microaggregation_have_the_same_bits(n, d, floor):
    """Also with rows far away, and repeated ones; the last rows are a segment for themselves."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d)) + 4 * rng.integers(3, size=(n, 1))
    X[: n // 10], X[n // 10 : n // 9] = np.round(X[: n // 10]), 1e4 * X[n // 10 : n // 9]
    found = with_each_number(lambda: (groups_of(in_order(X), floor),))
    assert_same_bits(found)
    assert found[0][0].max() > 10 or n < 600


@pytest.mark.parametrize("shape", ["full", "diag"])
@pytest.mark.parametrize(("n", "d", "k"), [(1000, 3, 5), (700, 8, 2), (50, 2, 40), (129, 1, 1)])
def test_sums_of_an_expectation_step_have_the_same_bits(monkeypatch, shape, n, d, k):
    """Also where responsibilities are added up several times."""
    monkeypatch.setattr(mixtures, "_SHARES", (k * 128, 3 * k * 128))
    rng = np.random.default_rng(4)
    X, means = np.round(rng.normal(size=(n, d)), 1), rng.normal(size=(k, d))  # some rows are equal
    factors = np.tile(np.eye(d), (k, 1, 1)) * rng.uniform(0.5, 2, (k, 1, 1)) if shape == "full" else np.ones((k, d))
    mixture = mixtures.Mixture(rng.dirichlet(np.ones(k)), means, factors)
    assert_same_bits(with_each_number(lambda: mixtures.expectation(X, mixture, shape, least=3)))


def test_screens_have_the_same_bits(rows):
    X, _, _ = rows

    def compute():
        with team(X.size) as own:
            origin, variance = moments(X)
            return screen_of(X, origin, variance, own)[1:]

    assert_same_bits(with_each_number(compute))


def test_a_cluster_without_rows_takes_the_same_row():
    X = np.random.default_rng(2).normal(size=(500, 4))
    start = np.vstack([X[:3], np.full((2, 4), 50.0)])  # no row is nearest to the last two
    found = with_each_number(lambda: lloyd(X, start))
    assert len(found[0].centroids) == 5
    assert_same_bits(found)


@pytest.mark.parametrize("max_iter", [1, 3, 40])
def test_once_it_is_over_a_late_thread_finds_nothing_to_take(monkeypatch, max_iter):
    """What is shared may not say that another iteration follows, not even to a thread that has not seen that it is over."""
    jobs, kernel = [], lloyd_team._take_part
    monkeypatch.setattr(lloyd_team, "_take_part", lambda job: jobs.append(job) or kernel(job))
    X = np.random.default_rng(5).normal(size=(1500, 4))
    set_threads(3)
    lloyd(X, X[:5], tol=0, max_iter=max_iter)
    assert jobs
    for job in jobs:
        at, labelled = job[-3], job[-2]
        assert at[lloyd_team._TAKEN] == (at[lloyd_team._FOLLOWED] + 1) * len(labelled)


def test_a_thread_that_fails_ends_the_iterations_of_all(monkeypatch):
    calls, kernel = count(), lloyd_team._take_part

    def fail_once(job):
        if next(calls) == 0:
            job[-3][lloyd_team._TAKEN] += 1  # a part that it will never label
            raise MemoryError
        kernel(job)

    monkeypatch.setattr(lloyd_team, "_take_part", fail_once)
    X = np.random.default_rng(5).normal(size=(1500, 4))
    set_threads(4)
    with pytest.raises(MemoryError):
        lloyd(X, X[:2])


def test_centroids_too_far_for_a_screen_have_the_same_bits():
    X = np.random.default_rng(2).normal(size=(500, 4))
    assert_same_bits(with_each_number(lambda: lloyd(X, np.vstack([X[:3], np.full((1, 4), 1e15)]), max_iter=1)))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("number", NUMBERS)
def test_parts_are_whole_units_and_cover_everything(n, number):
    parts = Team(number).parts(n, 64)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))
    assert len(parts) <= number
    assert all(part.start % 64 == 0 for part in parts)


def test_an_error_in_a_thread_is_raised():
    def fail(part):
        raise ZeroDivisionError

    set_threads(3)
    with pytest.raises(ZeroDivisionError), team(1) as own:
        own.each(fail, own.parts(9))


def test_little_work_stays_in_the_calling_thread(monkeypatch):
    monkeypatch.setattr(threads, "_SMALL", 100)
    set_threads(4)
    with team(99) as own, team(100) as larger:
        assert (own.threads, larger.threads) == (1, 4)


def test_one_thread_for_each_core_unless_said_otherwise(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 5)
    assert allowed_threads() == 5
    set_threads(3)
    assert (allowed_threads(), os.environ[THREADS]) == (3, "3")


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv(THREADS, text)
    with pytest.raises(UserError, match="FLARECLUST_THREADS must be an integer from 1 on"):
        allowed_threads()
