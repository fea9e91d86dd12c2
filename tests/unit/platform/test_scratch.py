"""The temporary folders of simulated sites: gone with their run, or at the latest when the next one begins."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flareclust.platform import scratch
from flareclust.platform.process_tree import working_in
from flareclust.platform.scratch import scratch_folder
from tests.living import short_folder

#: Makes a folder with rows, and a process that works there in a session of its own.
OWNER = """
import subprocess, sys, time
from pathlib import Path
from flareclust.platform.scratch import scratch_folder

with scratch_folder() as folder:
    (Path(folder) / "rows.npy").write_bytes(b"rows")
    code = "import time; time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", code, "nvflare.private.worker", folder], start_new_session=True)
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def base(monkeypatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t-", dir=short_folder()) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(scratch, "_YOUNGEST_LEFTOVER", 0.0)
        yield Path(folder)


@contextmanager
def owner() -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    folder = ""
    try:
        folder = process.stdout.readline().strip()
        yield process, Path(folder)
    finally:
        process.kill()
        for left in working_in(folder) if folder else ():  # first, since it holds the pipe's other end
            left.kill()
        process.communicate()


def test_a_folder_goes_with_its_run(base):
    with scratch_folder() as folder:
        (Path(folder) / "rows.npy").write_bytes(b"rows")
        assert Path(folder).parent == base
    assert list(base.iterdir()) == []


def test_the_folder_of_a_killed_run_goes_with_its_processes(base):
    with owner() as (process, left):
        process.kill()
        process.wait()
        assert (left / "rows.npy").exists()
        assert working_in(str(left))
        with scratch_folder():
            assert not left.exists()
            assert not working_in(str(left))


def test_somebody_who_looks_at_a_log_of_a_killed_run_is_left_alone(base):
    with owner() as (process, left):
        (left / "console.txt").touch()
        with subprocess.Popen(["tail", "-f", str(left / "console.txt")], stdout=subprocess.DEVNULL) as looking:
            process.kill()
            process.wait()
            with scratch_folder():
                assert not left.exists()
            assert looking.poll() is None
            looking.kill()


def test_the_folder_of_a_living_run_is_left_alone(base):
    with owner() as (process, left):
        process.send_signal(signal.SIGSTOP)  # not even one that stands still
        with scratch_folder():
            assert (left / "rows.npy").exists()
            assert working_in(str(left))
        process.send_signal(signal.SIGCONT)


def test_a_folder_that_was_just_made_is_left_alone(base, monkeypatch):
    monkeypatch.setattr(scratch, "_YOUNGEST_LEFTOVER", 5.0)
    new = base / "fc-new"
    new.mkdir()
    (new / ".flareclust").touch()
    with scratch_folder():
        assert new.exists()


def test_other_folders_and_links_are_left_alone(base):
    (base / "other").mkdir()
    (base / "kept").mkdir()
    (base / "fc-link").symlink_to(base / "kept")
    (base / "fc-file").write_text("no folder")
    (base / "fc-theirs").mkdir()  # of a program that uses the same names
    with scratch_folder():
        pass
    assert sorted(path.name for path in base.iterdir()) == ["fc-file", "fc-link", "fc-theirs", "kept", "other"]


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_the_folder_is_removed_is_put_off(base, monkeypatch, times):
    remove = scratch.shutil.rmtree

    def interrupted(folder, **options):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        remove(folder, **options)

    monkeypatch.setattr(scratch.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch_folder():
        pass
    monkeypatch.undo()
    assert list(base.iterdir()) == []


def test_an_interrupt_while_the_folder_is_made_leaves_none(base, monkeypatch):
    make = scratch.tempfile.mkdtemp

    def interrupted(**options):
        folder = make(**options)
        signal.raise_signal(signal.SIGINT)
        return folder

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch_folder():
        pytest.fail("the interrupt came before")
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "x" * 60])
def test_temporary_folders_that_nvflare_cannot_use_are_not_used(monkeypatch, tmp_path, name):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with scratch_folder() as folder:
        assert folder.startswith("/tmp/fc-")
    assert not Path(folder).exists()
