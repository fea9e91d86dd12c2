"""What a server that chooses its questions learns of a row that is alone, with and without a site's policy.

The attacks: sums over the rows nearest to centroids of one's own choice, asked until equations hold for one row.
"""

import numpy as np
import pytest

from flareclust.checks_tools import PromiseBroken
from flareclust.core.scores import stack
from flareclust.engines.inprocess import Held, answered
from flareclust.errors import Refusal
from flareclust.executors.lloyd import UPDATE
from flareclust.executors.task import ASSESS, CLUSTER, SCORE, Task
from flareclust.privacy.policy import Policy
from flareclust.registry import get

LONELY = np.array([31.25, -18.5, 12.75])
CENTER = np.zeros(3)
#: Where the attacker asks: near the lonely row, none of them it.
NEAR = LONELY + np.array([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 1.5], [-1.0, 1.0, 1.0]])


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(size=(80, 3)), LONELY[None]])


def asks(name, rows, policy, step, questions, k=2, **params):
    """Return what a site answers to several questions of one job, None where it refuses."""
    line = get(name)
    executor, _ = line.build(k, 0, params)
    held = None if policy is None else Held.by(policy, line)
    found = []
    for round_, arrays in enumerate(questions):
        try:
            found.append(answered(executor, Task(step, round_, arrays, "site-1"), rows, held).arrays)
        except Refusal:
            found.append(None)
    return found


def by_distances(rows, policy):
    """Locate a row by its distances to four centroids, from four jobs' assessments, or raise where no cell has one row."""
    told = [
        asks("lloyd", rows, policy, ASSESS, [{"centroids": np.stack([CENTER, near])}], min_count=1)[0] for near in NEAR
    ]
    if any(one is None or one["counts"][1] != 1 for one in told):
        raise PromiseBroken("no cell of one row was told")
    squares = np.array([one["scatter"][1] for one in told]) ** 2
    right = (NEAR[1:] ** 2).sum(axis=1) - (NEAR[0] ** 2).sum() - (squares[1:] - squares[0])
    return np.linalg.solve(2 * (NEAR[1:] - NEAR[0]), right)


def by_scores(rows, policy):
    """Locate a row by what sums of squares lose when a centroid is added that is alone with it: one single answer."""
    task = stack([CENTER[None], *(np.stack([CENTER, near]) for near in NEAR)])
    (told,) = asks("pooled", rows, policy, SCORE, [task], min_count=1)
    lost = told["sse"][0] - told["sse"][1:]
    return np.linalg.lstsq(2 * (NEAR - CENTER), lost + (NEAR**2).sum(axis=1), rcond=None)[0]


def by_differences(rows, policy, *, jobs):
    """Return by how many rows two sums differ, and by what: a boundary through the center, left and right of one row.

    The two are asked for in one job, or in a job each.
    """
    across = across_lonely()
    sides = [np.stack([-across, across]) * 10 + shift * across for shift in (-1e-3, 1e-3)]
    tasks = [{"centroids": centroids} for centroids in sides]
    asked = [tasks] if jobs == 1 else [[task] for task in tasks]
    told = [one for some in asked for one in asks("lloyd", rows, policy, UPDATE, some, min_count=1)]
    first, second = ((one["counts"][0], one["centroids"][0] * one["counts"][0]) for one in told)
    return abs(first[0] - second[0]), first[1] - second[1]


def across_lonely():
    return np.array([-LONELY[1], LONELY[0], 0.0]) / np.hypot(*LONELY[:2])


@pytest.mark.parametrize("attack", [by_distances, by_scores])
def test_the_attack_finds_the_row_without_a_policy(rows, attack):
    np.testing.assert_allclose(attack(rows, None), LONELY, atol=1e-6)


def test_the_default_policy_tells_of_no_cell_that_is_small_enough_to_locate_a_row(rows):
    with pytest.raises(PromiseBroken, match="one row"):
        by_distances(rows, Policy())


def test_with_the_default_policy_a_centroid_alone_with_a_row_changes_no_score(rows):
    """What is solved for is then the same wherever the row is."""
    moved = np.concatenate([rows[:-1], (LONELY + np.array([3.0, 2.0, -1.0]))[None]])
    task = stack([CENTER[None], *(np.stack([CENTER, near]) for near in NEAR)])
    for X in (rows, moved):
        (told,) = asks("pooled", X, Policy(), SCORE, [task], min_count=1)
        assert told["rows"] == len(X)
        for name in ("sse", "silhouette", "spread"):
            assert len(np.unique(told[name])) == 1, f"{name} tells of the lonely row"
        counts = np.split(told["counts"][1:], len(NEAR))
        np.testing.assert_array_equal(counts, [[len(X), 0]] * len(NEAR))
    assert np.linalg.norm(by_scores(rows, Policy()) - LONELY) > 5


@pytest.fixture
def apart(rows):
    """The rows without those that would cross the boundary with the lonely one."""
    others = rows[:-1]
    return np.concatenate([others[np.abs(others @ across_lonely()) > 0.002], LONELY[None]])


@pytest.mark.parametrize(
    ("policy", "jobs"), [(None, 1), (Policy(min_count=1), 1), (Policy(), 2)], ids=["none", "floor of 1", "two jobs"]
)
def test_sums_that_differ_by_one_row_tell_it(apart, policy, jobs):
    """What a policy does not stop: docs/policies.md says so, and that differential privacy does."""
    more, found = by_differences(apart, policy, jobs=jobs)
    assert more == 1
    np.testing.assert_allclose(np.abs(found), np.abs(LONELY), atol=1e-6)


def test_sums_of_one_job_do_not_differ_by_one_row_under_the_default_policy(apart):
    more, found = by_differences(apart, Policy(), jobs=1)
    assert more == 0
    np.testing.assert_array_equal(found, 0)


def test_seeds_and_start_of_a_job_do_not_get_below_the_floor(rows):
    """`lloyd` starts where the job says; groups of two rows leave with min_count=1, and none below the site's floor."""
    pair = np.concatenate([rows, LONELY[None] + 0.5])
    at = {"centroids": np.stack([CENTER, LONELY])}
    (free,) = asks("lloyd", pair, None, UPDATE, [at], min_count=1)
    assert free["counts"].tolist() == [80, 2]
    (held,) = asks("lloyd", pair, Policy(), UPDATE, [at], min_count=1)
    assert held["counts"].tolist() == [80]
    (refused,) = asks("lloyd", pair, Policy(small="refuse"), UPDATE, [at], min_count=1)
    assert refused is None
    (seeds,) = asks("lloyd", pair, Policy(), CLUSTER, [{}], min_count=1)
    assert np.abs(seeds["centroids"]).max() < 10
    (as_rows,) = asks("lloyd", pair, Policy(), CLUSTER, [{}], min_count=1, seeds="rows")
    assert as_rows is None, "rows may leave no site that has a policy"
