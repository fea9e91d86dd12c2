"""The comparison with other versions of NVFlare: what fails is a line each, and an environment has the NVFlare that was asked for."""

import sys
from pathlib import Path

import pytest

from benchmarks import platform
from benchmarks.platform import CHECKS, NAMES, environment, failures, main


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (("-c", "print('a: no b')\nprint('c: no d')"), ["a: no b", "c: no d"]),
        (("-c", "raise SystemExit('no e')"), ["no e"]),
        (("-c", "raise SystemExit(3)"), ["it said nothing"]),
        (("-c", ""), []),
        (("-m", "platform"), []),  # what a command prints that succeeds is no failure
    ],
)
def test_each_failure_is_a_line(tmp_path, call, found):
    assert list(failures(Path(sys.executable), call, tmp_path)) == found


def test_what_does_not_end_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "PATIENCE", 0.1)
    found = list(failures(Path(sys.executable), ("-c", "import time; time.sleep(60)"), tmp_path))
    assert found == ["no end after 0.1 s"]


def test_the_environment_has_the_nvflare_of_a_folder_and_all_other_packages(tmp_path):
    fake = tmp_path / "clone" / "nvflare"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("__version__ = '99'\n")
    python = environment(tmp_path / "venv", str(fake.parent))
    code = "import nvflare, numpy, flareclust; print(nvflare.__version__, nvflare.__file__, flareclust.__file__)"
    (line,) = failures(python, ("-c", code), tmp_path)
    version, file, own = line.split()
    assert version == "99"
    assert file.startswith(str(tmp_path))
    assert own == str(platform.ROOT / "flareclust" / "__init__.py")
    missing = list(failures(python, ("-c", NAMES), tmp_path))
    assert any("has no nvflare.fuel.f3.cellnet.core_cell.CoreCell" in line for line in missing)


def test_the_exit_code_says_whether_something_fails(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(platform, "environment", lambda folder, wanted: Path(sys.executable))
    monkeypatch.setattr(
        platform, "failures", lambda python, call, out: ["no b"] if call == CHECKS["modules"][0] else []
    )
    assert main(["2.9.0", "--quick"]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == ["modules: 1 fail", "    no b"]
    monkeypatch.setattr(platform, "failures", lambda python, call, out: [])
    assert main(["2.9.0"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CHECKS)
