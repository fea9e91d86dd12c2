"""Shell completion, as docs/commands.md says to install it, and `python -m flareclust`."""

import runpy
import sys

import pytest

from tests.command_line import call


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shells_script_asks_the_command(shell, monkeypatch, capsys):
    monkeypatch.setattr("shellingham.detect_shell", lambda *args: (shell, f"/bin/{shell}"))
    assert call("--show-completion") == 0
    script = capsys.readouterr().out
    assert f"_FLARECLUST_COMPLETE=complete_{shell}" in script
    assert {"bash": "complete -o default -F _flareclust_completion flareclust", "zsh": "#compdef flareclust"}[
        shell
    ] in script


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("bash", lambda line: {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}),
        ("zsh", lambda line: {"_TYPER_COMPLETE_ARGS": line}),
    ],
)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flareclust ", {"run", "sweep", "stability", "site", "schema", "doctor"}),
        ("flareclust s", {"sweep", "stability", "site", "schema"}),
        ("flareclust schema ", {"draft", "check"}),
        ("flareclust run --part", {"--partition"}),
    ],
)
def test_the_command_names_what_may_follow(shell, environment, line, expected, monkeypatch, capsys):
    monkeypatch.setenv("_FLARECLUST_COMPLETE", f"complete_{shell}")
    for name, value in environment(line).items():
        monkeypatch.setenv(name, value)
    call()
    answer = capsys.readouterr().out
    assert all(word in answer for word in expected)
    if line.endswith(" s"):
        assert "doctor" not in answer


def test_the_package_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/flareclust/__main__.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("flareclust", run_name="__main__")
    assert "Usage: flareclust [OPTIONS]" in capsys.readouterr().out
