"""The flow of one experiment, whose tasks are the steps of `flareclust.flows.run`; and the same for other flows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.server import PREFECT_LOST, server_reached, short_retries, start_server  # isort: split

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flareclust._foundation.own_files import reserved
from flareclust.experiment.config import Experiment, new_folder
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.artifacts import check_out
from flareclust.experiment.results.result import Result
from flareclust.experiment.submit import Kept
from flareclust.federation import OnRound
from flareclust.flows.federation import with_kit
from flareclust.flows.pages import RunPage
from flareclust.flows.run import carry_out
from flareclust.flows.steps import Steps
from flareclust.tracking import load as tracked_results
from flareclust.tracking import promotion, run_logging, store


class _FlowRun(Steps):
    """The steps of the flow run in whose function this is made, and its page."""

    def __init__(self) -> None:
        flow_run_id = str(flow_run.id)
        super().__init__(flow_run_id, {"prefect.flow_run_id": flow_run_id})
        self.page: RunPage | None = None
        self.log = get_run_logger()

    @contextmanager
    def watched(self, experiment: Experiment, on_round: OnRound) -> Iterator[OnRound]:
        """Show exchanges and warnings on the page of the flow run."""
        self.page = RunPage(self, experiment)
        with self.page.watched(on_round) as shown:
            yield shown

    def ended(self, experiment: Experiment, reason: str, *, stopped: bool) -> None:
        """Log why the run ended without a result."""
        self.log.error("%s %s: %s", experiment.name, "was stopped" if stopped else "failed", reason)


@flow(name="flareclust-experiment", flow_run_name="{experiment.name}", persist_result=False)
def experiment_flow(experiment: Experiment, out: str | None = None) -> Result:
    """Run one federated clustering and log it; a retry of the flow resumes its MLflow run.

    Args:
        experiment: what to run; its kit may be the name of a block, as flare-federation/clinics.
        out: folder for the result's files; a new one under flareclust-runs/ by default.
    """
    return run_logged(with_kit(experiment), out)


def run_logged(
    experiment: Experiment,
    out: str | None,
    alias: tuple[str, str] | None = None,
    prepared: Prepared | None = None,
    on_round: OnRound = lambda record: None,
    kept: Kept = None,
    match_to: Result | None = None,
) -> Result:
    """Do the work of a flow run, in whose function this is called: all tasks, and the MLflow run closed in any case.

    The arguments are those of `carry_out`, but `out`, by default a new folder under flareclust-runs/, and `alias`, which is to be
    offered to the new version of the registered model, with the metric that decides. `match_to` is an earlier result in memory.
    """
    folder = Path(out) if out else new_folder(experiment)
    check_out(folder, resume=kept is not None)
    steps = _FlowRun()
    earlier, options = partial(_reference, experiment, alias, match_to), "" if alias is None else _alias_options(*alias)
    job = experiment, prepared, folder, on_round, kept
    with reserved(folder):
        result, decision = carry_out(*job, track=True, calls=steps, earlier=earlier, options=options), ""
    if alias is not None and result.run_id is not None:
        result, decision = _offered(steps, result, experiment, *alias)
    assert steps.page is not None
    steps.page.result(result, decision)
    if steps.lost is None:
        return result
    steps.log.error("%s; the result is in %s", PREFECT_LOST, Path(result.centroids_file or "").parent)
    return _with_prefect_lost(result, steps.lost)


def _reference(
    experiment: Experiment, alias: tuple[str, str] | None, match_to: Result | None
) -> tracked_results.Reference | None:
    """Return the result whose numbers the clusters get: the one that is named, else the one that has the alias."""
    if alias is None or experiment.match_to is not None:
        return tracked_results.reference_of(match_to or experiment.match_to, experiment.tracking_uri)
    return tracked_results.champion_of(experiment, alias[0])


def _alias_options(alias: str, metric: str) -> str:
    """Return the options of `flareclust log` that offer the alias, too."""
    return f" --alias {alias}" + ("" if metric == promotion.METRIC else f" --metric {metric}")


def _offered(steps: Steps, result: Result, experiment: Experiment, alias: str, metric: str) -> tuple[Result, str]:
    """Offer the alias to the model of a logged run; return the result and what came of it, in a sentence."""
    assert result.run_id is not None
    try:
        return result, steps.run("offer the alias", run_logging.offer_alias, experiment, result.run_id, alias, metric)
    except store.NoAnswer as error:
        folder = Path(result.centroids_file or "").parent
        command = run_logging.log_command(folder, experiment.tracking_uri) + _alias_options(alias, metric)
        warning = f"the alias {alias} was not offered to the model of {folder} ({error}); do it later with: {command}"
        return replace(result, warnings=[*result.warnings, warning]), ""


def _with_prefect_lost(result: Result, error: Exception) -> Result:
    """Return a result with the one warning that Prefect does not know of its end."""
    if any(warning.startswith(PREFECT_LOST) for warning in result.warnings):
        return result
    lost = f"{PREFECT_LOST} ({type(error).__name__})"
    text = f"{lost}, so its pages do not show how this run ended; the result is complete"
    return replace(result, warnings=[*result.warnings, text])


def run_flow(
    experiment: Experiment,
    prepared: Prepared | None,
    out: Path,
    on_round: OnRound,
    kept: Kept = None,
    match_to: Result | None = None,
) -> Result:
    """Run the flow in this process with what only this process has: rows in memory, somebody watching the rounds.

    What it came to is kept here, too: it does not depend on Prefect hearing of it.
    """
    ended: list[Result | Exception] = []

    @flow(name=experiment_flow.name, flow_run_name="{experiment.name}", persist_result=False)
    def flow_here(experiment: Experiment, out: str) -> Result:
        try:
            ended.append(result := run_logged(experiment, out, None, prepared, on_round, kept, match_to))
        except Exception as error:
            ended.append(error)
            raise
        return result

    with server_reached(), short_retries():
        start_server()
        try:
            return flow_here(experiment, str(out))
        except Exception as error:
            if not ended or ended[-1] is error:
                raise
            if isinstance(ended[-1], Exception):
                raise ended[-1] from None
            return _with_prefect_lost(ended[-1], error)
