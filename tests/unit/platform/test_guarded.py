"""NVFlare's programs that `flareclust.guarded` starts run as with `python -m`, with messages that hold no files."""

import json
import subprocess
import sys

from flareclust.sites.running import _PROTECTION, RELAY

PROGRAM = "import sys; from flareclust.platform import file_guard; print(sys.argv[1:], __name__, file_guard.problem())"


def run(folder, *words):
    command = [sys.executable, "-m", "flareclust.guarded", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_program_runs_with_its_arguments_and_the_guard(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    assert run(tmp_path, "program", "-m", "kit").stdout == "['-m', 'kit'] __main__ None\n"


def test_without_a_program_it_says_how_it_is_called(tmp_path):
    done = run(tmp_path)
    assert done.returncode != 0
    assert "usage: python -m flareclust.guarded MODULE" in done.stderr


def test_a_relay_writes_down_that_it_is_protected(tmp_path):
    run(tmp_path, RELAY, "-m", str(tmp_path), "-s", "fed_relay.json")  # which is not there
    about = json.loads((tmp_path / _PROTECTION).read_text())
    assert about["problems"] == []
    assert about["nvflare"].startswith("2.")
