"""What goes when it is old, and what never does."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from flareclust._foundation.errors import UserError
from flareclust.platform import retention
from flareclust.privacy.policy import Policy
from flareclust.sites.policy_file import write_policy
from tests.command_line import call
from tests.fake_server import FakeServer
from tests.unit.sites.account_cases import kit_of, spend

DAY = 24 * 3600


def job(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.fixture
def kit(tmp_path, monkeypatch) -> Path:
    """A site's kit without a policy."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "rows.npy").touch()
    local = kit_of(tmp_path, "north", tmp_path / "rows.npy")
    write_policy(local, Policy())
    return local.parent


def ran(kit: Path, number: int, days: float, *names: str) -> Path:
    """Make the folder of a job that ended so many days ago."""
    folder = kit / job(number)
    folder.mkdir()
    for name in ("log.txt", *names):
        (folder / name).touch()
    for path in (*folder.iterdir(), folder):
        os.utime(path, (time.time() - days * DAY,) * 2)
    return folder


def test_old_folders_of_jobs_go_and_labels_and_all_else_stay(kit, capsys):
    old, new, labelled = ran(kit, 1, 400), ran(kit, 2, 300), ran(kit, 3, 400, "labels.csv")
    touched = ran(kit, 4, 400)
    (touched / "log.txt").write_text("later")
    other = kit / "own-notes"
    other.mkdir()
    os.utime(other, (0, 0))
    (kit / job(5)).symlink_to(other)
    assert call("prune", kit, "--dry-run") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"would remove {old.name}")
    assert shown[1].startswith(f"kept {labelled.name}")
    assert "--labels" in shown[1]
    assert len(shown) == 2
    assert old.exists()
    assert call("prune", kit) == 0
    assert [path.exists() for path in (old, new, labelled, touched, other)] == [False, True, True, True, True]
    assert call("prune", kit, "--labels", "--older-than", "200") == 0
    assert [path.exists() for path in (new, labelled, kit / "startup", kit / "local")] == [False, False, True, True]


def test_folders_of_jobs_that_the_ledger_has_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "rows.npy").touch()
    kit = kit_of(tmp_path, "north", tmp_path / "rows.npy").parent
    spend(kit / "local", job(1))
    paid, free = ran(kit, 1, 400), ran(kit, 2, 400)
    assert call("prune", kit) == 0
    assert (paid.exists(), free.exists()) == (True, False)


def test_the_folder_of_a_job_that_runs_and_writes_nothing_stays(kit, capsys, monkeypatch):
    waiting, ended = ran(kit, 1, 3), ran(kit, 2, 3)
    process = SimpleNamespace(info={"cmdline": ["python", "-m", "worker_process", "-n", waiting.name]})
    monkeypatch.setattr("flareclust.sites.running.psutil.process_iter", lambda _: [process])
    assert call("prune", kit, "--older-than", "1") == 0
    assert "a process of the job runs" in capsys.readouterr().out
    assert (waiting.exists(), ended.exists()) == (True, False)


def test_less_than_a_day_is_refused_and_no_kit_too(kit, tmp_path):
    assert call("prune", kit, "--older-than", "0.5") == 2
    assert call("prune", kit, "--older-than", "nan") == 2
    assert call("prune", tmp_path) == 2


# At the server
class JobStore(FakeServer):
    """Remembers which jobs were deleted."""

    deleted: tuple[str, ...] = ()
    permits = True

    def delete_job(self, job: str) -> None:
        if not self.permits:
            raise AuthorizationError("not yours")
        self.deleted += (job,)


@pytest.fixture
def server(monkeypatch) -> JobStore:
    """A server with jobs of two users."""
    fake = JobStore(["RUNNING"])
    monkeypatch.setattr(retention, "open_session", fake.session)
    listed = [
        (1, "lead@hub.org", "FINISHED:COMPLETED", 400),
        (2, "lead@hub.org", "FINISHED:COMPLETED", 401),
        (3, "lead@hub.org", "FINISHED:ABORTED", 402),
        (4, "lead@hub.org", "RUNNING", 403),
        (5, "lead@hub.org", "FINISHED:COMPLETED", 300),
        (6, "other@hub.org", "FINISHED:COMPLETED", 404),
        (
            7,
            "lead@hub.org",
            "FINISHED:EXECUTION_EXCEPTION",
            399,
        ),  # as one that lost a site after its result was complete
    ]
    keys = ("job_id", "submitter_name", "status", "submit_time")
    fake.listed = [
        dict(zip(keys, (job(n), who, status, time.time() - days * DAY), strict=True)) for n, who, status, days in listed
    ]
    return fake


@pytest.fixture
def lead(tmp_path) -> Path:
    """A lead's kit, and a result that it has fetched."""
    (tmp_path / "lead" / "startup").mkdir(parents=True)
    about = {"username": "lead@hub.org", "host": "hub", "port": 8002, "project_name": "clinics"}
    (tmp_path / "lead" / "startup" / "fed_admin.json").write_text(json.dumps({"admin": about}))
    for name, of in (("one", job(1)), ("two", None)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "result.json").write_text(json.dumps({"job": of}))
    (tmp_path / "runs" / "result.json").write_text("no result of ours")
    return tmp_path / "lead"


def test_own_old_jobs_that_were_fetched_or_have_no_result_are_deleted(server, lead, tmp_path, capsys):
    runs = ("--results", tmp_path / "runs")
    assert call("prune", lead, *runs, "--dry-run") == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in shown] == [
        f"would remove {job(3)}",
        f"kept {job(2)}",
        f"would remove {job(1)}",
        f"kept {job(7)}",
    ]
    assert server.deleted == ()
    assert call("prune", lead, *runs) == 0
    assert set(server.deleted) == {job(1), job(3)}


def test_without_results_nothing_completed_goes_unless_asked(server, lead, tmp_path):
    assert call("prune", lead, "--results", tmp_path / "none") == 0
    assert server.deleted == (job(3),)
    assert call("prune", lead, "--results", tmp_path / "none", "--unfetched") == 0
    assert {*server.deleted} == {job(1), job(2), job(3), job(7)}


def test_a_server_that_permits_no_deletion_is_one_sentence(server, lead, tmp_path):
    server.permits = False
    with pytest.raises(UserError, match="does not permit this kit to ask for the deletion of a job"):
        retention.prune(lead, 365, results=tmp_path / "runs")


def test_without_the_ledger_no_folder_goes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "rows.npy").touch()
    kit = kit_of(tmp_path, "north", tmp_path / "rows.npy").parent
    spend(kit / "local", job(1))
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    old = ran(kit, 2, 400)
    assert call("prune", kit) == 2
    assert "has no privacy ledger" in capsys.readouterr().err
    assert old.exists()
