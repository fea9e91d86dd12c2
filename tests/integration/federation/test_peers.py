"""Anyone with a kit asks NVFlare's process at a site for its files, and to remove its folders: nobody gets anything."""

import json

import pytest
import watching
from conftest import SITES
from harness import LEAD, MEMBER, SERVER, submitted
from jobs import Job
from kit_cells import as_site, as_user

from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job, export_job
from flareclust.protocol.registry import get
from flareclust.sites.running import protection

pytestmark = pytest.mark.slow

OPTIONS = JobOptions(k=5, seed=3, min_sites=3)
SECRET = "4.999999"


@pytest.fixture
def secret(federation):
    """A file beside north's rows, which nobody else may see, and what its kit consists of."""
    file = federation.kit("north") / "data" / "secret.csv"
    file.write_text(SECRET)
    before = kept(federation)
    yield file
    file.unlink()
    assert kept(federation) == before


def kept(federation):
    local = federation.kit("north") / "local"
    return {path.name: path.read_bytes() for path in local.iterdir() if path.is_file()}


def takes_nothing(cell, file):
    requests = (("sys.shell", f"cat {file}", ""), ("sys.shell", "ls startup", ""), ("train.delete_run", "", "local"))
    for topic, body, job in requests:
        assert watching.ask_site(cell, "north", topic, body, job) is None, (topic, body)
    watching.in_the_name_of_the_server(cell)
    for topic, body, job in requests:
        assert watching.ask_site(cell, "north", topic, body, job) is None, (topic, body, "as the server")


@pytest.mark.parametrize("user", [LEAD, MEMBER])
def test_a_user_reads_and_removes_no_file_of_a_site(federation, secret, user):
    with as_user(federation, user) as cell:
        takes_nothing(cell, secret)


@pytest.mark.parametrize("host", [SERVER, *SITES])
def test_the_processes_that_run_say_that_their_messages_hold_no_files(federation, host):
    words, errors = protection(federation.kit(host))
    assert words.startswith("in force in process")
    assert errors == []


def test_a_site_reads_and_removes_no_file_of_another(federation, secret):
    with as_site(federation, "south") as cell:
        takes_nothing(cell, secret)


def test_a_server_reads_and_removes_no_file_of_a_site(federation, secret, tmp_path, monkeypatch):
    monkeypatch.setattr("flareclust.platform.job.ClusteringController", watching.ReadingController)
    folder = federation.run(export_job(build_job(get("lloyd"), {}, OPTIONS), tmp_path / "reading"))
    reported = json.loads((folder / watching.ASKED).read_text())
    for site in SITES:
        assert "does not answer sys.shell" in reported[f"{site} shell"]
        assert "keeps the folders of its jobs" in reported[f"{site} remove"]
        assert "does not" not in reported[f"{site} status"]


def test_a_job_that_is_deleted_at_the_server_keeps_its_labels_at_the_sites(federation, tmp_path):
    job = export_job(build_job(get("lloyd"), {}, OPTIONS), tmp_path / "job")
    with federation.session(LEAD) as session:
        number, _ = submitted(session, job, tmp_path / "fetched")
        session.delete_job(number)
        assert number not in [about["job_id"] for about in session.list_jobs()]
    for site in SITES:
        assert (federation.kit(site) / number / "labels.csv").exists()


def test_the_next_job_runs_at_all_sites(federation):
    """After all that was asked of north above: a folder that was removed would show in the next job only."""
    assert set(Job(federation, get("lloyd"), OPTIONS).outcome().sites) == set(SITES)
