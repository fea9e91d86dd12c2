"""Whether the next use compiles: said in commands and interactive use only, once."""

import os
import sys
from types import SimpleNamespace

import pytest

import flareclust
from flareclust.core import compiled
from flareclust.experiment.reports import terminal


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder of compiled kernels."""
    kernel = SimpleNamespace(
        stats=SimpleNamespace(cache_path=str(tmp_path)),
        __module__="flareclust.core.kernels",
        __name__="nearest_centroids",
        __code__=compiled.warm_up.__code__,
    )
    monkeypatch.setattr(compiled, "nearest_centroids", kernel)
    return tmp_path


@pytest.fixture
def compiling(monkeypatch):
    """An entry for each time that kernels would be compiled in processes."""
    found = []
    monkeypatch.setattr(compiled, "compile_side_by_side", lambda: found.append(1))
    return found


def keep(cache, age=0.0, version=f"{sys.version_info.major}{sys.version_info.minor}"):
    file = cache / f"kernels.nearest_centroids-64.py{version}.nbi"
    file.touch()
    changed = os.stat(compiled.__file__).st_mtime - age
    os.utime(file, (changed, changed))


def test_kernels_are_compiled_where_none_are_kept_or_older_ones(cache):
    assert compiled.compiles_first()
    keep(cache, version="27")
    assert compiled.compiles_first()
    keep(cache, age=10)
    assert compiled.compiles_first()
    keep(cache)
    assert not compiled.compiles_first()


@pytest.mark.parametrize("stats", [None, SimpleNamespace(cache_path=None)], ids=["switched off", "no folder"])
def test_nothing_is_announced_where_nothing_is_kept(cache, monkeypatch, stats):
    monkeypatch.setattr(compiled.nearest_centroids, "stats", stats)
    assert not compiled.compiles_first()


def test_the_real_kernel_has_what_is_looked_at():
    compiled.warm_up()
    assert not compiled.compiles_first()


def test_each_part_is_compiled_in_a_process_of_its_own(monkeypatch):
    """None where it would share the only core."""
    started = []

    class Process:
        def __init__(self, command, **streams):
            started.append(command)

        __enter__ = __exit__ = lambda self, *error: None

    monkeypatch.setattr(compiled.subprocess, "Popen", Process)
    monkeypatch.setattr(compiled, "usable_cores", lambda: 1)
    compiled.compile_side_by_side()
    assert started == []
    monkeypatch.setattr(compiled, "usable_cores", lambda: 2)
    compiled.compile_side_by_side()
    assert [command[:2] for command in started] == [[sys.executable, "-c"]] * 2
    for _, _, code in started:
        exec(code)


def test_an_interactive_first_run_says_so_once_and_a_program_does_not(cache, compiling, monkeypatch, capsys):
    sites = {"north": [[0.0], [1.0], [5.0]], "south": [[0.0], [5.0], [6.0]]}
    flareclust.run("lloyd", sites, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    flareclust.run("lloyd", sites, 2)
    assert capsys.readouterr().err == (
        "compiling the numeric kernels, once for this installation: up to half a minute\n"
    )
    keep(cache)
    flareclust.run("lloyd", sites, 2)
    assert capsys.readouterr().err == ""


def test_a_command_on_a_terminal_says_so(cache, compiling, capsys):
    terminal.compile_if_first()
    assert "compiling the numeric kernels" in capsys.readouterr().err
    assert compiling == [1]
