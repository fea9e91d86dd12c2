"""What sites say of the rows of their tables that took no part: exact numbers, or multiples of a policy's floor, once."""

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.core.outcomes import OutcomeForm
from flareclust.data.tables import RowsRead, Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.site import answer
from flareclust.privacy.enforcement import PolicyEnforcer
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import BUILT_IN, get
from flareclust.protocol.task import StepName, Task

ROWS = np.random.default_rng(0).normal(size=(300, 2))


def asked(read: RowsRead, session: SiteSession | None = None) -> Message:
    """Return what a site says of a table."""
    executor, _ = get("lloyd").build(2, 0, {"table_schema": "agreed"})
    task = Task(StepName.ROWS_READ, 5, {"centroids": ROWS[:2]}, "north")
    return answer(executor, task, Table(ROWS, schema="agreed", rows_read=read), lambda: False, session).arrays


def numbers(reply: Message) -> list[int]:
    return [int(reply[name]) for name in ("kept", "gaps")]


def test_withdrawn_rows_are_in_no_number():
    assert numbers(asked(RowsRead(317, 10, withdrawn=7, withdrawn_gaps=2))) == [300, 8]
    assert numbers(asked(RowsRead(317, 10, 3, "first", withdrawn=4))) == [300, 10]


@pytest.mark.parametrize(
    ("policy", "expected"), [(Policy(min_count=10), [290, 20]), (Policy(min_count=10, round_counts=4), [288, 24])]
)
def test_a_policys_numbers_are_multiples_of_its_floor(policy, expected):
    assert numbers(asked(RowsRead(328, 29), SiteSession(policy, "job"))) == expected


def test_a_site_says_it_once():
    gate = PolicyEnforcer(Policy(min_count=10))
    task = {"centroids": ROWS[:2]}
    gate.check_request(StepName.ASSESS, 5, task)
    gate.check_request(StepName.ROWS_READ, 5, {})
    with pytest.raises(Refusal, match="too late"):
        gate.check_request(StepName.ROWS_READ, 6, {})
    for again in range(5):  # the exchange takes the place of no other
        gate.check_request(StepName.PROFILE_BINS, 7 + again, task)


@pytest.mark.parametrize("secure_sums", [False, True])
def test_sites_with_a_policy_are_asked_in_no_earlier_round_than_before(secure_sums):
    rng = np.random.default_rng(0)
    numbers = OutcomeForm("time", every=30.0, until=300.0).numbers
    tables = {}
    for site in ("east", "north", "west"):
        died = np.column_stack([rng.uniform(0, 300, len(ROWS)), rng.integers(2, size=len(ROWS))])
        read = RowsRead(len(ROWS) + 20, 20)
        tables[site] = Table(ROWS, schema="agreed", rows_read=read, outcomes=died, outcome_form=tuple(numbers.tolist()))
    options = JobOptions(k=2, secure_sums=secure_sums, outcomes=tuple(numbers.tolist()))
    done = run_inprocess(get("lloyd"), {"table_schema": "agreed"}, tables, options).rounds
    gate, steps = PolicyEnforcer(Policy(min_count=10)), [str(record["step"]) for record in done]
    for record in done[steps.index(StepName.ASSESS) :]:
        gate.check_request(str(record["step"]), record["round"], {})
    assert steps[-1] == StepName.ROWS_READ
    assert StepName.OUTCOME_COUNTS in steps


def test_nobody_is_asked_under_differential_privacy():
    private = [one for one in BUILT_IN if "differentially-private" in one.promises]
    assert private
    assert all(StepName.ROWS_READ not in one.executor_class().job_steps() for one in private)
