"""What a server learns of single rows from micro-clusters and trees, where it is curious and where it chooses what sites get back.

The attacks: jobs with every setting for small groups, and sums of two jobs that differ by a row; labels of a server's choice, whose
clusters the profile describes; numbers of clusters that are not there; representatives that place a late site's rows.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.spatial import cKDTree

from flareclust._foundation.errors import BadMessage
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.executors.kfed import site_number
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from tests.memory import peak_of

TREE = get("tree")
LONELY = np.array([31.25, -18.5, 12.75])


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(size=(120, 3)), LONELY[None]])


def answer(task, rows, policy=None, k=2, **params):
    held = None if policy is None else SimulatedSite.of(policy, TREE)
    if held is not None and task.step in StepName.PROFILING:
        held.enforcer.asked.add(StepName.ASSESS, task.round)
    return answered(TREE.build(k, 0, params)[0], task, rows, held)


def upload(rows, policy=None, **params):
    return answer(Task(StepName.CLUSTER, 0, {}, "a"), rows, policy, **params).arrays


SMALL = [
    {"group_rows": groups, "min_count": least, "max_groups": most}
    for groups, least, most in product((3, 4, 5, 7), (1, 2), (20, 100_000))
]


def test_no_setting_of_a_job_makes_groups_below_the_floor_of_a_policy(rows):
    for settings in SMALL:
        sent = upload(rows, Policy(min_count=10), **settings)
        assert sent["counts"].min() >= 10
        assert np.abs(sent["centroids"]).max() < 10  # the row that is alone is in none


def smallest_difference(rows, policy):
    """Return by how much sums of two groups of any jobs differ, less a row."""
    replies = [upload(rows, policy, **settings) for settings in SMALL]
    sums = np.concatenate([one["centroids"] * one["counts"][:, None] for one in replies])
    tree = cKDTree(sums)
    return min(tree.query(sums + row, p=np.inf)[0].min() for row in rows)


def test_sums_of_jobs_with_other_settings_differ_by_no_row_under_a_policy(rows):
    assert smallest_difference(rows, Policy()) > 1e-3


def test_without_a_policy_sums_of_two_jobs_give_a_row_away(rows):
    """As two sets of centroids do of any algorithm, see docs/attacks.md: hence policies."""
    assert smallest_difference(rows, None) < 1e-9


@pytest.mark.parametrize("policy", [None, Policy(round_counts=1)], ids=["no policy", "policy"])
def test_labels_of_a_servers_choice_are_of_whole_groups(rows, policy):
    """The profile describes a cluster that is one group by what the server knows of it, and the others less that group."""
    sent = upload(rows, policy)
    known = sent["counts"][:, None] * sent["centroids"]
    for chosen in range(0, len(known), 3):
        group = np.ones(len(known), np.int64)
        group[chosen] = 0
        numbers = np.full(len(known), site_number("a"))
        centroids = np.stack([sent["centroids"][chosen], sent["centroids"].mean(axis=0)])
        task = Task(StepName.PROFILE, 1, {"centroids": centroids, "group": group, "group_site": numbers}, "a")
        found = answer(task, rows, policy).arrays
        described = dict(zip(found["cluster"].tolist(), found["counts"][:, None] * found["centroids"], strict=True))
        assert set(described) <= {0, 1}
        for cluster, total in described.items():
            np.testing.assert_allclose(total, known[group == cluster].sum(axis=0), atol=1e-8)


@pytest.mark.parametrize("number", [-2, 2, 2**31, 2**62])
def test_numbers_of_clusters_that_are_not_there_are_refused_and_take_no_memory(rows, number):
    c = len(upload(rows)["counts"])
    sent = {"centroids": np.zeros((2, 3)), "group": np.full(c, number), "group_site": np.full(c, site_number("a"))}
    for step in (StepName.ASSESS, StepName.PROFILE):

        def attack(step=step):
            with pytest.raises(BadMessage, match="group: holds values"):
                answer(Task(step, 1, sent, "a"), rows)

        assert peak_of(attack) < 50_000_000


@pytest.mark.parametrize(
    "change",
    [
        {"representatives": np.zeros((4, 2))},
        {"representatives": np.full((4, 3), np.nan)},
        {"representative_cluster": np.array([0, 1, 2, 0])},
        {"representative_cluster": np.array([0, 1, -2, 0])},
        {"representative_cluster": np.zeros(3, np.int64)},
        {"representative_reach": np.array([1.0, 1.0, -1.0, 1.0])},
        {"representative_reach": np.ones(5)},
    ],
)
def test_representatives_that_cannot_be_are_refused_by_a_late_site(rows, change):
    sent = {
        "centroids": np.zeros((2, 3)),
        "representatives": np.zeros((4, 3)),
        "representative_cluster": np.array([0, 1, -1, 0]),
        "representative_reach": np.ones(4),
    }
    task = Task(StepName.PLACE, 0, sent, "late")
    assert set(answer(task, rows).arrays) == {"rows", "seconds"}
    with pytest.raises(BadMessage, match=next(iter(change))):
        answer(replace(task, arrays={**sent, **change}), rows)


def test_a_row_that_is_alone_is_in_no_group_no_profile_and_no_label(rows):
    sent = upload(rows)
    c = len(sent["counts"])
    task = {
        "centroids": sent["centroids"][:2],
        "group": np.arange(c) % 2,
        "group_site": np.full(c, site_number("a")),
    }
    assert answer(Task(StepName.ASSESS, 1, task, "a"), rows).labels[-1] == -1
    found = answer(Task(StepName.PROFILE, 1, task, "a"), rows).arrays
    assert found["counts"].sum() == sent["counts"].sum()
    assert np.abs(found["centroids"]).max() < 10
