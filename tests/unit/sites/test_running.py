"""`flareclust site check` says whether the processes that run now are protected, not only those to come."""

import json
import subprocess
import sys

import psutil
import pytest

from flareclust._foundation.settings_file import parse_json
from flareclust.sites.running import (
    _PROTECTION,
    RELAY,
    guard_scripts,
    note_protection,
    owner_without_jobs,
    protection,
    unguarded_scripts,
)


@pytest.fixture
def parent(tmp_path):
    """A process with the command line of a relay of the kit in this folder."""
    code = "import sys; sys.stdin.read()"
    command = [sys.executable, "-c", code, RELAY, "-m", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process
        process.stdin.close()


def noted(kit, process, **changes):
    note_protection(kit, changes.pop("problem", None))
    about = parse_json((kit / _PROTECTION).read_text()) | {"pid": process.pid}
    about |= {"started": psutil.Process(process.pid).create_time()} | changes
    (kit / _PROTECTION).write_text(json.dumps(about))


def test_a_kit_without_a_process(tmp_path):
    assert protection(tmp_path) == ("no process runs here from this folder", [])


def test_a_process_that_was_started_before_the_upgrade_is_an_error(tmp_path, parent):
    words, errors = protection(tmp_path)
    assert words == "not in force"
    assert f"the process {parent.pid} of this kit was started without the protection" in errors[0]
    assert "start it anew" in errors[0]


def test_a_protected_process(tmp_path, parent):
    noted(tmp_path, parent)
    words, errors = protection(tmp_path)
    assert words.startswith(f"in force in process {parent.pid}: messages hold no files")
    assert errors == []


def test_an_earlier_process_of_the_same_number_does_not_count(tmp_path, parent):
    noted(tmp_path, parent, started=1.0)
    assert len(protection(tmp_path)[1]) == 1


def test_a_clock_that_was_set_changes_nothing(tmp_path, parent):
    noted(tmp_path, parent, started=psutil.Process(parent.pid).create_time() + 1)
    assert protection(tmp_path)[1] == []


def test_a_process_that_could_not_be_protected_says_why(tmp_path, parent):
    noted(tmp_path, parent, problem="cannot keep files out")
    assert protection(tmp_path) == ("not in force", [f"the process {parent.pid} cannot keep files out"])


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": "x"}'])
def test_a_broken_note_is_no_protection(tmp_path, parent, content):
    (tmp_path / _PROTECTION).write_text(content)
    assert len(protection(tmp_path)[1]) == 1


@pytest.mark.parametrize(
    ("script", "program", "owner"),
    [
        ("sub_start.sh", RELAY, "fed_relay.json"),
        ("fl_admin.sh", "nvflare.fuel.hci.tools.admin", "fed_admin.json"),
    ],
)
def test_the_scripts_of_relays_and_users_start_protected(tmp_path, script, program, owner):
    startup = tmp_path / "startup"
    startup.mkdir()
    (startup / owner).write_text("{}")
    (startup / script).write_text(f"exec python3 -u -m {program} -m $WORKSPACE\n")
    (startup / script).chmod(0o755)
    assert owner_without_jobs(tmp_path) == ("a relay" if owner == "fed_relay.json" else "a user")
    assert "without the protection" in unguarded_scripts(tmp_path)[0]
    assert guard_scripts(tmp_path) == [f"{script}: messages of {program} hold no files"]
    assert (startup / script).read_text() == f"exec python3 -u -m flareclust.guarded {program} -m $WORKSPACE\n"
    assert (startup / script).stat().st_mode & 0o777 == 0o755
    assert (unguarded_scripts(tmp_path), guard_scripts(tmp_path)) == ([], [])
