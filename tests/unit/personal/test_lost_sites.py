"""Jobs of personalised models of which a site is lost: the rest goes on, and the site is named."""

import json
from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.personal.aggregator import TESTS
from flareclust.personal.jobs import train_in_jobs
from flareclust.personal.result import save
from flareclust.personal.rows import Split
from flareclust.personal.run import run_personal
from flareclust.personal.settings import PersonalSettings
from flareclust.platform import simulator
from flareclust.protocol import registry
from flareclust.protocol.task import StepName
from tests.unit.personal.job_cases import losing, three_and_three
from tests.unit.personal.planted import planted


def test_a_cluster_goes_on_with_the_rest_where_a_site_is_lost_and_names_it(tmp_path):
    settings, split = three_and_three()
    whole = train_in_jobs(settings, split, run_inprocess, lambda *round_: None)
    course = train_in_jobs(settings, split, losing("device-03", since=3), lambda *round_: None)
    (reason,) = course.lost
    cluster = int(course.group[3])
    assert reason == f"device-03 was lost (model {cluster})"
    for name, value in whole.models.items():
        assert np.array_equal(course.models[name][1 - cluster], value[1 - cluster])
        assert not np.array_equal(course.models[name][cluster], value[cluster])
    # The third training brings the model after round 2, so that of round 1 is the last that the site has tested.
    assert np.flatnonzero(np.isnan(course.accuracy).any(axis=0)).tolist() == [3]
    assert np.isnan(course.accuracy[:, 3]).tolist() == [False, True, True]
    np.testing.assert_array_equal(course.accuracy[0], whole.accuracy[0])


def test_the_result_leaves_a_lost_device_out_of_the_means_and_says_so(monkeypatch, tmp_path):
    settings, split = three_and_three()
    monkeypatch.setattr(
        simulator, "run_simulator", lambda *args, folder: losing("device-03", step=StepName.TEST)(*args)
    )
    given = {
        name: (
            np.concatenate([split.train[name].X, split.test[name].X]),
            np.concatenate([split.train[name].y, split.test[name].y]),
        )
        for name in split.names
    }
    result = save(run_personal(settings, given), tmp_path / "out")
    assert [warning for warning in result.warnings if "device-03 was lost" in warning]
    assert result.warnings[-1] == "1 of 6 devices were not tested after the last round; means are over the others"
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [name for name, share in written["accuracy_of"].items() if share is None] == ["device-03"]
    known = [share for share in written["accuracy_of"].values() if share is not None]
    assert written["accuracy"] == pytest.approx(np.mean(known))
    assert result.rounds()[-1]["least"] == min(known)


def test_a_device_that_the_clustering_lost_is_named_and_placed():
    settings, split = three_and_three()
    engine = losing("device-03", step=StepName.CLUSTER, of=(registry.get("kfed"),))
    course = train_in_jobs(settings, split, engine, lambda *round_: None)
    assert list(course.parts.left_out) == ["device-03 was lost"]
    assert not np.isnan(course.accuracy).any()
    assert course.group.tolist() == train_in_jobs(settings, split, run_inprocess, lambda *round_: None).group.tolist()


def test_a_cluster_with_fewer_sites_than_its_quorum_fails_and_names_the_lost_one():
    settings, split = three_and_three()
    for needed, message in [(3, "2 of 3 sites took part where at least 3"), (9, "at least 3 are needed")]:
        strict = settings.model_copy(update={"min_sites": needed})
        with pytest.raises(JobFailed, match=rf"{message}.*device-03 was lost"):
            train_in_jobs(strict, split, losing("device-03", since=2), lambda *round_: None)


def test_a_run_in_which_nobody_tests_the_last_models_fails():
    rows = Split(*({"a": side["device-00"]} for side in (planted()[0].train, planted()[0].test)), 2)
    settings = PersonalSettings(data="own", method="global", model="linear", rounds=1, engine="simulator")

    def untested(*args):
        outcome = run_inprocess(*args)
        return replace(outcome, arrays={**outcome.arrays, **dict.fromkeys(TESTS, np.zeros(0, dtype=np.int64))})

    with pytest.raises(JobFailed, match="no device was tested after the last round"):
        train_in_jobs(settings, rows, untested, lambda *round_: None)
