"""What a site tells in the rounds of one job tells nothing about fewer rows than its floor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust.checks_tools import blobs
from flareclust.core.company import Company, in_company
from flareclust.core.lloyd import assign
from flareclust.core.local import lloyd_update
from flareclust.errors import Refusal
from flareclust.executors.lloyd import UPDATE, LloydExecutor
from flareclust.executors.minibatch import SAMPLE, MiniBatchExecutor
from flareclust.executors.task import CLUSTER, Task
from flareclust.privacy.policy import Policy
from flareclust.privacy.site_terms import SiteTerms
from flareclust.typing import FloatArray, IntArray, never

LEAST = 5


def atoms(told: list[IntArray]) -> IntArray:
    """Return the sizes of the sets of rows that the groups (n,) of all messages tell apart, without rows never told."""
    members = np.stack([labels == r for labels in told for r in range(labels.max() + 1)], axis=1)
    kinds, sizes = np.unique(members, axis=0, return_counts=True)
    found: IntArray = sizes[kinds.any(axis=1)]
    return found


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**32), st.integers(1, 7), st.booleans(), st.booleans())
def test_no_combination_of_rounds_tells_fewer_rows_than_the_floor(
    seed: int, k: int, everything: bool, seeds: bool
) -> None:
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(40, 2))
    company = Company(LEAST, everything=everything)
    told = []
    if seeds:
        first = np.repeat([0, 1, 2, -1], 10)
        company.told(first)
        told.append(first)
    for _ in range(6):
        centroids = rng.normal(size=(k, 2))
        told.append(company.groups(data, assign(data, centroids)[0], centroids))
    if everything:
        assert (np.stack(told[seeds:]) >= 0).all()
        told.append(np.zeros(40, dtype=np.int64))
    assert (atoms(told) >= LEAST).all()


def test_rows_that_move_in_company_move() -> None:
    data = np.concatenate([np.linspace(0, 1, 20), np.linspace(9, 10, 20)])[:, None]
    company = Company(LEAST)
    company.groups(data, np.repeat([0, 1], 20), np.array([[0.5], [9.5]]))
    labels = np.repeat([0, 1, 1], [14, 6, 20])
    assert company.groups(data, labels, np.array([[0.3], [8.0]])).tolist() == labels.tolist()


def test_a_row_alone_stays_with_its_block() -> None:
    data = np.linspace(0, 1, 40)[:, None]
    company = Company(LEAST)
    before = np.repeat([0, 1], 20)
    company.groups(data, before, np.array([[0.2], [0.8]]))
    moved = np.repeat([0, 1], [21, 19])
    assert company.groups(data, moved, np.array([[0.3], [0.8]])).tolist() == before.tolist()


def test_without_company_nothing_changes() -> None:
    rows, centers = blobs(3, 2, 30, np.random.default_rng(0))
    free = lloyd_update(rows, centers, 2)
    with in_company(Company(2)):
        held = lloyd_update(rows, centers, 2)
    np.testing.assert_array_equal(free.centroids, held.centroids)
    np.testing.assert_array_equal(free.counts, held.counts)


def border(at: float) -> FloatArray:
    return np.array([[at - 1.0, 0.0], [at + 1.0, 0.0]])


def test_the_difference_of_two_rounds_is_no_row() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 2))
    places = np.sort(rows[:, 0])
    two = [float(places[i : i + 2].mean()) for i in (29, 30)]  # one row lies between these borders
    task = [Task(UPDATE, i, {"centroids": border(at)}, "a") for i, at in enumerate(two)]
    for site, difference in ((None, 1), (SiteTerms(Policy(min_count=10), "job"), 0)):
        executor = LloydExecutor(2)
        first, second = (executor.answer(t, rows, never, site).arrays for t in task)
        assert abs(int(second["counts"][0] - first["counts"][0])) == difference


def test_a_site_that_forgot_what_it_told_takes_no_further_part() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 2))
    with pytest.raises(Refusal, match="no longer knows what it told"):
        LloydExecutor(2).answer(
            Task(UPDATE, 3, {"centroids": border(0.0)}, "a"), rows, never, SiteTerms(Policy(), "job")
        )


def test_samples_under_a_policy_cannot_be_repeated_from_the_seed() -> None:
    rows = np.random.default_rng(2).normal(size=(60, 2))
    task = Task(SAMPLE, 1, {"centroids": border(0.0)}, "a")
    sent = []
    for site, data in ((None, rows), (SiteTerms(Policy(), "job"), rows), (SiteTerms(Policy(), "job"), rows + 1e-9)):
        executor = MiniBatchExecutor(2)
        executor.answer(Task(CLUSTER, 0, {}, "a"), data, never, site)
        sent.append([executor.answer(task, data, never, site).arrays["counts"] for _ in range(2)])
    for first, again in sent:  # the same site samples the same rows again
        np.testing.assert_array_equal(first, again)
    assert not np.array_equal(sent[0][0], sent[1][0])
    assert not np.array_equal(sent[1][0], sent[2][0])
