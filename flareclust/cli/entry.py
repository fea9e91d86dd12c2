"""How a command line logs and ends: what others log stays off the terminal, one line says what went wrong, and an exit code."""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

import typer

from flareclust._foundation.display import printable, shortened
from flareclust._foundation.errors import FlareclustError, TableFaults, UserError
from flareclust._foundation.interrupts import ENDING
from flareclust.cli.sweep import Interrupted

#: What a shell reports for a program ended by Ctrl-C; typer exits with it too.
_INTERRUPTED = 130

#: For so long after a first Ctrl-C or SIGTERM, further ones are ignored: ending a simulator takes seconds.
_CLEANUP_SECONDS = 10.0


#: New objects until Python looks for garbage: with its 700 that takes a quarter of a run, which imports some thousand modules.
_OBJECTS = 10_000

#: Loggers of Prefect whose lines are for the pages of its server, and not for this terminal.
_PAGES = ("prefect.flow_runs", "prefect.task_runs")
#: Loggers of NVFlare whose lines say of each try that a server is out of reach, which the command says once.
_TRIES = ("nvflare.fuel.f3.sfm.conn_manager", "nvflare.fuel.f3.cellnet.core_cell")
#: What such a line may say beside that, which the command does not know.
_OTHER_KIT = "CERTIFICATE_VERIFY_FAILED"
#: Environment variables with the levels of what others log.
_QUIET = {
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "INFO",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "INFO",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # of processes that run trials
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}


def run_app(app: typer.Typer, args: list[str] | None = None, name: str | None = None) -> None:
    """Run a command line and exit with its code: 0 done, 1 the job failed, 2 the request was wrong, 130 interrupted.

    Args:
        app: the commands.
        args: the words behind the command; None for those of this process.
        name: of the command in usage lines and for shells' completion; None for how this process was started.
    """
    gc.set_threshold(_OBJECTS, 10, 10)
    interrupt = _interrupt_once()
    for number in ENDING:
        signal.signal(number, interrupt)  # so that `finally` runs and no simulator is left behind
    try:
        app(args, prog_name=name)
    except TableFaults as error:
        sys.exit(_complain(printable(error.lines, lines=True), 2))
    except UserError as error:
        sys.exit(_complain(shortened(printable(error)), 2))
    except Interrupted as error:
        sys.exit(_complain(str(error), _INTERRUPTED))
    except FlareclustError as error:
        sys.exit(_complain(printable(error, lines=True), 1))
    except OSError as error:
        if error.filename is None:  # of a connection, say
            raise
        sys.exit(_complain(shortened(printable(f"{error.filename} cannot be used: {error.strerror}")), 2))
    except SystemExit as done:
        if done.code == _INTERRUPTED:
            _complain("interrupted; nothing was kept", _INTERRUPTED)
        raise


def _interrupt_once() -> Callable[[int, object], None]:
    """Return a handler that interrupts the program, and then leaves it in peace while it cleans up."""
    quiet_until = 0.0

    def interrupt(number: int, frame: object) -> None:
        nonlocal quiet_until
        if time.monotonic() >= quiet_until:
            quiet_until = time.monotonic() + _CLEANUP_SECONDS
            raise KeyboardInterrupt

    return interrupt


def say(text: object) -> None:
    """Print a line for a person, in which a terminal finds nothing to obey."""
    typer.echo(printable(text))


class PlainFormatter(logging.Formatter):
    """Formats log lines in which a terminal finds nothing to obey."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return printable(super().format(record), lines=True)


def quieten(handler: logging.Handler) -> None:
    """Keep what others log off the terminal; call this before Prefect and MLflow are imported.

    Args:
        handler: writes to the terminal.
    """
    logging.raiseExceptions = False  # handlers of a server that is gone would print so with each of their lines
    for name in ("urllib3", "EventsWorker", "APILogWorker"):  # each of their tries, where a server is gone
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for name, level in _QUIET.items():
        os.environ.setdefault(name, level)
    handler.addFilter(lambda record: not record.name.startswith(_PAGES))
    handler.addFilter(lambda record: not record.name.startswith(_TRIES) or _OTHER_KIT in record.getMessage())


def _complain(text: str, code: int) -> int:
    typer.echo(f"error: {text}", err=True)
    return code
