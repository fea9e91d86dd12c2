"""A POC comes up by one command, runs, and goes without a trace."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from flareclust._foundation.errors import UserError
from flareclust.experiment import poc as set_up
from flareclust.platform.poc import federation as poc
from flareclust.platform.poc import state as poc_state
from tests.integration.poc.poc_cases import command, flareclust, nvflare, until
from tests.living import naming

PARTITION, SEED = "dirichlet:0.5", 5


def shared():
    """Return what lies in NVFlare's shared folder."""
    root = Path("/tmp/nvflare")
    return {name for name in ("jobs-storage", "snapshot-storage", "datums", "poc") if (root / name).exists()}


@pytest.fixture(scope="module")
def up(place):
    """A POC with three sites in the usual place below the current folder."""
    before = shared()
    folder = place / "work" / "poc_workspace" / "poc"
    try:
        code, out, err = command(
            place, "up", "--n-sites", 3, "--data", "iris", "--partition", PARTITION, "--seed", SEED
        )
        assert code == 0, err
        yield folder, out
    finally:
        for process in naming(folder):
            process.kill()
    assert shared() == before


@pytest.mark.slow
@pytest.mark.smoke
def test_up_says_what_is_there_and_what_to_do_next(up):
    folder, out = up
    assert "3 sites are connected" in out
    assert "flareclust run feca --engine poc" in out
    assert "flareclust poc down" in out
    assert (folder.stat().st_mode & 0o077) == 0, "the kits hold private keys"
    ignored = subprocess.run(
        ["git", "-C", str(folder), "status", "--porcelain", "-uall"], check=False, capture_output=True
    )
    assert b"key" not in ignored.stdout


@pytest.mark.slow
def test_status_names_everybody_with_rows_and_logs(up, place):
    code, out, _ = command(place, "status", "--json")
    found = json.loads(out)
    assert code == 0
    assert list(found) == ["localhost", "site-1", "site-2", "site-3"]
    assert all(one["running"] and one["connected"] for one in found.values())
    split = set_up._split_rows("iris", PARTITION, 3, SEED)
    assert {name: found[name]["rows"] for name in split.sites} == {
        name: len(rows) for name, rows in split.sites.items()
    }
    assert all(Path(one["log"]).is_file() for one in found.values())
    code, out, _ = command(place, "status")
    assert code == 0
    assert "site-3" in out


@pytest.mark.slow
def test_it_can_be_found_with_its_kits(up):
    folder, _ = up
    there = poc.find(folder)
    assert there.sites == ("site-1", "site-2", "site-3")
    assert (there.data, there.partition, there.n_sites, there.seed) == ("iris", PARTITION, 3, SEED)
    assert (there.admin_kit / "startup" / "fed_admin.json").is_file()
    assert (there.kit(poc_state.ADMIN) / "startup" / "fed_admin.json").is_file()
    assert all((kit / "startup" / "fed_client.json").is_file() for kit in there.kits.values())


@pytest.mark.slow
def test_a_range_of_k_that_takes_two_jobs_names_both_and_an_export_says_which(up, place, tmp_path):
    folder, _ = up
    asked = ("kfed", "--k", "2..6", "--min-sites", 3)
    code, out, err = flareclust(
        place, "run", *asked, "--engine", "poc", "--no-track", "--json", "--out", "two", home=tmp_path
    )
    assert code == 0, err
    found = json.loads(out)
    jobs = found["job"], found["choice"]["job"]
    stored = {one.name for one in (poc.find(folder).server_kit / "jobs-storage").iterdir()}
    assert len(set(jobs) & stored) == 2
    assert all(job in (place / "work" / "two" / "report.html").read_text() for job in jobs)
    code, _, err = flareclust(place, "jobs", "export", asked[0], "job", *asked[1:], home=tmp_path)
    assert code == 2
    assert "kfed with a range of k is two jobs, the first of which chooses: export pooled with --k 2..6" in err
    for one in ("pooled", "--k", "2..6"), ("kfed", "--k", found["k"]):
        assert flareclust(place, "jobs", "export", one[0], f"{one[0]}-job", *one[1:], home=tmp_path)[0] == 0


