"""What a server that asks for outcomes as it likes learns from a site with a policy: whole groups, and never the form that it wants."""

from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core import microaggregation
from flareclust.core.outcomes import OutcomeForm
from flareclust.data.tables import Table
from flareclust.federation.site import answer
from flareclust.privacy.enforcement import PolicyEnforcer
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task

#: Centroids with which a group of rows at 40 is in the cluster of the others, or in one of its own.
JOINED, APART = np.array([[0.0, 0.0], [0.0, 300.0]]), np.array([[0.0, 0.0], [40.0, 0.0]])
FLOOR, MANY, FEW = 10, 200, 12
NUMBER, YES_NO = OutcomeForm("number"), OutcomeForm("category", values=2)


def table(outcomes: FloatArray, form: OutcomeForm) -> Table:
    """Return 200 rows and a group of 12 with these outcomes (212,)."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(MANY, 2)), rng.normal((40, 0), 0.5, size=(FEW, 2))])
    return Table(X, ("a", "b"), outcomes=outcomes[:, None], outcome_form=tuple(form.numbers.tolist()))


def asked(
    rows: Table, step: str, centroids: FloatArray, form: OutcomeForm, session: SiteSession | None = None
) -> Message:
    """Return what a site with a policy answers."""
    executor, _ = get("lloyd").build(len(centroids), 0, {})
    task: Message = {"centroids": centroids, "outcome_form": form.numbers}
    if step == StepName.OUTCOME_SUMS:
        task["origin"] = np.array(0.0)
    session = session or SiteSession(Policy(min_count=FLOOR), "job")
    return answer(executor, Task(step, 5, task, "north"), rows, lambda: False, session).arrays


def test_a_group_with_few_known_outcomes_is_in_no_sum() -> None:
    rng = np.random.default_rng(1)
    outcomes = np.concatenate([rng.normal(50, 5, MANY), np.full(FEW, np.nan)])
    outcomes[MANY] = 87.125
    rows = table(outcomes, NUMBER)
    joined, apart = (asked(rows, StepName.OUTCOME_SUMS, one, NUMBER) for one in (JOINED, APART))
    assert joined["total"][0] == apart["total"][0]
    assert joined["rows"].tolist() == apart["rows"].tolist()


def test_a_group_whose_numbers_are_all_alike_is_in_no_sum() -> None:
    outcomes = np.concatenate([np.random.default_rng(2).normal(50, 5, MANY), np.full(FEW, 9.0)])
    rows = table(outcomes, NUMBER)
    assert asked(rows, StepName.OUTCOME_SUMS, JOINED, NUMBER)["rows"].sum() <= MANY


def test_all_numbers_of_rows_are_multiples_of_the_floor() -> None:
    outcomes = np.concatenate([np.arange(MANY) % 2, np.r_[1.0, np.zeros(FEW - 1)]]).astype(np.float64)
    for centroids in (JOINED, APART):
        counts = asked(table(outcomes, YES_NO), StepName.OUTCOME_COUNTS, centroids, YES_NO)["counts"]
        assert not (counts % FLOOR).any()


@pytest.mark.parametrize(
    ("own", "wanted", "step"),
    [
        (YES_NO, NUMBER, StepName.OUTCOME_SUMS),
        (NUMBER, OutcomeForm("category", values=100), StepName.OUTCOME_COUNTS),
        (YES_NO, OutcomeForm("category", values=3), StepName.OUTCOME_COUNTS),
        (YES_NO, OutcomeForm("ordered", values=2), StepName.OUTCOME_COUNTS),
    ],
)
def test_a_site_answers_the_form_of_its_own_schema_only(own: OutcomeForm, wanted: OutcomeForm, step: str) -> None:
    rows = table(np.arange(MANY + FEW) % 2.0, own)
    with pytest.raises(Refusal, match="outcomes of another form"):
        asked(rows, step, APART, wanted)


def test_a_grid_of_times_is_that_of_the_schema() -> None:
    form = OutcomeForm("time", every=1.0, until=300.0)
    rows = table(np.zeros(MANY + FEW), form)
    rows = replace(rows, outcomes=np.column_stack([np.arange(MANY + FEW), np.ones(MANY + FEW)]))
    assert asked(rows, StepName.OUTCOME_COUNTS, APART, form)["counts"].shape == (2, 2, 301)
    with pytest.raises(Refusal, match="outcomes of another form"):
        asked(rows, StepName.OUTCOME_COUNTS, APART, OutcomeForm("time", every=1.0, until=304.0))


def test_questions_about_too_many_numbers_are_refused() -> None:
    form = OutcomeForm("time", every=1.0, until=4000.0)
    with pytest.raises(BadMessage, match="at most 10,000,000 numbers"):
        asked(table(np.zeros(MANY + FEW), form), StepName.OUTCOME_COUNTS, np.zeros((2000, 2)), form)


def test_a_job_asks_for_counts_once() -> None:
    gate, arrays = PolicyEnforcer(Policy()), {"centroids": np.zeros((2, 3))}
    gate.check_request(StepName.ASSESS, 1, arrays)
    gate.check_request(StepName.OUTCOME_COUNTS, 5, arrays)
    with pytest.raises(Refusal, match="too late"):
        gate.check_request(StepName.OUTCOME_COUNTS, 6, arrays)


def test_groups_of_different_parts_of_a_table_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microaggregation, "CHUNK", 100 * 2 * 8)  # a hundred rows
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(100, 2)), np.zeros((100, 2)), rng.normal((40, 0), 1, size=(100, 2))])
    form = tuple(YES_NO.numbers.tolist())
    rows = Table(X, ("a", "b"), outcomes=np.repeat([0.0, 0.0, 1.0], 100)[:, None], outcome_form=form)
    counts = asked(rows, StepName.OUTCOME_COUNTS, APART, YES_NO)["counts"]
    assert counts.tolist() == [[[100, 0], [0, 100]]]
