"""IFCA as a job: the models of one process, means by model, masked sums."""

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.federation.server import ServerJob
from flareclust.personal.aggregator import IFCAAggregator
from flareclust.personal.executor import IFCAExecutor
from flareclust.personal.jobs import IFCA, train_in_jobs
from flareclust.personal.methods import train_models
from flareclust.personal.settings import PersonalSettings
from flareclust.protocol.task import StepName
from tests.unit.personal.job_cases import ONE, losing, sites, with_executor
from tests.unit.personal.planted import planted


def test_ifca_in_jobs_finds_planted_clusters_as_in_one_process():
    split, own = planted(devices=6)
    settings = PersonalSettings(data="own", method="ifca", k=2, model="linear", rounds=5, lr=0.05, engine="simulator")
    course = train_in_jobs(settings, split, run_inprocess, lambda *round_: None)
    assert len(set(zip(course.group.tolist(), own[:, 0].tolist(), strict=True))) == 2
    here = train_models("ifca", settings.learner(split), split, k=2, rounds=5)
    assert course.group.tolist() == here.group.tolist()
    np.testing.assert_array_equal(course.accuracy, here.accuracy)
    lossy = train_in_jobs(settings, split, losing("device-03", since=3), lambda *round_: None)
    assert list(lossy.lost) == ["device-03 was lost"]
    assert np.isnan(lossy.accuracy[-1]).tolist() == [i == 3 for i in range(6)]
    assert lossy.group[3] == course.group[3]


def test_ifcas_models_are_means_of_those_that_chose_them():
    server = IFCAAggregator(2, rounds=1)
    sized = ServerJob(server).advance(
        server.begin(), {name: {"columns": np.array(1), "classes": np.array(2)} for name in "abc"}
    )
    assert (sized.step, sized.task["weights"].shape) == (StepName.TRAIN, (4,))
    replies = {
        name: IFCAExecutor(2).sent(n * np.array(own), n, 1)
        for name, n, own in [("a", 30, [1.0, 2.0]), ("b", 10, [5.0, -2.0])]
    }
    for reply in replies.values():
        reply |= {"correct": np.array(1), "tested": np.array(2)}
    trained = ServerJob(server).advance(sized, replies)
    np.testing.assert_allclose(trained.task["weights"], [*sized.task["weights"][:2], 2.0, 1.0])
    assert trained.state.tests_model.tolist() == [1, 1]


def test_ifcas_masked_sums_give_the_same_models():
    own = sites(30, 40, 50)
    plain, masked = (
        run_inprocess(IFCA, {"rounds": 2}, own, ONE.model_copy(update={"k": 2, **more}))
        for more in ({}, {"secure_sums": True, "min_sites": 3, "secure_min_sites": 3, "secure_sites": tuple(own)})
    )
    np.testing.assert_allclose(masked.arrays["weights"], plain.arrays["weights"], atol=1e-9)


def test_a_site_that_sends_fewer_models_is_left_out():
    class Fewer(IFCAExecutor):
        def sent(self, weighted, rows, chosen):
            found = super().sent(weighted, rows, chosen)
            return {**found, "counts": found["counts"][:1]}

    with pytest.raises(JobFailed, match="counts"):
        run_inprocess(with_executor(IFCA, Fewer), {"rounds": 1}, sites(30, 40), ONE.model_copy(update={"k": 2}))
