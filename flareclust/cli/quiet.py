"""What others log, kept off the terminal: NVFlare, Prefect, MLflow and their libraries. `--verbose` shows it."""

import logging
import os

#: Loggers of Prefect whose lines are for the pages of its server, and not for this terminal.
_PAGES = ("prefect.flow_runs", "prefect.task_runs")
#: Environment variables with the levels of what others log.
QUIET = {
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "INFO",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "INFO",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # of processes that run trials
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}


def quieten(handler: logging.Handler) -> None:
    """Keep what others log off the terminal; call this before Prefect and MLflow are imported.

    Args:
        handler: writes to the terminal.
    """
    logging.raiseExceptions = False  # handlers of a server that is gone would print so with each of their lines
    for name in ("urllib3", "EventsWorker", "APILogWorker"):  # each of their tries, where a server is gone
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for name, level in QUIET.items():
        os.environ.setdefault(name, level)
    handler.addFilter(lambda record: not record.name.startswith(_PAGES))
