"""The lists of phases and stages, for users: what jobs have is in them, in its order."""

import pytest

from flareclust.federation.site import job_lines, phases_of, site_stages, stages_of
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import algorithms, get

FEDERATED = [algorithm for algorithm in algorithms().values() if algorithm.federated]


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_every_step_of_a_job_is_in_the_list_once(algorithm):
    listed = [step for phase in phases_of(algorithm.executor_class()) for step in phase.steps]
    assert len(set(listed)) == len(listed)
    asked = {name for name in job_lines(algorithm.executor_class()) if not name.endswith("_counts")}
    assert asked == {name for name in listed if not name.endswith("_counts")}


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("lloyd", {}, ["Scale"]),
        ("lloyd", {"metric": "cosine", "missing": "mean"}, ["Gaps", "Scale", "Directions"]),
        ("lloyd", {"missing": "mean", "trim_rows": 0.1}, ["Gaps", "Scale", "Trim"]),
        ("masked", {}, ["OwnColumns"]),
        ("pooled", {}, ["Scale"]),
    ],
)
def test_the_stages_of_a_job_are_in_the_list_in_its_order(name, params, expected):
    executor = get(name).build(3, 0, params)[0]
    listed = [one.name for one in stages_of(executor)]
    gate, views = site_stages(executor, SiteSession(Policy(max_numbers_per_row=1.0), "a job"))
    found = [type(stage).__name__ for stage in (*gate, *views)]
    assert found == [
        "PolicyStage",
        "MaskingStage",
        "RowStage",
        "GroupingStage",
        "SaturationStage",
        *expected,
        "CentroidStage",
    ]
    assert [name for name in listed if name in found] == found
    assert listed[-1] == "SchemaStage"


def test_each_has_a_sentence_about_it():
    for algorithm in FEDERATED:
        executor = algorithm.build(3)[0]
        for one in (*phases_of(type(executor)), *stages_of(executor)):
            assert one.does.endswith("."), one.name


def test_a_policy_without_limits_has_no_stage_for_them():
    gate, _ = site_stages(get("lloyd").build(3)[0], SiteSession(Policy(), "a job"))
    assert [type(stage).__name__ for stage in gate][-1] == "GroupingStage"
