"""The flow of a sweep, for schedules and deployments; MLflow has a parent run and a run per trial.

What a trial does is in `flareclust.experiment.sweeps.trials`, who runs a study in `flareclust.flows.study`, and how Prefect runs
its trials in `flareclust.flows.runners`.
"""

from typing import Any

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.runners import as_tasks  # isort: split

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State

from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.flows.study import StudyRunner


@flow(name="flareclust-sweep", flow_run_name="{sweep.name}", persist_result=False)
def sweep_flow(sweep: sweep_settings.Sweep) -> State[Any]:
    """Run a sweep and log it; for schedules and deployments. It goes on where an earlier run was stopped.

    Args:
        sweep: as its file has it.

    Raises:
        UserError: the sweep cannot be run as stated, or the MLflow store cannot be opened. Trials that fail are in the state.
    """
    study = StudyRunner(
        sweep.name, sweep.mlflow_experiment, workers=sweep.workers, runner=sweep_settings.parse_runner(sweep.runner)
    )
    with study.opened(sweep_settings.trials(sweep)) as (file, run):
        state = as_tasks(run, len(file.missing), study.runner, study.workers, study.run_page)
    for warning in study.warnings:
        get_run_logger().warning(warning)
    return state
