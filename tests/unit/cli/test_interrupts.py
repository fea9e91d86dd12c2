"""What ends a command: each signal interrupts it once, and then leaves it in peace while it cleans up."""

import signal

import pytest
import typer

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.interrupts import ENDING
from flareclust.cli import entry
from flareclust.cli.entry import _INTERRUPTED
from flareclust.cli.sweep import Interrupted


def ended(capsys, body):
    """Return the exit code of a command that does this, and what it says on stderr."""
    app = typer.Typer()
    app.command()(body)
    with pytest.raises(SystemExit) as done:
        entry.run_app(app, [])
    return done.value.code, capsys.readouterr().err


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_interrupts_once_and_again_only_after_the_clean_up(number, capsys, monkeypatch):
    seconds, cleaned = [100.0], []
    monkeypatch.setattr(entry.time, "monotonic", lambda: seconds[0])

    def command() -> None:
        try:
            signal.raise_signal(number)
        finally:
            for other in ENDING:
                signal.raise_signal(other)
            cleaned.append(number)
            seconds[0] += entry._CLEANUP_SECONDS
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)

    assert ended(capsys, command) == (_INTERRUPTED, "error: interrupted; nothing was kept\n")
    assert cleaned == [number]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Interrupted("interrupted; 3 of 9 trials are kept"), _INTERRUPTED, "interrupted; 3 of 9 trials are kept"),
        (JobFailed("no site took part"), 1, "no site took part"),
        (PermissionError(13, "Permission denied", "out"), 2, "out cannot be used: Permission denied"),
    ],
)
def test_an_error_ends_a_command_with_its_code_and_a_line(error, code, words, capsys):
    def command() -> None:
        raise error

    assert ended(capsys, command) == (code, f"error: {words}\n")


def test_an_error_of_the_system_that_names_no_file_is_shown_as_it_is():
    def command() -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    app = typer.Typer()
    app.command()(command)
    with pytest.raises(ConnectionResetError):
        entry.run_app(app, [])
