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

IRIS = {"algorithm": "lloyd", "data": "iris", "k": 3, "n_sites": 3}


def interrupted(folder, after=2, step=None, **settings):
    """Run until there are so many records, or so many of a step."""

    def stop(record):
        if step in (None, record["step"]):
            seen.append(record)
        if len(seen) > after:
            raise KeyboardInterrupt

    seen = []
    with pytest.raises(KeyboardInterrupt):
        flareclust.run(out=folder, on_round=stop, **IRIS | settings)


def test_a_run_is_resumed_in_its_folder_and_the_checkpoint_is_gone(tmp_path):
    out = tmp_path / "out"
    expected = flareclust.run(**IRIS, out=tmp_path / "whole")
    interrupted(out)
    assert {path.name for path in out.iterdir()} == {CHECKPOINT}
    found = flareclust.run(**IRIS, resume=out)
    for name, value in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value)
    assert found.rounds == expected.rounds
    names = {path.name for path in out.iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()}
    assert not names & {CHECKPOINT, PART}
    with pytest.raises(UserError, match="holds a finished result, so there is nothing to resume"):
        flareclust.run(**IRIS, resume=out)


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
        flareclust.run(**IRIS, resume=tmp_path / "out", **changed)


@pytest.mark.parametrize("from_files", [False, True])
def test_other_rows_are_refused(tmp_path, from_files):
    def data(change=0.0):
        rows = {site: X + change * (site == "site-1") for site, X in sites().items()}
        if not from_files:
            return rows
        (tmp_path / "sites").mkdir(exist_ok=True)
        for site, X in rows.items():
            np.save(tmp_path / "sites" / f"{site}.npy", X)
        return str(tmp_path / "sites")

    given = {"n_sites": None} | ({"partition": "none"} if from_files else {})
    interrupted(tmp_path / "out", data=data(), **given)
    with pytest.raises(UserError, match="is of another job: rows is"):
        flareclust.run(**IRIS | given | {"data": data(1e-9)}, resume=tmp_path / "out")


def test_a_new_run_does_not_overwrite_a_checkpoint(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(UserError, match=r"holds the checkpoint of an interrupted run; resume it \(--resume"):
        flareclust.run(**IRIS, out=tmp_path)
    with pytest.raises(UserError, match="holds the checkpoint"):
        flareclust.run("feca", "iris", 3, n_sites=3).save(tmp_path)
    check_out(tmp_path, resume=True)


def test_a_run_goes_on_in_its_own_folder_only(tmp_path):
    interrupted(tmp_path / "a")
    with pytest.raises(UserError, match="leave out --out"):
        flareclust.run(**IRIS, resume=tmp_path / "a", out=tmp_path / "b")
    with pytest.raises(UserError, match=r"holds no checkpoint\.npz"):
        flareclust.run(**IRIS, resume=tmp_path / "c")


def test_with_a_range_the_job_with_the_selected_k_is_resumed(tmp_path):
    ranged = IRIS | {"k": "2..4"}
    expected = flareclust.run(**ranged)
    interrupted(tmp_path / "out", step="update", **ranged)
    found = flareclust.run(**ranged, resume=tmp_path / "out")
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    assert found.rounds == expected.rounds


def test_differentially_private_jobs_are_not_resumed(tmp_path):
    private = Policy(dp=DifferentialPrivacy(bounds=(-20.0, 20.0), epsilon=20.0, delta=1e-4, budget=20.0)).to_json()
    interrupted(tmp_path / "out", algorithm="dp-lloyd", data=sites(), n_sites=None, policy=private)
    assert not (tmp_path / "out").exists()
    stored(tmp_path)
    with pytest.raises(UserError, match="dp-lloyd cannot be resumed: the sites would draw the noise"):
        flareclust.run("dp-lloyd", sites(), 3, policy=private, resume=tmp_path)


def test_what_is_not_federated_has_nothing_to_resume(tmp_path):
    stored(tmp_path)
    with pytest.raises(UserError, match="central is not federated and has no exchanges to resume"):
        flareclust.run("central", "iris", 3, resume=tmp_path)


# From the command line


OVER = "same command with --resume .*out"


@pytest.mark.parametrize(
    ("engine", "error", "kind", "words"),
    [
        ("inprocess", KeyboardInterrupt(), Interrupted, f"interrupted; the {OVER} in the place of --out goes on"),
        ("inprocess", JobFailed("lost", transient=True), JobFailed, f"lost\nthe {OVER} .*from the last exchange"),
        ("inprocess", JobFailed("too few sites"), JobFailed, "^too few sites$"),
        ("simulator", JobFailed("too few sites"), JobFailed, f"too few sites\nif its reason is gone, the {OVER}"),
    ],
    ids=["Ctrl-C", "a failure", "one that would come again", "one whose reason may go"],
)
def test_the_command_says_how_to_go_on(tmp_path, monkeypatch, engine, error, kind, words):
    def stopped(*_, out, **__):
        stored(out)
        raise error

    monkeypatch.setattr("flareclust.api.run_experiment", stopped)
    with pytest.raises(kind, match=words):
        run_command(algorithm="lloyd", data="iris", k="3", engine=engine, out=tmp_path / "out", track=False)


def test_the_command_resumes_a_folder(tmp_path):
    interrupted(tmp_path)
    run_command(algorithm="lloyd", data="iris", k="3", n_sites=3, engine="inprocess", resume=str(tmp_path), track=False)
    assert len(flareclust.load_result(tmp_path).centroids) == 3
    assert not (tmp_path / CHECKPOINT).exists()
