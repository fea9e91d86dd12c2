"""What a server learns from jobs that no algorithm of ours makes: two executors in one, and scales of its own choice."""

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.federation.refinement import UPDATE
from flareclust.preparation import alignment
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task

_EXCHANGES = 118


def sums_of_two_executors(rows, policy):
    """Return the sums and numbers of rows that one job gets from a site: FKM's clusters and Lloyd's updates by turns.

    NVFlare gives each task to the executor that the job names for it; the site's terms are those of the job. FKM shows where
    the rows are, and each update cuts them in two there, a little further than the one before.
    """
    fkm, _ = get("fkm").build(3, 0, {"min_count": 1})
    lloyd, _ = get("lloyd").build(3, 0, {"min_count": 1})
    held = None if policy is None else SimulatedSite.of(policy, get("lloyd"))
    rng, reported = np.random.default_rng(1), []
    for round_ in range(_EXCHANGES // 2):
        clusters = answered(fkm, Task(StepName.CLUSTER, 2 * round_, {}, "site-1"), rows, held).arrays
        reported.append(clusters)
        low, high = clusters["centroids"][:, 0].min(), clusters["centroids"][:, 0].max()
        cut = low + (high - low) * (round_ + rng.uniform()) / (_EXCHANGES // 2)
        sides = np.array([[cut - 1.0, 0.0], [cut + 1.0, 0.0]])
        reported.append(
            answered(lloyd, Task(UPDATE, 2 * round_ + 1, {"centroids": sides}, "site-1"), rows, held).arrays
        )
    sums = np.concatenate([one["centroids"] * one["counts"][:, None] for one in reported])
    return sums, np.concatenate([one["counts"] for one in reported])


def recovered(rows, policy):
    """Return how many rows are the difference of two sums over numbers of rows that differ by one."""
    sums, counts = sums_of_two_executors(rows, policy)
    more, less = np.nonzero(counts[:, None] - counts[None] == 1)
    found = sums[more] - sums[less]
    return sum(bool((np.abs(found - row).max(axis=1) < 1e-9).any()) for row in rows)


def test_two_executors_in_one_job_find_rows_without_a_policy_and_none_with_the_default_one(rng):
    rows = rng.normal(size=(60, 2))
    assert recovered(rows, None) >= 15
    assert recovered(rows, Policy()) == 0


def test_answers_of_one_executor_do_not_change_with_what_the_other_has_been_asked(rng):
    rows = rng.normal(size=(90, 2))
    at = {"centroids": rng.normal(size=(3, 2))}
    fkm, lloyd = get("fkm").build(3)[0], get("lloyd").build(3)[0]
    held = SimulatedSite.of(Policy(), get("lloyd"))
    reported = []
    for round_ in range(0, 6, 2):
        reported.append(answered(lloyd, Task(UPDATE, round_, at, "site-1"), rows, held).arrays)
        answered(fkm, Task(StepName.CLUSTER, round_ + 1, at if round_ else {}, "site-1"), rows, held)
    for name in ("centroids", "counts", "cluster", "inertia"):
        np.testing.assert_array_equal(reported[0][name], reported[1][name])
        np.testing.assert_array_equal(reported[0][name], reported[2][name])


def scaled_task(table, name, deviation, mean=0.0, step=StepName.PLACE):
    arrays = {
        "columns": alignment._codes_of(table),
        "mean": np.array([mean, 0.0]),
        "deviation": np.array([deviation, 1.0]),
        "centroids": np.array([[0.0, 0.0], [1.0, 1.0]]),
    }
    if name == "proxy":
        arrays |= {"group": np.array([0]), "group_site": np.array([0])}
    return Task(step, 0, arrays, "site-1")


@pytest.mark.parametrize("step", [StepName.PLACE, StepName.ASSESS])
@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-common", "fkm-imputed"])
def test_no_scale_of_the_servers_tells_how_large_the_largest_value_is(rng, name, step):
    """Scales by which a threshold becomes the largest number there is: rows above it would overflow, and those below not."""
    table = Table(rng.normal(size=(200, 2)), ("a", "b"))
    executor, _ = get(name).build(2, 0, {"scale": "standard"})

    def words(deviation, mean=0.0):
        try:
            executor.answer(
                scaled_task(table, name, deviation, mean, step), table, never_abort, SiteSession(Policy(), "job")
            )
        except (Refusal, BadMessage) as reason:
            return str(reason)
        return ""

    largest = table.X[:, 0].max()
    limit = np.finfo(float).max
    less_than, above = (words(threshold / limit) for threshold in (largest - 1e-3, largest + 1e-3))
    assert less_than == above == "deviation: holds values below 1e-100"
    assert words(0.0) == words(-1.0) == less_than
    assert words(np.inf) == words(np.nan) == "deviation: holds NaN or infinite values"
    assert words(1e200) == "deviation: holds values beyond 1e+140"
    assert words(1.0, -1.7e308) == "mean: holds values beyond 1e+140"
    assert words(1.0, np.nan) == "mean: holds NaN or infinite values"
    assert words(1e-60) == words(1e100, -1e100) == words(2.0) == ""


def test_a_scale_for_other_columns_than_those_sent_is_refused(rng):
    table = Table(rng.normal(size=(50, 2)), ("a", "b"))
    executor, _ = get("masked").build(2, 0, {"scale": "standard"})
    task = scaled_task(table, "masked", 1.0)
    for name in ("mean", "deviation"):
        for wrong in (np.ones(3), np.ones((2, 2))):
            with pytest.raises(BadMessage, match=name):
                executor.answer(Task(StepName.PLACE, 0, task.arrays | {name: wrong}, "site-1"), table, never_abort)
        alone = {other: value for other, value in task.arrays.items() if other != name}
        with pytest.raises(BadMessage, match=name):
            executor.answer(Task(StepName.PLACE, 0, alone, "site-1"), table, never_abort)
