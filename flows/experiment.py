"""The flow of one experiment: prepare, start the MLflow run, submit, evaluate, log; and the same for other flows.

Tasks are thin; the work is in `flareclust.experiment.prepare`, `flareclust.experiment` and `flareclust.tracking.run_logging`.
"""

# No `from __future__ import annotations` here: Prefect cannot resolve string annotations of a flow that it serves.

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Before prefect is imported. Offline, its telemetry would only log errors; and a machine that starts several sites at
# once can be too slow for the default 20 s to start a server.
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.artifacts import save
from flareclust.experiment.config import Experiment, folder_name
from flareclust.experiment.evaluate import evaluate
from flareclust.experiment.prepare import prepare
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.result import Result
from flareclust.experiment.submit import submit
from flareclust.federation import OnRound
from flareclust.protocol.outcome import Outcome
from flareclust.tracking.run_logging import fail_run, log_run, offer_alias, start_run, was_stopped


@task(name="start MLflow run", cache_policy=NO_CACHE)
def start_run_task(experiment: Experiment, run_key: str, tags: dict[str, object]) -> str:
    """Find or create the MLflow run."""
    return start_run(experiment, run_key, tags)


@task(name="prepare", cache_policy=NO_CACHE)
def prepare_task(experiment: Experiment) -> Prepared:
    """Load the data and assign the rows to sites."""
    return prepare(experiment)


def _worth_another_try(task: Any, run: Any, state: Any) -> bool:
    """Return whether the job ended for no reason of its own; sites that refuse would refuse again."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, JobFailed) and error.transient


@task(name="submit", cache_policy=NO_CACHE, retry_delay_seconds=1, retry_condition_fn=_worth_another_try)
def submit_task(experiment: Experiment, prepared: Prepared, run_key: str, on_round: OnRound) -> Outcome:
    """Run the NVFlare job, or take it up again where this run has submitted it before."""
    return submit(experiment, prepared, on_round, run_key)


@task(name="evaluate", cache_policy=NO_CACHE)
def evaluate_task(experiment: Experiment, prepared: Prepared, outcome: Outcome, started: float, out: Path) -> Result:
    """Compare with the truth and write the result's files."""
    return save(evaluate(experiment, prepared, outcome, time.time() - started), out)


@task(name="log to MLflow", cache_policy=NO_CACHE)
def log_task(result: Result, outcome: Outcome, experiment: Experiment, run_id: str, started: float) -> Result:
    """Log metrics, centroids, picture and model."""
    return log_run(result, outcome, experiment, run_id, started)


@task(name="offer the alias", cache_policy=NO_CACHE)
def alias_task(experiment: Experiment, run_id: str, alias: str, metric: str) -> str:
    """Give the registered model's alias to the new version if it is at least as good; return what came of it."""
    return offer_alias(experiment, run_id, alias, metric)


@flow(name="flareclust-experiment", flow_run_name="{experiment.name}", persist_result=False)
def experiment_flow(experiment: Experiment, out: str | None = None) -> Result:
    """Run one federated clustering and log it; a retry of the flow resumes its MLflow run.

    Args:
        experiment: what to run.
        out: folder for the result's files; a new one under flareclust-runs/ by default.
    """
    return run_logged(experiment, out)


def run_logged(
    experiment: Experiment,
    out: str | None,
    alias: tuple[str, str] | None = None,
    prepared: Prepared | None = None,
    on_round: OnRound = lambda record: None,
) -> Result:
    """Do the work of a flow run, in whose function this is called: all tasks, and the MLflow run closed in any case.

    Args:
        experiment: what to run.
        out: folder for the result's files; a new one under flareclust-runs/ by default.
        alias: of the registered model, to be offered to the new version, and the metric that decides.
        prepared: the federation, where its rows are in memory; None to prepare it from the experiment.
        on_round: called with a record per exchange.
    """
    started = time.time()
    folder = Path(out) if out else folder_name(experiment, time.strftime("%Y%m%d-%H%M%S"))
    flow_run_id = str(flow_run.id)
    prepared = prepared or prepare_task(experiment)
    experiment = experiment.model_copy(update={"k": prepared.k})
    run_key = experiment.key(flow_run_id)
    run_id = start_run_task(experiment, run_key, {"prefect.flow_run_id": flow_run_id})
    try:
        outcome = submit_task.with_options(retries=experiment.retries)(experiment, prepared, run_key, on_round)
        result = evaluate_task(experiment, prepared, outcome, started, folder)
        result = log_task(result, outcome, experiment, run_id, started)
        decision = alias_task(experiment, run_id, *alias) if alias else ""
    except BaseException as error:
        _close(experiment, run_id, error)
        raise
    summary = _summary(result, folder) + (f"\n\n{decision}" if decision else "")
    create_markdown_artifact(summary, key="flareclust-result", description=experiment.name)
    return result


def _close(experiment: Experiment, run_id: str, error: BaseException) -> None:
    """Close the MLflow run of a job that ended with this error; what goes wrong here must not hide the error."""
    log = get_run_logger()
    reason, stopped = str(error) or type(error).__name__, was_stopped(error)
    log.error("%s %s: %s", experiment.name, "was stopped" if stopped else "failed", reason)
    try:
        fail_run(experiment, run_id, reason, stopped=stopped)
    except Exception:  # MLflow's, of many kinds
        log.warning("the MLflow run %s could not be closed", run_id, exc_info=True)


def run_flow(experiment: Experiment, prepared: Prepared | None, out: Path, on_round: OnRound) -> Result:
    """Run the flow in this process with what only this process has: rows in memory, somebody watching the rounds."""

    @flow(name=experiment_flow.name, flow_run_name="{experiment.name}", persist_result=False)
    def flow_here(experiment: Experiment, out: str) -> Result:
        return run_logged(experiment, out, prepared=prepared, on_round=on_round)

    with server_reached():
        start_server()
        return flow_here(experiment, str(out))


@contextmanager
def server_reached() -> Iterator[None]:
    """Say what to do, as a UserError, where Prefect cannot reach the server that it is set to use."""
    try:
        yield
    except RuntimeError as error:
        if "Failed to reach API" not in str(error):
            raise
        raise UserError(
            f"{error}; start that Prefect server, unset PREFECT_API_URL, or run without tracking (--no-track)"
        ) from error


def start_server() -> None:
    """Start Prefect's temporary server, where one is needed, so that Ctrl-C or a closed terminal does not end it.

    Both reach every process of the terminal. Without its server, Prefect would try for more than a minute to report
    the interrupt; the server is stopped when this process ends.
    """
    settings = get_current_settings()
    if settings.api.url or not settings.server.ephemeral.enabled:
        return
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Prefect keeps its records in {settings.home}, which cannot be made ({error.strerror}); "
            "set PREFECT_HOME to another folder, or run without tracking (--no-track)"
        ) from error
    blocked = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP}
    )  # a child inherits what is blocked
    try:
        SubprocessASGIServer().start()
    except RuntimeError as error:
        raise UserError(
            f"Prefect's temporary server did not start ({error}); see that {settings.home} can be written to, or run "
            "without tracking (--no-track)"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _summary(result: Result, folder: Path) -> str:
    rows = "".join(f"| {name} | {value:.6g} |\n" for name, value in result.metrics.items() if value is not None)
    notes = "".join(f"- {warning}\n" for warning in result.warnings)
    return (
        f"{result.centroids_found} of {result.k} centroids from {result.n_sites} sites in "
        f"{result.seconds['total']:.1f} s\n\n| metric | value |\n|---|---|\n{rows}\n{notes}\n"
        f"MLflow run `{result.run_id}`, files in `{folder}`"
    )
