"""The flow of a federation that runs by a schedule: as any experiment, and the new model takes an alias if it is no worse.

Schedules, workers and servers are Prefect's; docs/schedules.md sets them up.
"""

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.experiment import run_logged  # isort: split

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.runtime import flow_run

from flareclust._foundation.errors import FlareclustError, JobFailed
from flareclust.experiment.config import Experiment
from flareclust.experiment.results.result import Result
from flareclust.flows.federation import with_kit
from flareclust.tracking import promotion, store

#: The event of a night that left sites out or whose clusters differ from the earlier ones; its payload says so in `noticed`.
NOTICED = "flareclust.night.noticed"

#: Seconds until a flow run that failed is tried again: enough for a site or a server to start anew.
_RETRY_DELAY = 300


def _registered(experiment: Experiment) -> Experiment:
    if experiment.register_as is None:
        raise ValueError("register_as: expected the name in MLflow under which the model of every run is registered")
    return experiment


@flow(
    name="flareclust-nightly",
    flow_run_name="{experiment.name}",
    persist_result=False,
    retries=1,
    retry_delay_seconds=_RETRY_DELAY,
)
def nightly_flow(
    experiment: Annotated[Experiment, AfterValidator(_registered)],
    alias: Annotated[str, AfterValidator(promotion.check_alias)] = promotion.ALIAS,
    metric: Annotated[str, AfterValidator(promotion.check_metric)] = promotion.METRIC,
    out: str | None = None,
) -> Result:
    """Run one federated clustering, log it, register its model, and give that the alias if it is at least as good.

    A run that fails for a reason that may pass is tried once more and goes on with the same MLflow run. Whatever goes
    wrong, the alias stays where it was.

    Args:
        experiment: what to run; its `register_as` is the model's name, and its kit may be the name of a block, as flare-federation/clinics.
        alias: models:/<register_as>@<alias> is the version that has it.
        metric: what the new version and the one that has the alias are compared by, see `flareclust.tracking.promotion.decide`.
        out: folder for the result's files; a new one under flareclust-runs/ by default.
    """
    try:
        result = run_logged(with_kit(experiment), out, (alias, metric))
    except Exception as error:
        if not _may_pass(error):
            _give_up_retries()
        raise
    if noticed := _noticed(result):
        model = {"prefect.resource.id": f"flareclust.model.{experiment.register_as}"}
        emit_event(NOTICED, model, payload={"noticed": noticed})
    return result


def _noticed(result: Result) -> list[str]:
    """Return which sites are not in a result, and how its clusters differ from the earlier ones, a sentence each."""
    said = [f"{site} {why}" for site, why in sorted(result.left_out.items())]
    since, name = result.continuity, str(result.matched_to)
    return said if since is None else said + since.changes(name) + since.drift(name, result.row_name)


def _may_pass(error: Exception) -> bool:
    """Return whether another try may succeed: not where the request is wrong, or the job failed for its own reasons.

    Of errors that are not ours nobody knows; among them are a full disk and a store that is busy.
    """
    if isinstance(error, JobFailed):
        return error.transient
    return isinstance(error, store.NoAnswer) or not isinstance(error, FlareclustError)


def _give_up_retries() -> None:
    """Let the flow run that this is part of end with its first failure.

    Prefect has a condition for the retries of tasks and none for those of flows. Its server decides by the number that
    the flow run has, for a Failed state that a flow returns just as for an error, so that number is set to 0.
    """
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(str(flow_run.id)))
        client.update_flow_run(run.id, empirical_policy=run.empirical_policy.model_copy(update={"retries": 0}))
