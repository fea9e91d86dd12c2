"""What a server that chooses its questions learns of a row that is alone, with and without a site's policy.

The attacks: sums over the rows nearest to centroids of one's own choice, asked until equations hold for one row.
"""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial import cKDTree

from flareclust._foundation.errors import Refusal
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.evaluation.scores import stack
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import ContractViolation

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
    held = None if policy is None else SimulatedSite.of(policy, line)
    found = []
    for round_, arrays in enumerate(questions):
        try:
            found.append(answered(executor, Task(step, round_, arrays, "site-1"), rows, held).arrays)
        except Refusal:
            found.append(None)
    return found


def by_distances(rows, policy):
    """Locate a row by its distances to four centroids, from four jobs' assessments, or raise where no cell has one row."""
    observed = [
        asks("lloyd", rows, policy, StepName.ASSESS, [{"centroids": np.stack([CENTER, near])}], min_count=1)[0]
        for near in NEAR
    ]
    if any(one is None or one["counts"][1] != 1 for one in observed):
        raise ContractViolation("no cell of one row was reported")
    squares = np.array([one["scatter"][1] for one in observed]) ** 2
    right = (NEAR[1:] ** 2).sum(axis=1) - (NEAR[0] ** 2).sum() - (squares[1:] - squares[0])
    return np.linalg.solve(2 * (NEAR[1:] - NEAR[0]), right)


def scored(rows, policy, task, name="pooled"):
    """Return what a site answers to a question about solutions, after its own clusters."""
    line = get(name)
    executor, _ = line.build(2, 0, {"min_count": 1})
    held = None if policy is None else SimulatedSite.of(policy, line)
    answered(executor, Task(StepName.CLUSTER, 0, {}, "site-1"), rows, held)
    return answered(executor, Task(StepName.SCORE, 1, task, "site-1"), rows, held).arrays


def by_scores(rows, policy):
    """Locate a row by what sums of squares lose when a centroid is added that is alone with it: one single answer."""
    task = stack([CENTER[None], *(np.stack([CENTER, near]) for near in NEAR)])
    observed = scored(rows, policy, task)
    lost = observed["sse"][0] - observed["sse"][1:]
    return np.linalg.lstsq(2 * (NEAR - CENTER), lost + (NEAR**2).sum(axis=1), rcond=None)[0]


def by_differences(rows, policy, *, jobs):
    """Return by how many rows two sums differ, and by what: a boundary through the center, left and right of one row.

    The two are asked for in one job, or in a job each.
    """
    across = across_lonely()
    sides = [np.stack([-across, across]) * 10 + shift * across for shift in (-1e-3, 1e-3)]
    tasks = [{"centroids": centroids} for centroids in sides]
    asked = [tasks] if jobs == 1 else [[task] for task in tasks]
    observed = [one for some in asked for one in asks("lloyd", rows, policy, UPDATE, some, min_count=1)]
    first, second = ((one["counts"][0], one["centroids"][0] * one["counts"][0]) for one in observed)
    return abs(first[0] - second[0]), first[1] - second[1]


def across_lonely():
    return np.array([-LONELY[1], LONELY[0], 0.0]) / np.hypot(*LONELY[:2])


@pytest.mark.parametrize("attack", [by_distances, by_scores])
def test_the_attack_finds_the_row_without_a_policy(rows, attack):
    np.testing.assert_allclose(attack(rows, None), LONELY, atol=1e-6)


def test_the_default_policy_tells_of_no_cell_that_is_small_enough_to_locate_a_row(rows):
    with pytest.raises(ContractViolation, match="one row"):
        by_distances(rows, Policy())


@pytest.mark.parametrize("name", ["pooled", "portfolio"])
def test_with_the_default_policy_scores_do_not_change_with_a_row_that_stands_alone(rows, name):
    """So nothing is left when they are subtracted, wherever the row is."""
    moved = np.concatenate([rows[:-1], (LONELY + np.array([3.0, 2.0, -1.0]))[None]])
    task = stack([CENTER[None], *(np.stack([CENTER, near]) for near in NEAR)])
    first, second = (scored(X, Policy(), task, name) for X in (rows, moved))
    assert first["rows"] <= len(rows) - 1
    for array, value in first.items():
        if array != SECONDS:
            np.testing.assert_allclose(second[array], value, rtol=1e-12)
    assert np.linalg.norm(by_scores(rows, Policy()) - LONELY) > 5


