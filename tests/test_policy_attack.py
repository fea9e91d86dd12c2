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


def scored(rows, policy, task, name="pooled"):
    """Return what a site answers to a question about solutions, after its own clusters."""
    line = get(name)
    executor, _ = line.build(2, 0, {"min_count": 1})
    held = None if policy is None else Held.by(policy, line)
    answered(executor, Task(CLUSTER, 0, {}, "site-1"), rows, held)
    return answered(executor, Task(SCORE, 1, task, "site-1"), rows, held).arrays


def by_scores(rows, policy):
    """Locate a row by what sums of squares lose when a centroid is added that is alone with it: one single answer."""
    task = stack([CENTER[None], *(np.stack([CENTER, near]) for near in NEAR)])
    told = scored(rows, policy, task)
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


@pytest.mark.parametrize("name", ["pooled", "portfolio"])
def test_with_the_default_policy_scores_are_of_the_rows_that_were_told_about(rows, name):
    """So they are the same wherever the row is that was not, and nothing is left when they are subtracted."""
    moved = np.concatenate([rows[:-1], (LONELY + np.array([3.0, 2.0, -1.0]))[None]])
    task = stack([CENTER[None], *(np.stack([CENTER, near]) for near in NEAR)])
    for X in (rows, moved):
        told = scored(X, Policy(), task, name)
        assert told["rows"] == len(X) - 1
        assert len(np.unique(told["sse"])) == 1, "the scores tell of the lonely row"
    assert np.linalg.norm(by_scores(rows, Policy()) - LONELY) > 5


def test_with_the_default_policy_no_row_changes_its_cell_of_a_solution_alone(apart):
    """Two solutions whose border passes one row, for six places of the other centroid each, would locate it."""
    near = np.concatenate([apart[:-1], apart[:-1].mean(axis=0) + 0.01 * LONELY[None]])
    order = np.argsort(near[:, 0])
    at = near[order, 0]
    tasks = []
    for border in (at[40:43] + at[41:44]) / 2:
        tasks.append(np.array([[border - 5.0, 0.0, 0.0], [border + 5.0, 0.0, 0.0]]))
    told = scored(near, Policy(), stack(tasks))
    cells = told["counts"].reshape(-1, 2)
    assert cells[0].min() >= 10
    assert (cells == cells[0]).all()
    free = scored(near, None, stack(tasks))["counts"].reshape(-1, 2)
    assert np.diff(free[:, 0]).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["fkm", "dkmpp", "pooled", "kfed", "feca"])
def test_under_a_policy_a_site_tells_clusters_of_its_own_once(rows, name):
    first, again = asks(name, rows, Policy(), CLUSTER, [{}, {}])
    assert first is not None
    assert again is None


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
