"""A POC whose kits have scripts of a line in the place of NVFlare's: set up, looked at, and ended."""

import json
import signal
import subprocess
from contextlib import contextmanager

import psutil
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment import poc as set_up
from flareclust.platform import job_monitor
from flareclust.platform.poc import federation as poc
from flareclust.platform.poc import kits as poc_kits
from flareclust.platform.poc import processes as poc_processes
from flareclust.platform.poc import state as poc_state
from tests.command_line import call
from tests.integration.poc.poc_cases import until
from tests.living import naming

SITES = ("site-1", "site-2")
#: A process that has in its command line what NVFlare's has, below the daemon.
WAITS = "bash -c 'sleep 600; true' nvflare.private.fed.app.{side}_train {kit}"


@pytest.fixture
def scripts(monkeypatch):
    """Give each kit its script; the default waits."""
    own = {}

    def provision(folder, sites, port):
        for name in (poc_state.SERVER, *sites):
            kit = folder / poc_state.KITS / name
            (kit / "startup").mkdir(parents=True)
            (kit / "local").mkdir()
            waits = WAITS.format(side="server.server" if name == poc_state.SERVER else "client.client", kit=kit)
            (kit / "startup" / "sub_start.sh").write_text(own.get(name, waits) + "\n")
        return folder / poc_state.KITS

    monkeypatch.setattr(poc_kits, "provision", provision)
    return own


@pytest.fixture
def connected(monkeypatch):
    """Stand in for what the server says; return the sites that it reaches."""
    names = []

    @contextmanager
    def session(kit, timeout):
        yield "session"

    for module in (set_up, poc):
        monkeypatch.setattr(module, "open_session", session)
        monkeypatch.setattr(module, "connected_sites", lambda session: list(names))
    monkeypatch.setattr(set_up, "answers", lambda host, port: True)
    monkeypatch.setattr(job_monitor, "lost_jobs", lambda session: ["a-lost-job"])
    return names


@pytest.fixture
def folder(tmp_path):
    yield tmp_path.resolve() / "poc"
    for process in naming(tmp_path.resolve()):
        process.kill()


def test_a_site_whose_script_ends_is_named_with_its_last_words_and_all_is_stopped(scripts, folder):
    scripts["site-2"] = "echo 'no module named nvflare'; echo 'new pid 7'; exit 1"
    with pytest.raises(JobFailed, match=r"^site-2 did not start; [\s\S]*site-2: no module named nvflare$"):
        set_up.up(folder, "iris", n_sites=2)
    assert naming(folder) == []
    with pytest.raises(UserError, match="is down; start one"):
        poc.find(folder)
    assert [(one.name, one.running, one.connected) for one in poc.status(folder)] == [
        (name, False, False) for name in (poc_state.SERVER, *SITES)
    ]


def test_a_server_or_a_site_that_is_silent_is_named_when_the_time_is_over(scripts, folder, monkeypatch, connected):
    connected.append("site-2")
    with pytest.raises(JobFailed, match=r"^site-1 not connected after 0\.3 s; [\s\S]*site-1: it wrote nothing$"):
        set_up.up(folder, "iris", n_sites=2, seconds=0.3)
    monkeypatch.setattr(set_up, "answers", lambda host, port: False)
    with pytest.raises(JobFailed, match=rf"^{poc_state.SERVER}, site-1, site-2 not connected"):
        set_up.up(folder, "iris", n_sites=2, seconds=0.3)
    assert naming(folder) == []


def test_a_poc_that_is_up_is_found_and_shown_and_ends(scripts, folder, connected, capsys):
    connected += SITES
    there = set_up.up(folder, "iris", n_sites=2)
    assert (poc.find(folder), there.sites) == (there, SITES)
    with pytest.raises(UserError, match="a POC is up in"):
        set_up.up(folder, "iris")
    until(lambda: all(one.running for one in poc.status(folder)))
    assert call("poc", "status", "--dir", folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: (one["running"], one["connected"], one["rows"]) for name, one in found.items()} == {
        poc_state.SERVER: (True, True, None),
        "site-1": (True, True, 75),
        "site-2": (True, True, 75),
    }
    connected.remove("site-1")
    assert call("poc", "status", "--dir", folder) == 1
    shown = capsys.readouterr().out
    assert "site-2 yes yes 75" in " ".join(shown.split())
    assert "site-1 yes no 75" in " ".join(shown.split())
    assert "a-lost-job" in shown
    assert call("poc", "down", "--dir", folder, "--remove") == 0
    assert "processes ended" in capsys.readouterr().out
    assert naming(folder) == []
    assert not folder.exists()


def test_a_process_that_got_the_number_of_an_older_one_is_left_alone(tmp_path):
    other = subprocess.Popen(["sleep", "60"])
    try:
        created = psutil.Process(other.pid).create_time()
        assert poc_processes.end(tmp_path, {"site-1": {"pid": other.pid, "created": created - 1000}}) == 0
        assert other.poll() is None
        assert poc_processes.end(tmp_path, {"site-1": {"pid": other.pid, "created": created}}) == 1
        assert not psutil.pid_exists(other.pid)
    finally:
        other.kill()
        other.wait()


def test_two_do_not_disturb_each_other_and_down_ends_what_hangs_or_is_half_dead(scripts, folder, connected, tmp_path):
    connected += SITES
    other = tmp_path.resolve() / "other"
    ports = {set_up.up(place, "iris", n_sites=2).port for place in (folder, other)}
    assert len(ports) == 2
    until(lambda: all(one.running for one in poc.status(other)))
    nvflare = {
        name: [one for one in naming(other / poc_state.KITS / name) if "sleep 600" in " ".join(one.cmdline())]
        for name in SITES
    }
    nvflare["site-1"][0].send_signal(signal.SIGSTOP)
    nvflare["site-2"][0].kill()
    (other / "poc.json").write_text('{"data":')
    with pytest.raises(UserError, match="is missing or damaged; end the POC"):
        poc.find(other)
    looking = subprocess.Popen(["tail", "-f", str(other / poc_state.KITS / "site-2" / "console.txt")])
    try:
        assert poc.down(other) > 0
        assert [one.pid for one in naming(other)] == [looking.pid], "somebody who reads a log is left alone"
    finally:
        looking.kill()
        looking.wait()
    assert poc.down(other, remove=True) == 0
    assert not other.exists()
    assert all(one.well for one in poc.status(folder))


def test_an_older_one_that_is_down_is_replaced_and_down_works_after_everything_was_killed(scripts, folder, connected):
    connected += SITES
    set_up.up(folder, "iris", n_sites=2)
    poc.down(folder)
    assert set_up.up(folder, "wine", n_sites=2).data == poc.find(folder).data == "wine"
    for process in naming(folder):
        process.kill()
    poc.down(folder, remove=True)
    assert naming(folder) == []
    assert not folder.exists()
