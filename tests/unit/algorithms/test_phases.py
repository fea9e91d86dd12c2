"""Phases: which class answers a step, and that a site answers none that its job does not have."""

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.deepfeca import DeepFeCAExecutor
from flareclust.executors.feca import FeCAExecutor
from flareclust.executors.kprototypes import KPrototypesExecutor
from flareclust.executors.lloyd import LloydExecutor
from flareclust.executors.masked import MaskedExecutor
from flareclust.executors.phases import Phase
from flareclust.protocol.registry import algorithms
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step, counts_of
from flareclust.protocol.task import StepName, Task
from tests.computed import computed

FEDERATED = [one for one in algorithms().values() if one.federated]


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda algorithm: algorithm.name)
def test_a_step_of_a_phase_is_answered_by_the_phase_and_by_no_method_of_the_algorithm(algorithm):
    site = algorithm.executor_class()
    of_phases = {name for phase in site.phases for name in phase.steps} & set(site.steps)
    for name in of_phases:
        part = site.part_class(name)
        assert issubclass(part, Phase)
        assert callable(getattr(part, site.step(name).method))
        assert not hasattr(site, site.step(name).method)
    assert all(site.part_class(name) is site for name in site.steps if name.removesuffix("_counts") not in of_phases)


def test_the_numbers_of_rows_of_a_counted_step_are_of_the_same_part():
    part = LloydExecutor.part_class(StepName.PROFILE_TOTALS)
    assert (
        part
        is LloydExecutor.part_class(counts_of(StepName.PROFILE_TOTALS))
        is LloydExecutor.part_class(StepName.PROFILE)
    )
    assert part is not LloydExecutor


def test_categories_are_checked_before_columns_are_described():
    assert KPrototypesExecutor.part_class(StepName.SCALES) is not FeCAExecutor.part_class(StepName.SCALES)
    assert issubclass(KPrototypesExecutor.part_class(StepName.SCALES), FeCAExecutor.part_class(StepName.SCALES))


def test_deepfeca_has_the_algorithms_steps_and_not_those_of_their_phases():
    own = {name for name in DeepFeCAExecutor.steps if name.startswith("feca_")}
    assert own == {"feca_cluster"}
    with pytest.raises(BadMessage, match="feca_scales"):
        DeepFeCAExecutor(2).answer(Task("feca_scales", 0, {}, "a"), np.ones((4, 4)), lambda: False)


def test_what_is_differentially_private_has_no_exact_profiles_whatever_its_base_has():
    class Private(LloydExecutor):
        private = True

    assert StepName.PROFILE in LloydExecutor.steps
    assert not {StepName.PROFILE, StepName.PROFILE_TOTALS} & set(Private.steps)


def test_sites_with_different_columns_have_no_steps_for_the_same_ones():
    assert StepName.DESCRIBE in MaskedExecutor.steps
    assert not {StepName.SCALES, StepName.PROFILE} & set(MaskedExecutor.steps)


class RowCount(Phase):
    """How many rows there are, asked at the end."""

    steps = {"rows": Step(Schema(rows=""), "rows")}

    def rows(self, task, rows):
        return {"rows": np.array(float(len(rows.X) + self.site.params.k))}


def test_a_phase_of_ones_own_has_the_algorithm_and_its_rows():
    class Counted(FeCAExecutor):
        phases = (*FeCAExecutor.phases, RowCount)

    assert list(Counted.steps)[-1] == "rows"
    assert Counted.part_class(StepName.CLUSTER) is Counted
    assert computed(Counted(3), Task("rows", 0, {}, "a"), np.ones((4, 2)), None)["rows"] == 7


def test_a_phase_without_its_method_is_refused_where_the_class_is_made():
    class Broken(Phase):
        steps = {"rows": Step(Schema(rows=""), "nowhere")}

    with pytest.raises(TypeError, match="Broken has no method 'nowhere' for its step 'rows'"):

        class Site(ClusteringExecutor):
            phases = (Broken,)
