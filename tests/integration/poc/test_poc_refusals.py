"""What a POC refuses before anything starts."""

import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment import poc as set_up
from flareclust.platform.poc import federation as poc
from flareclust.platform.poc import kits as poc_kits
from flareclust.platform.poc import state as poc_state
from flareclust.sites.permissions import KitFiles
from tests.command_line import call
from tests.patience import PATIENCE


@pytest.fixture
def nothing_starts(monkeypatch):
    """Make sure of it even where what is tested is broken."""
    monkeypatch.setattr(poc_kits, "provision", lambda *words: pytest.fail("kits are made"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--data", "irisses"), "irisses"),
        (("--data", "iris", "--n-sites", "0"), "at least 2 sites"),
        (("--data", "iris", "--n-sites", "1"), "at least 2 sites, as a job needs them, got 1"),
        (("--data", "iris", "--seed", "-1"), "seed"),
        (("--data", "iris", "--partition", "dirichlet"), "dirichlet"),
        (("--data", "iris", "--partition", "none"), "no folder"),
        (("--data", "iris", "--port", "80"), "between 1024 and 65535"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(
    tmp_path, monkeypatch, capsys, nothing_starts, words, reason
):
    monkeypatch.chdir(tmp_path)
    assert call("poc", "up", *words) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_one_site_is_refused(tmp_path, capsys, nothing_starts):
    (tmp_path / "files").mkdir()
    np.save(tmp_path / "files" / "north.npy", np.zeros((5, 2)))
    folder = tmp_path / "poc"
    assert call("poc", "up", "--data", tmp_path / "files", "--partition", "none", "--dir", folder) == 2
    assert "the rows of one site only; a job needs at least 2 sites" in capsys.readouterr().err
    assert not folder.exists()


def test_of_two_that_come_up_at_once_in_one_folder_one_is_refused_and_the_other_is_left_alone(tmp_path, monkeypatch):
    """Both find the folder free and deal their rows; then one gets as far as it may before the other goes on."""
    both_dealt, refused = threading.Barrier(2), threading.Event()
    folder = tmp_path.resolve() / "poc"
    began = []

    def deal(*words, deal=set_up._split_rows):
        prepared = deal(*words)
        both_dealt.wait(30)
        return prepared

    def provision(where, sites, port):
        began.append((where / "poc.json").read_bytes())
        assert refused.wait(30), "nobody was refused"
        assert (where / "poc.json").read_bytes() == began[0]
        raise JobFailed("far enough")

    def come_up():
        try:
            set_up.up(folder, "iris", n_sites=2)
        except UserError as error:
            refused.set()
            return str(error)
        except JobFailed as error:
            return str(error)

    monkeypatch.setattr(set_up, "_split_rows", deal)
    monkeypatch.setattr(poc_kits, "provision", provision)
    with ThreadPoolExecutor(2) as pool:
        reported = sorted(future.result(PATIENCE) for future in [pool.submit(come_up) for _ in range(2)])
    assert len(began) == 1
    assert reported[0].startswith(("a POC is up in", "another process is just using"))
    assert reported[1] == "far enough"


def test_a_lock_that_a_killed_process_left_holds_nobody_up_and_one_that_is_held_does(tmp_path):
    folder = tmp_path / "poc"
    with (
        poc_state.locked(folder),
        pytest.raises(UserError, match="another process is just using"),
        poc_state.locked(folder),
    ):
        pytest.fail("two have the lock")
    killed = f"import os, pathlib; from flareclust.platform.poc.state import locked\nwith locked(pathlib.Path({str(folder)!r})): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", killed], check=False, timeout=PATIENCE).returncode == -signal.SIGKILL
    with poc_state.locked(folder):
        poc_state.clear(folder)
        assert folder.stat().st_mode & 0o077 == 0
    poc_state.remove(folder)
    assert not folder.exists()


def test_no_kit_of_a_poc_lets_jobs_bring_code(tmp_path):
    kits = poc_kits.provision(tmp_path, ["site-1", "site-2"], 20000)
    for name in ("localhost", "site-1", "site-2"):
        assert KitFiles(kits / name / "local").facts()["code in jobs"] == "from nobody"


def test_a_taken_port_is_refused(tmp_path, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert call("poc", "up", "--data", "iris", "--port", other.getsockname()[1], "--dir", tmp_path / "poc") == 2
    assert "is taken" in capsys.readouterr().err


def test_a_folder_with_something_else_is_not_touched(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("")
    assert call("poc", "up", "--data", "iris", "--dir", tmp_path) == 2
    assert "other things than a POC" in capsys.readouterr().err
    assert call("poc", "down", "--remove", "--dir", tmp_path) == 2
    assert (tmp_path / "thesis.txt").exists()


def test_a_path_with_a_space_is_refused_as_nvflare_would_not_start_jobs_there(tmp_path, capsys):
    assert call("poc", "up", "--data", "iris", "--dir", tmp_path / "my poc") == 2
    assert "space" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["status", "down"])
def test_where_no_poc_is_the_commands_say_so(tmp_path, monkeypatch, capsys, word):
    monkeypatch.chdir(tmp_path)
    assert call("poc", word) == 2
    assert f"no POC in {tmp_path / 'poc_workspace' / 'poc'}" in capsys.readouterr().err
    with pytest.raises(UserError, match="flareclust poc up"):
        poc.find()
