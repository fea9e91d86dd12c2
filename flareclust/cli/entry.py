"""How a command line ends: with one line about what went wrong, and an exit code."""

import signal
import sys

import typer

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust.cli.sweep import Interrupted

#: What a shell reports for a program ended by Ctrl-C; typer exits with it too.
INTERRUPTED = 130


def run_app(app: typer.Typer, args: list[str] | None = None) -> None:
    """Run a command line and exit with its code: 0 done, 1 the job failed, 2 the request was wrong, 130 interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that `finally` runs and no simulator is left behind
    try:
        app(args)
    except UserError as error:
        sys.exit(_complain(str(error), 2))
    except Interrupted as error:
        sys.exit(_complain(str(error), INTERRUPTED))
    except FlareclustError as error:
        sys.exit(_complain(str(error), 1))
    except SystemExit as done:
        if done.code == INTERRUPTED:
            _complain("interrupted; nothing was kept", INTERRUPTED)
        raise


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _complain(text: str, code: int) -> int:
    typer.echo(f"error: {text}", err=True)
    return code
