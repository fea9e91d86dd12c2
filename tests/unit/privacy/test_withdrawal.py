"""A lead that has results of before and after rows were withdrawn, and subtracts them."""

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.core.microaggregation import microaggregate
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import Task

FLOOR = 10


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(size=(120, 3)), rng.normal(6, 1, size=(80, 3))])


def total(table, policy):
    """Return number and sum (d,) of a site's rows, as the update of a job with one centroid tells them."""
    line = get("lloyd")
    executor, _ = line.build(1, 0, {"min_count": 1})
    held = None if policy is None else SimulatedSite.of(policy, line)
    got = answered(
        executor, Task(UPDATE, 0, {"centroids": np.zeros((1, table.X.shape[1]))}, "north"), table, held
    ).arrays
    return int(got["counts"][0]), got["counts"][0] * got["centroids"][0]


def difference(before, after, policy):
    (n, own), (m, less) = total(before, policy), total(after, policy)
    return n - m, own - less


@pytest.mark.parametrize("row", [3, 77, 150])
def test_without_a_policy_the_difference_is_the_row(rows, row):
    number, told = difference(Table(rows), Table(np.delete(rows, row, axis=0)), None)
    assert number == 1
    np.testing.assert_allclose(told, rows[row], atol=1e-9)


def test_groups_of_the_rows_that_are_left_would_tell_the_row(rows):
    """What a site with a policy would tell that forgets the row before it makes groups."""
    told = [
        difference(Table(rows), Table(np.delete(rows, row, axis=0)), Policy(min_count=FLOOR))
        for row in range(0, 200, 20)
    ]
    exact = [
        number == 1 and np.allclose(sums, rows[row], atol=1e-6)
        for row, (number, sums) in zip(range(0, 200, 20), told, strict=True)
    ]
    assert sum(exact) >= 5


@pytest.mark.parametrize("row", range(0, 200, 20))
def test_with_a_policy_the_difference_is_of_a_whole_group_or_nothing(rows, row):
    number, told = difference(Table(rows), Table(rows, withdrawn=np.arange(200) == row), Policy(min_count=FLOOR))
    assert number == 0 or number >= FLOOR
    if number:
        assert np.abs(told / number - rows[row]).max() > 1e-3


def test_row_after_row_leaves_only_whole_groups_of_the_first_job(rows, rng):
    """However many jobs there are between: what a job sees is a part of what every earlier one saw, to the last bit."""
    gone, earlier = np.zeros(200, dtype=bool), np.concatenate(list(microaggregate(rows, FLOOR)))
    for row in rng.permutation(200)[:12]:
        gone[row] = True
        now = np.concatenate(list(microaggregate(rows, FLOOR, gone)))
        left = {one.tobytes() for one in earlier}
        assert all(one.tobytes() in left for one in now)
        assert len(earlier) == len(now) or len(earlier) - len(now) >= FLOOR
        earlier = now
    assert 0 < len(earlier) < 200


def test_the_order_of_the_rows_does_not_matter(rows, rng):
    gone, order = np.arange(200) % 40 == 0, rng.permutation(200)
    first, second = (
        np.concatenate(list(microaggregate(*one))) for one in ((rows, FLOOR, gone), (rows[order], FLOOR, gone[order]))
    )
    np.testing.assert_array_equal(first, second)


def test_missing_cells_are_left_out_with_their_group(rows, rng):
    rows[rng.random(rows.shape) < 0.1] = np.nan
    gone = np.arange(200) == 50
    every, now = (np.concatenate(list(microaggregate(rows, FLOOR, mask))) for mask in (None, gone))
    assert {one.tobytes() for one in now} <= {one.tobytes() for one in every}
    assert len(every) - len(now) >= FLOOR


def test_rows_that_are_withdrawn_do_not_count_for_the_fewest(rows):
    few = Policy(min_count=FLOOR, min_rows=200)
    assert total(Table(rows), few)[0]
    with pytest.raises(Refusal, match="fewer rows"):
        total(Table(rows, withdrawn=np.arange(200) == 5), few)
