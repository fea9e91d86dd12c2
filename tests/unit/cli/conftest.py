"""The command line, called as the console script would."""

import logging
import signal

import pytest

from flareclust._foundation.interrupts import ENDING
from flareclust.cli.entry import _QUIET
from flareclust.cli.main import main
from tests.unit.cli.cli_cases import TrialRun


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Call the command in an empty folder, as the console script would."""
    monkeypatch.chdir(tmp_path)
    for name in _QUIET:
        monkeypatch.setenv(name, "CRITICAL")  # the command sets these; monkeypatch takes them back
    monkeypatch.setattr(logging, "raiseExceptions", True)
    before = {number: signal.getsignal(number) for number in ENDING}

    def call(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        return TrialRun(ended.value.code or 0, *capsys.readouterr())

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)
