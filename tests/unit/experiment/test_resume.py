"""`--resume` and `resume=`: a run goes on in its folder, with the same settings and rows only."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.run import run as run_command
from flareclust.cli.sweep import Interrupted
from flareclust.experiment.results.artifacts import check_out
from flareclust.federation.checkpoint import CHECKPOINT, PART
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from tests.unit.engines.checkpoint_cases import sites, stored


def interrupted(folder, after=2, **settings):
    """Run lloyd on iris until there are so many records."""

    def stop(record):
        seen.append(record)
        if len(seen) > after:
            raise KeyboardInterrupt

    seen = []
    with pytest.raises(KeyboardInterrupt):
        flareclust.run("lloyd", "iris", 3, n_sites=3, out=folder, on_round=stop, **settings)


def test_a_run_is_resumed_in_its_folder_and_the_checkpoint_is_gone(tmp_path):
    out = tmp_path / "out"
    expected = flareclust.run("lloyd", "iris", 3, n_sites=3, out=tmp_path / "whole")
    interrupted(out)
    assert {path.name for path in out.iterdir()} == {CHECKPOINT}
    found = flareclust.run("lloyd", "iris", 3, n_sites=3, resume=out)
    for name, value in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value)
    assert found.rounds == expected.rounds
    names = {path.name for path in out.iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()}
    assert not names & {CHECKPOINT, PART}
    with pytest.raises(UserError, match="holds a finished result, so there is nothing to resume"):
        flareclust.run("lloyd", "iris", 3, n_sites=3, resume=out)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"partition": "dirichlet:0.5"}, "partition is iid there and dirichlet:0.5 here, rows is"),
        ({"seed": 1}, "rows is .* seed is 0 there and 1 here"),
        ({"rounds": 7}, "rounds is not given there and 7 here"),
        ({"secure_sums": True}, "secure_sums is False there and True here"),
    ],
)
def test_other_settings_are_refused(tmp_path, changed, words):
    interrupted(tmp_path / "out")
    with pytest.raises(UserError, match=words):
        flareclust.run("lloyd", "iris", 3, n_sites=3, resume=tmp_path / "out", **changed)


def test_other_rows_are_refused(tmp_path):
    out = tmp_path / "out"
    run = {"algorithm": "lloyd", "k": 3, "out": out}

    def stop(record):
        if record["round"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flareclust.run(data=sites(), on_round=stop, **run)
    changed = sites()
    changed["site-1"][0, 0] += 1e-9
    with pytest.raises(UserError, match="is of another job: rows is"):
        flareclust.run(data=changed, resume=out, algorithm="lloyd", k=3)


def test_changed_files_are_refused(tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    for site, rows in sites().items():
        np.save(folder / f"{site}.npy", rows)

    def stop(record):
        if record["round"]:
            raise KeyboardInterrupt

    run = {"algorithm": "lloyd", "data": str(folder), "k": 3, "partition": "none"}
    with pytest.raises(KeyboardInterrupt):
        flareclust.run(**run, out=tmp_path / "out", on_round=stop)
    np.save(folder / "site-1.npy", sites()["site-1"] + 1e-9)
    with pytest.raises(UserError, match="is of another job: rows is"):
        flareclust.run(**run, resume=tmp_path / "out")


def test_a_new_run_does_not_overwrite_a_checkpoint(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(UserError, match=r"holds the checkpoint of an interrupted run; resume it \(--resume"):
        flareclust.run("lloyd", "iris", 3, n_sites=3, out=tmp_path)
    with pytest.raises(UserError, match="holds the checkpoint"):
        flareclust.run("feca", "iris", 3, n_sites=3).save(tmp_path)
    check_out(tmp_path, resume=True)


def test_a_run_goes_on_in_its_own_folder_only(tmp_path):
    interrupted(tmp_path / "a")
    with pytest.raises(UserError, match="leave out --out"):
        flareclust.run("lloyd", "iris", 3, n_sites=3, resume=tmp_path / "a", out=tmp_path / "b")
    with pytest.raises(UserError, match=r"holds no checkpoint\.npz"):
        flareclust.run("lloyd", "iris", 3, n_sites=3, resume=tmp_path / "c")


def test_with_a_range_the_job_with_the_selected_k_is_resumed(tmp_path):
    run = {"algorithm": "lloyd", "data": "iris", "k": "2..4", "n_sites": 3}
    expected = flareclust.run(**run)

    def stop(record):
        if record["step"] == "update" and record["round"] > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flareclust.run(**run, out=tmp_path / "out", on_round=stop)
    found = flareclust.run(**run, resume=tmp_path / "out")
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    assert found.rounds == expected.rounds


def test_differentially_private_jobs_are_not_resumed(tmp_path):
    def stop(record):
        if record["round"] > 1:
            raise KeyboardInterrupt

    private = Policy(dp=DifferentialPrivacy(bounds=(-20.0, 20.0), epsilon=20.0, delta=1e-4, budget=20.0)).to_json()
    with pytest.raises(KeyboardInterrupt):
        flareclust.run("dp-lloyd", sites(), 3, policy=private, out=tmp_path / "out", on_round=stop)
    assert not (tmp_path / "out").exists()
    stored(tmp_path)
    with pytest.raises(UserError, match="dp-lloyd cannot be resumed: the sites would draw the noise"):
        flareclust.run("dp-lloyd", sites(), 3, policy=private, resume=tmp_path)


def test_what_is_not_federated_has_nothing_to_resume(tmp_path):
    stored(tmp_path)
    with pytest.raises(UserError, match="central is not federated and has no exchanges to resume"):
        flareclust.run("central", "iris", 3, resume=tmp_path)


# From the command line


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            KeyboardInterrupt(),
            Interrupted,
            "interrupted; the same command with --resume .*out in the place of --out goes on",
        ),
        (
            JobFailed("sites were lost", transient=True),
            JobFailed,
            "sites were lost\nthe same command with --resume .*out .*from the last exchange",
        ),
    ],
    ids=["Ctrl-C", "failure"],
)
def test_the_command_says_how_to_go_on(tmp_path, monkeypatch, error, kind, words):
    def stopped(*_, out, **__):
        stored(out)
        raise error

    monkeypatch.setattr("flareclust.api.run_experiment", stopped)
    with pytest.raises(kind, match=words):
        run_command(algorithm="lloyd", data="iris", k="3", engine="inprocess", out=tmp_path / "out", track=False)


def test_a_failure_that_would_come_again_is_no_reason_to_resume(tmp_path, monkeypatch):
    def failed(*_, out, **__):
        stored(out)
        raise JobFailed("too few sites")

    monkeypatch.setattr("flareclust.api.run_experiment", failed)
    with pytest.raises(JobFailed, match=r"^too few sites$"):
        run_command(algorithm="lloyd", data="iris", k="3", engine="inprocess", out=tmp_path / "out", track=False)
    with pytest.raises(JobFailed, match="too few sites\nif its reason is gone, the same command with --resume"):
        run_command(algorithm="lloyd", data="iris", k="3", engine="simulator", out=tmp_path / "out", track=False)


def test_the_command_resumes_a_folder(tmp_path):
    interrupted(tmp_path)
    run_command(algorithm="lloyd", data="iris", k="3", n_sites=3, engine="inprocess", resume=str(tmp_path), track=False)
    assert len(flareclust.load_result(tmp_path).centroids) == 3
    assert not (tmp_path / CHECKPOINT).exists()
