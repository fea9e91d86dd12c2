"""Phases: which class answers a step, and that a site answers none that its job does not have."""

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import never_abort
from flareclust.executors.feca import FeCAExecutor
from flareclust.executors.lloyd import LloydExecutor
from flareclust.executors.masked import MaskedExecutor
from flareclust.federation import site
from flareclust.federation.site import PHASES, job_lines
from flareclust.protocol.registry import algorithms
from flareclust.protocol.schema import Schema
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step, counts_of
from flareclust.protocol.task import StepName, Task

FEDERATED = [one for one in algorithms().values() if one.federated]


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda algorithm: algorithm.name)
def test_a_step_that_the_algorithm_does_not_have_is_answered_by_a_phase(algorithm):
    executor = algorithm.executor_class()
    for name, line in job_lines(executor).items():
        assert (line.phase is None) == (name.removesuffix("_counts") in executor.steps)


def test_the_numbers_of_rows_of_a_counted_step_are_of_the_same_phase():
    lines = job_lines(LloydExecutor)
    phase = lines[StepName.PROFILE_TOTALS].phase
    assert phase is lines[counts_of(StepName.PROFILE_TOTALS)].phase is lines[StepName.PROFILE].phase is not None


def test_deepfeca_has_the_steps_of_its_member_and_not_those_of_their_phases():
    executor = pytest.importorskip("flareclust.executors.deepfeca").DeepFeCAExecutor(2)
    assert executor.step(StepName.CLUSTER) is FeCAExecutor.steps[StepName.CLUSTER]
    with pytest.raises(BadMessage, match="scales"):
        executor.answer(Task(StepName.SCALES, 0, {}, "a"), np.ones((4, 4)), never_abort)


def test_what_is_differentially_private_has_no_exact_profiles_whatever_its_base_has():
    class Private(LloydExecutor):
        private = True

    assert StepName.PROFILE in job_lines(LloydExecutor)
    assert not {StepName.PROFILE, StepName.PROFILE_TOTALS} & set(job_lines(Private))


def test_sites_with_different_columns_have_no_steps_for_the_same_ones():
    assert StepName.DESCRIBE in job_lines(MaskedExecutor)
    assert not {StepName.SCALES, StepName.PROFILE} & set(job_lines(MaskedExecutor))


class RowCount(Phase):
    """How many rows there are, asked at the end."""

    steps = {"rows": Step(Schema(rows=""), "rows")}

    def rows(self, task, rows):
        return {"rows": np.array(float(len(rows.X) + self.params.k))}


def test_a_further_phase_has_the_settings_and_the_rows(monkeypatch):
    monkeypatch.setattr(site, "PHASES", (PHASES[0], (*PHASES[1], RowCount)))

    class Counted(FeCAExecutor):
        pass

    assert list(job_lines(Counted))[-1] == "rows"
    assert Counted(3).answer(Task("rows", 0, {}, "a"), np.ones((4, 2)), never_abort).arrays["rows"] == 7


def test_a_step_without_its_method_is_refused_where_the_class_is_made():
    with pytest.raises(TypeError, match="Broken has no method 'nowhere' for its step 'rows'"):

        class Broken(FeCAExecutor):
            steps = {"rows": Step(Schema(rows=""), "nowhere")}
