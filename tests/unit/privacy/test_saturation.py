"""A policy's limits for numbers and categories for each row: what is refused, by which number of rows, and with which sentence."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, Refusal, UserError
from flareclust.cli.site_policy import change
from flareclust.core.microaggregation import microaggregate
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.privacy.policy import Policy, summary
from flareclust.privacy.saturation import most_levels
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from flareclust.sites.check import _saturated
from flareclust.sites.policy_file import policy_of

K, D = 2, 4


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(0, 1, (50, D)), rng.normal(20, 1, (50, D))])


def reply(rows, algorithm="lloyd", columns=None, **policy):
    held = SimulatedSite.of(Policy(**policy), get(algorithm))
    executor = get(algorithm).build(K, 0, {})[0]
    return answered(executor, Task(StepName.CLUSTER, 0, {}, "site-1"), Table(rows, columns), held).arrays


def test_a_message_with_more_numbers_for_each_row_is_refused(rows):
    sent = reply(rows)
    numbers = sum(value.size for name, value in sent.items() if value.dtype == np.float64 and name != "seconds")
    n = sum(map(len, microaggregate(rows, 10)))  # the rows of all groups
    assert set(reply(rows, max_numbers_per_row=numbers / n)) == set(sent)
    with pytest.raises(Refusal, match=r"fewer numbers in a message.*take fewer clusters.*max_numbers_per_row"):
        reply(rows, max_numbers_per_row=(numbers - 0.5) / n)


def test_it_is_the_rounded_number_of_rows_that_counts(rows):
    """Else a job could find the exact number by varying k, where it gets multiples only."""
    refused = []
    for n in (96, 100):
        try:
            reply(rows[:n], round_counts=50, max_numbers_per_row=K * D / 99.0)
            refused.append(False)
        except Refusal:
            refused.append(True)
    assert refused == [False, False]
    with pytest.raises(Refusal):
        reply(rows[:60], round_counts=50, max_numbers_per_row=K * D / 99.0)


def test_a_column_with_more_categories_for_each_row_is_refused(rows):
    columns = ("a", "ward=1", "ward=2", "ward=3")
    assert most_levels(columns) == 3
    assert most_levels(("a", "b")) == 0
    reply(rows, columns=columns, max_levels_per_row=0.04)
    with pytest.raises(Refusal, match=r"too many categories for its rows .*max_levels_per_row"):
        reply(rows, columns=columns, max_levels_per_row=0.02)


def test_noise_needs_no_limit():
    pytest.importorskip("opendp", reason="needs the extra dp")
    limits = {"max_numbers_per_row": 1e-6, "max_levels_per_row": 1e-6}
    private = {"bounds": [0, 10], "epsilon": 1.0, "delta": 1e-5, "budget": 3.0}
    own = {"k": 3, "data": "iris", "n_sites": 3, "engine": "inprocess"}
    assert flareclust.run("dp-lloyd", policy={**limits, "differential_privacy": private}, **own).centroids_found == 3
    with pytest.raises(JobFailed, match="max_numbers_per_row"):
        flareclust.run("lloyd", policy=limits, **own)


def test_without_limits_the_policy_is_as_before():
    assert Policy().max_numbers_per_row is Policy().max_levels_per_row is None
    assert Policy.of({"min_count": 10}) == Policy()
    assert summary(Policy())["saturation"] == "no limit"


@pytest.mark.parametrize("value", [0, -1, "much", float("inf"), True])
def test_limits_are_numbers_above_0(value):
    for name in ("max_numbers_per_row", "max_levels_per_row"):
        with pytest.raises(UserError, match=f"{name} must be a finite number above 0"):
            Policy.of({name: value})


def test_the_command_sets_them_and_says_so(tmp_path, capsys):
    change(tmp_path, None, {"min_count": 10}, show=False, remove=False)
    change(tmp_path, None, {"max_numbers_per_row": 0.33, "max_levels_per_row": 0.2}, show=False, remove=False)
    words = "for each row at most 0.33 numbers of a message and 0.2 categories of a column"
    assert f"changed: saturation: {words} (before: no limit)" in capsys.readouterr().out
    assert policy_of(tmp_path).max_levels_per_row == 0.2


def test_check_says_at_the_site_that_no_job_can_take_part(rows):
    table = Table(rows, ("a", "ward=1", "ward=2", "ward=3"))
    assert _saturated(Policy(max_levels_per_row=0.03), "north", table) == []
    (found,) = _saturated(Policy(max_levels_per_row=0.02), "north", table)
    assert "north has a column with 3 categories for 100 rows" in found