@pytest.mark.parametrize("dimensions", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_sums_of_distances_from_many_places_do_not_give_the_rows_of_a_group(rng, dimensions):
    """A group of twelve rows, measured from 300 places: without a policy least squares finds every row of it."""
    group = rng.normal(scale=0.5, size=(12, dimensions))
    rows = np.concatenate([group, 40 + rng.normal(size=(2600, dimensions))])
    places = rng.normal(scale=2.0, size=(300, dimensions))
    task = stack([np.stack([place, np.full(dimensions, 40.0)]) for place in places])

    def recovered(policy):
        observed = scored(rows, policy, task)
        if not observed["rows"]:
            return 0
        sums = observed["scatter"][::2]
        start = group + 0.02 * rng.normal(
            size=group.shape
        )  # a friendly start: all that is asked is whether it ends there

        def errors(values):
            guess = values.reshape(group.shape)
            return np.sqrt(((places[:, None] - guess[None]) ** 2).sum(axis=2)).sum(axis=1) - sums

        found = least_squares(errors, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15).x.reshape(group.shape)
        return int((np.abs(found[:, None] - group[None]).max(axis=2).min(axis=0) < 1e-5).sum())

    assert recovered(None) == 12
    assert recovered(Policy()) == 0


@pytest.mark.parametrize("name", ["fkm", "dkmpp", "pooled", "kfed", "feca"])
def test_own_clusters_asked_for_again_do_not_differ_by_one_row(rng, name):
    """Clusters that start at random in every exchange: sums of two never differ by the values of a row, with a policy.

    Where no counts are sent (`feca`), every number of rows is tried.
    """
    rows = rng.normal(size=(60, 3))
    for policy, finds in ((None, True), (Policy(), False)):
        replies = asks(name, rows, policy, StepName.CLUSTER, [{}] * 60, min_count=1 if name != "kfed" else 2)
        sums = np.concatenate(
            [
                mean * np.atleast_1d(number)[:, None]
                for one in replies
                if one is not None
                for mean, number in zip(one["centroids"], counts_in(one, len(rows)), strict=True)
            ]
        )
        tree = cKDTree(sums)
        nearest = min(tree.query(sums + row, p=np.inf)[0].min() for row in rows)
        assert (nearest < 1e-9) == finds, f"{name} under {policy}"


def counts_in(reply, n):
    """Return the number of rows behind each centroid, or all that it may be."""
    return reply["counts"] if "counts" in reply else [np.arange(1, n)] * len(reply["centroids"])


@pytest.mark.parametrize("fuzzifier", [1.0000001, 1.1, 2.0])
def test_fuzzy_centroids_are_those_of_the_groups(rng, fuzzifier):
    """`ffcm` near fuzzifier 1 is Lloyd's algorithm: a border that passes one row gives it, without a policy."""
    rows = np.concatenate([np.sort(rng.normal(scale=3, size=(60, 1)), axis=0), rng.normal(size=(60, 1))], axis=1)
    borders = (rows[28:31, 0] + rows[29:32, 0]) / 2
    questions = [{"centroids": np.array([[b - 1.0, 0.0], [b + 1.0, 0.0]])} for b in borders]

    def difference(policy):
        observed = asks("ffcm", rows, policy, "fuzzy", questions, fuzzifier=fuzzifier, max_iter=1, start="random")
        sums = [one["centroids"] * one["support"][:, None] for one in observed if one is not None]
        pairs = [abs(a[0] - b[0] - row).max() for a in sums for b in sums if len(a) == len(b) == 2 for row in rows]
        return min(pairs, default=np.inf)

    if fuzzifier < 1.01:
        assert difference(None) < 1e-6
    assert difference(Policy()) > 1e-3


def test_no_refusal_tells_how_large_the_largest_value_is(rng):
    """A border that a server moves towards the largest value of a column: replies change with groups only."""
    rows = rng.normal(size=(80, 2))
    largest = rows[:, 0].max()
    borders = largest + np.array([-1e-3, 1e-3])
    questions = [{"centroids": np.array([[b - 1.0, 0.0], [b + 1.0, 0.0]])} for b in borders]
    less_than, above = asks("lloyd", rows, Policy(), UPDATE, questions, min_count=1)
    assert (less_than is None) == (above is None)
    for name in ("centroids", "counts", "cluster"):
        np.testing.assert_array_equal(less_than[name], above[name])


@pytest.fixture
def apart(rows):
    """The rows without those that would cross the boundary with the lonely one."""
    others = rows[:-1]
    return np.concatenate([others[np.abs(others @ across_lonely()) > 0.002], LONELY[None]])


def test_sums_that_differ_by_one_row_tell_it_without_a_policy(apart):
    more, found = by_differences(apart, None, jobs=1)
    assert more == 1
    np.testing.assert_allclose(np.abs(found), np.abs(LONELY), atol=1e-6)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("floor", [1, 10])
def test_sums_of_one_job_or_of_two_do_not_differ_by_one_row_under_a_policy(apart, floor, jobs):
    more, found = by_differences(apart, Policy(min_count=floor), jobs=jobs)
    assert np.abs(np.abs(found) - np.abs(LONELY)).max() > 1e-3 or more == 0


def test_seeds_and_start_of_a_job_do_not_get_below_the_floor(rows):
    """`lloyd` starts where the job says; groups of two rows leave with min_count=1, and none below the site's floor."""
    pair = np.concatenate([rows, LONELY[None] + 0.5])
    at = {"centroids": np.stack([CENTER, LONELY])}
    (free,) = asks("lloyd", pair, None, UPDATE, [at], min_count=1)
    assert free["counts"].tolist() == [80, 2]
    (held,) = asks("lloyd", pair, Policy(), UPDATE, [at], min_count=1)
    assert held["counts"].tolist() == [80]
    np.testing.assert_allclose(held["centroids"], rows[:-1].mean(axis=0)[None], atol=1e-9)
    (seeds,) = asks("lloyd", pair, Policy(), StepName.CLUSTER, [{}], min_count=1)
    assert np.abs(seeds["centroids"]).max() < 10
    (as_rows,) = asks("lloyd", pair, Policy(), StepName.CLUSTER, [{}], min_count=1, seeds="rows")
    assert as_rows is None, "rows may leave no site that has a policy"


# ---- what refusals and numbers of rows disclose ----


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-common", "fkm-imputed", "lloyd", "kfed"])
def test_what_goes_wrong_with_the_labels_of_rows_is_not_seen_by_the_server(name, rows, monkeypatch):
    """A scale by which the largest value overflows and the groups' do not disclosed the value, in 47 jobs."""
    executor, _ = get(name).build(2)

    def far_ones_fail(self, task, rows):
        if np.abs(rows.X).max() > 20:
            raise Refusal("has a row beyond 20")
        return np.zeros(len(rows.X), dtype=int)

    monkeypatch.setattr(type(executor), "labels", far_ones_fail)
    for step in (StepName.ASSESS, StepName.PLACE):
        sent = {
            "centroids": np.zeros((2, 3)),
            **({"tau": np.zeros(0), "tau_site": np.zeros(0)} if name == "kfed" else {}),
        }
        task = Task(step, 0, sent, "a")
        observed = answered(executor, task, rows, SimulatedSite.of(Policy(), get(name)))
        assert observed.labels is None
        assert "beyond 20" in str(observed.unplaced)
        near = answered(executor, task, rows[:-1], SimulatedSite.of(Policy(), get(name)))
        assert near.unplaced is None
        for array in near.arrays:
            if array != SECONDS:
                np.testing.assert_array_equal(observed.arrays[array], near.arrays[array])
        with pytest.raises(Refusal, match="beyond 20"):
            answered(executor, task, rows, None)


def test_the_inertia_of_an_update_is_that_of_rounded_numbers(rng):
    """Two centroids far away: the inertia over their squared distance was the number of rows, whatever was rounded."""
    rows = rng.normal(size=(117, 3))
    observed = asks("lloyd", rows, Policy(round_counts=25), UPDATE, [{"centroids": np.array([[1e6] * 3, [3e6] * 3])}])[
        0
    ]
    assert observed["counts"].tolist() == [125]
    np.testing.assert_allclose(observed["inertia"] / (3 * 1e12), 125, rtol=1e-4)


def test_a_jobs_own_floor_is_held_against_groups(rng):
    """Its refusals disclosed how many rows a site has, one of which belongs to no group."""
    rows = np.concatenate([rng.normal(size=(57, 3)), [[1e6] * 3]])
    centroids = {"centroids": np.zeros((2, 3))}
    answers = {
        floor: asks("lloyd", rows, Policy(), StepName.ASSESS, [centroids], min_count=floor)[0] is not None
        for floor in (57, 58)
    }
    assert answers == {57: True, 58: False}
