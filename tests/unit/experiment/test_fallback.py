"""Folders that cannot be written when a job is over: its result goes elsewhere and is named, and nothing is lost silently."""

import json
import shutil

import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.flows.study import StudyRunner
from tests.unit.experiment.sweep_cases import trial


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The folder of what programs keep."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def blocked(file):
    """Return a callback that puts a file where a folder will be needed, as soon as a round is over."""
    return lambda record: file.touch()


@pytest.mark.parametrize("track", [False, True])
def test_a_result_goes_to_the_state_folder_where_out_cannot_be_written_any_more(state, tmp_path, track):
    place = tmp_path / "place"
    settings = {"data": "iris", "n_sites": 3, "track": track}
    result = flareclust.run("pooled", out=place / "out", on_round=blocked(place), **settings)
    (kept,) = (state / "flareclust" / "results").iterdir()
    (warning,) = result.warnings
    assert warning == f"the result is in {kept}: {place} is a file; --out must name a folder"
    assert result.centroids_file == str(kept / "result.npz")
    loaded = flareclust.load_result(kept)
    assert loaded.warnings == [warning]
    assert loaded.metrics == result.metrics
    assert (result.run_id is not None) == track
    assert kept.stat().st_mode & 0o777 == 0o700


def test_a_result_that_can_be_kept_nowhere_is_a_failure_that_says_so(state, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "state"))
    place = tmp_path / "place"

    def block(record):
        place.touch()
        shutil.rmtree(state, ignore_errors=True)  # where the run has its lock
        state.touch()

    with pytest.raises(
        JobFailed, match=r"the result could not be kept: .*place is a file; .*state is a file; .*state is"
    ):
        flareclust.run("kfed", data="iris", n_sites=3, out=place / "out", on_round=block)


def test_the_job_of_a_result_that_can_be_kept_nowhere_is_named(state, tmp_path, monkeypatch):
    from dataclasses import replace

    from flareclust.experiment.results.artifacts import keep

    result = replace(flareclust.run("kfed", data="iris", n_sites=3), job="1234")
    state.touch()
    monkeypatch.setattr("tempfile.tempdir", str(state))
    for engine, kit, command in (
        ("production", "kits/lead@hub.org", "flareclust fetch 1234 --kit kits/lead@hub.org"),
        ("poc", "my poc", "flareclust fetch 1234 --kit 'my poc/federation/prod_00/lead@poc.org'"),
    ):
        asked = {**result.experiment, "engine": engine, "kit": kit}
        with pytest.raises(JobFailed) as failure:
            keep(replace(result, experiment=asked), state / "out")
        assert str(failure.value).endswith(f"; the server keeps the result of the job 1234: {command}")


def test_a_result_in_another_folder_says_how_to_get_it_from_the_server_again(state, tmp_path):
    from dataclasses import replace

    from flareclust.experiment.results.artifacts import keep

    result = flareclust.run("kfed", data="iris", n_sites=3)
    (tmp_path / "place").touch()
    asked = {**result.experiment, "engine": "production", "kit": "lead"}
    kept = keep(replace(result, job="1234", experiment=asked), tmp_path / "place" / "out")
    (kept_in,) = (state / "flareclust" / "results").iterdir()
    assert kept.warnings[-1].startswith(f"the result is in {kept_in}: ")
    assert kept.warnings[-1].endswith("; the server keeps the result of the job 1234: flareclust fetch 1234 --kit lead")


def test_a_folder_that_is_full_is_refused_before_the_work(state, tmp_path, monkeypatch):
    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flareclust._foundation.own_files._check_writable", full)
    monkeypatch.setattr("flareclust.flows.run.submit", None)
    with pytest.raises(UserError, match=r"cannot be written to \(No space left on device\); choose another folder"):
        flareclust.run("kfed", data="iris", n_sites=3, out=tmp_path / "out")


def test_trials_go_to_the_state_folder_where_their_file_cannot_be_written_any_more(state, tmp_path):
    file = tmp_path / "study" / "trials.jsonl"

    def blocks() -> study_trials.TrialResult:
        file.unlink()
        file.mkdir()
        return study_trials.TrialResult({"l2": 2.0})

    todo = [trial(seed=0), trial(seed=1, measure=blocks), trial(seed=2)]
    run = StudyRunner("s", file=file, track=False, workers=1)
    assert [one.error for one in run(todo)] == [None] * 3
    kept = run.kept
    (folder,) = (state / "flareclust" / "results").iterdir()
    assert kept.file == folder / "trials.jsonl"
    assert kept.warning.startswith(f"the trials are in {kept.file}: {file} cannot be written: ")
    assert [json.loads(line)["seed"] for line in kept.file.read_text().splitlines()] == [0, 1, 2]
    assert [one.resumed for one in StudyRunner("s", file=kept.file, track=False)(todo)] == [True] * 3
