"""Where a sweep's trials run: which runner is chosen, what is sent to a worker, what comes back."""

import json

import pytest

from flareclust._foundation.errors import UserError
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from tests.unit.experiment.sweep_cases import sweep, trial


def through_json(message):
    """Measure as a worker does that gets nothing but JSON."""
    return json.loads(json.dumps(study_trials.measure_message(json.loads(json.dumps(message)))))


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        ("threads", sweep_settings.SweepRunner()),
        ("processes", sweep_settings.SweepRunner("processes")),
        ("dask", sweep_settings.SweepRunner("dask")),
        ("dask:tcp://10.0.0.5:8786", sweep_settings.SweepRunner("dask", "tcp://10.0.0.5:8786")),
        ("ray:ray://head:10001", sweep_settings.SweepRunner("ray", "ray://head:10001")),
    ],
)
def test_a_runner_is_a_name_and_maybe_an_address(text, runner):
    assert sweep_settings.parse_runner(text) == runner
    assert sweep(runner=text).runner == text
    assert runner.local == (text == "threads")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dusk", "runner must be one of"),
        ("threads:4", "the runner 'threads' takes no address"),
        ("ray:", "the address of the ray cluster is missing"),
        (3, "runner must be a text, got 3"),
    ],
)
def test_other_runners_are_refused_before_anything_runs(text, told):
    with pytest.raises(UserError, match=told):
        sweep(runner=text)


@pytest.mark.parametrize("name", [name for name, extra in sweep_settings._RUNNERS.items() if extra])
def test_a_missing_package_is_named_in_one_line(monkeypatch, name, tmp_path):
    from flareclust.studies.sweeps import sweep as run

    monkeypatch.setattr("flareclust._foundation.extras.find_spec", lambda package: None)
    study = {"name": "a", "data": "iris", "algorithms": ["kfed"], "seeds": 1}
    with pytest.raises(UserError) as told:
        run(study, runner=name, out=tmp_path / "out")
    assert f"flareclust[{sweep_settings._RUNNERS[name]}]" in str(told.value)
    assert f"the runner '{name}' needs prefect" in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()


def test_a_worker_measures_what_a_thread_does_bit_for_bit():
    for one in sweep_settings.trials(
        sweep(algorithms=["kfed", {"name": "lloyd", "start": "spectral"}], partitions=["iid", "dirichlet:0.5"], seeds=1)
    ):
        here, there = study_trials.attempt_any(one), study_trials.attempt_elsewhere(one, through_json)
        assert there.error is None
        assert there.trial is one
        assert there.measured.final == here.measured.final
        assert there.measured.rounds == here.measured.rounds
        assert there.measured.cost.keys() == here.measured.cost.keys()


def test_files_are_sent_as_absolute_paths_and_must_be_the_same_at_the_worker(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "x,y\n" + "\n".join(f"{i % 7},{i % 5}" for i in range(60)) + "\n"
    (tmp_path / "rows.csv").write_text(rows)
    (one,) = sweep_settings.trials(sweep(data="rows.csv", k=2, seeds=1))
    message = study_trials._trial_message(one)
    assert message["experiment"]["data"] == str(tmp_path / "rows.csv")
    monkeypatch.chdir("/")
    assert "error" not in through_json(message)
    (tmp_path / "rows.csv").write_text(rows.replace("6,", "9,"))
    assert "of this worker differ from those of the sweep" in through_json(message)["error"]


def test_a_failure_at_the_worker_and_a_lost_worker_cost_their_trial():
    (one,) = sweep_settings.trials(sweep(seeds=1))
    assert study_trials.attempt_elsewhere(one, lambda message: {"error": "no quorum"}).error == "no quorum"

    def lost(message):
        raise ConnectionError("the worker is gone")

    assert (
        study_trials.attempt_elsewhere(one, lost).error
        == "its worker did not finish it: ConnectionError: the worker is gone"
    )


def test_only_trials_of_a_sweep_can_be_sent():
    assert "only the trials of a sweep can run" in study_trials.attempt_elsewhere(trial(), through_json).error