@pytest.mark.slow
def test_the_server_took_its_settings_from_the_kit(up):
    folder, _ = up
    kit = poc.find(folder).server_kit
    assert "server heartbeat timeout set to 60" in (kit / "log.txt").read_text()
    assert (kit / "jobs-storage").is_dir()


@pytest.mark.slow
def test_a_second_one_in_the_same_folder_is_refused(up, place):
    folder, _ = up
    before = (folder / "poc.json").read_text()
    code, _, err = command(place, "up", "--data", "iris")
    assert code == 2
    assert "flareclust poc down" in err
    assert (folder / "poc.json").read_text() == before


@pytest.mark.slow
def test_a_killed_site_is_shown_and_started_again(up, place):
    folder, _ = up
    kit = folder / poc_state.KITS / "site-2"
    killed = nvflare(kit)
    killed.kill()
    until(lambda: (found := nvflare(kit)) is None or found.pid != killed.pid)
    code, out, _ = command(place, "status", "--json")
    if nvflare(kit) is None:  # its daemon looks every five seconds and may have been as quick
        assert (code, json.loads(out)["site-2"]["connected"]) == (1, False)
    until(lambda: (found := nvflare(kit)) is not None and found.pid != killed.pid)
    until(lambda: command(place, "status")[0] == 0)


@pytest.mark.slow
@pytest.mark.nightly  # test_poc_scripts.py has it with scripts in the place of NVFlare's
def test_two_in_two_folders_do_not_disturb_each_other_and_down_ends_what_hangs_or_is_half_dead(up, place):
    folder, _ = up
    other = place / "work" / "other"
    try:
        code, _, err = command(place, "up", "--n-sites", 2, "--data", "wine", "--dir", other)
        assert code == 0, err
        assert poc.find(other).port != poc.find(folder).port
        nvflare(other / poc_state.KITS / "localhost").send_signal(signal.SIGSTOP)
        for process in naming(other / poc_state.KITS / "site-1"):
            process.kill()
        (other / "poc.json").write_text('{"data":')
        with pytest.raises(UserError, match="damaged"):
            poc.find(other)
        looking = subprocess.Popen(["tail", "-f", str(other / poc_state.KITS / "site-2" / "log.txt")])
        try:
            code, _, err = command(place, "down", "--dir", other)
            assert code == 0, err
            assert [process.pid for process in naming(other)] == [looking.pid], "somebody who reads a log is left alone"
        finally:
            looking.kill()
            looking.wait()
        assert command(place, "down", "--remove", "--dir", other)[0] == 0
        assert not other.exists()
    finally:
        for process in naming(other):
            process.kill()
    assert command(place, "status")[0] == 0


@pytest.mark.slow
@pytest.mark.smoke
def test_down_leaves_no_process_frees_the_port_and_keeps_the_logs(up, place):
    folder, _ = up
    there = poc.find(folder)
    code, out, err = command(place, "down")
    assert code == 0, err
    assert "ended" in out
    assert naming(folder) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", there.port))
    assert (there.server_kit / "log.txt").is_file()
    code, out, _ = command(place, "status", "--json")
    assert code == 1
    assert not any(one["running"] or one["connected"] for one in json.loads(out).values())
    with pytest.raises(UserError, match="is down"):
        poc.find(folder)
    assert command(place, "down")[:2] == (0, "nothing was running\n")
    assert list((place / "home").iterdir()) == []
    assert list((place / "temporary").iterdir()) == []


@pytest.mark.slow
@pytest.mark.nightly  # test_poc_scripts.py has it with scripts in the place of NVFlare's
def test_an_older_one_that_is_down_is_replaced_and_down_works_after_everything_was_killed(up, place):
    folder, _ = up
    command(place, "down")
    code, _, err = command(place, "up", "--n-sites", 2, "--data", "wine", "--dir", folder)
    assert code == 0, err
    assert poc.find(folder).sites == ("site-1", "site-2")
    for _ in range(3):  # a daemon may have been about to start its process again
        for process in naming(folder):
            process.kill()
    code, _, err = command(place, "down", "--remove")
    assert code == 0, err
    assert naming(folder) == []
    assert not folder.exists()
