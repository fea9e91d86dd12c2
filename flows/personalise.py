"""The flow of personalised models: train, save, log."""

from pathlib import Path

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.steps import Steps  # isort: split

from prefect import flow

from flareclust._foundation.own_files import check_target
from flareclust.personal.result import PersonalResult, default_folder, save
from flareclust.personal.run import run_personal
from flareclust.personal.settings import PersonalSettings
from flareclust.tracking import run_logging


@flow(name="flareclust-personalise", flow_run_name="{settings.name}", persist_result=False)
def personalise_flow(settings: PersonalSettings, out: str | None = None) -> PersonalResult:
    """Train personalised models and log them to MLflow.

    Args:
        settings: what to train.
        out: folder for the result's files; a new one under flareclust-runs/ by default.
    """
    folder = Path(out) if out else default_folder(settings.name)
    check_target(folder)
    steps = Steps()
    result = steps.run("train", run_personal, settings)
    result = steps.run("save", save, result, folder)
    return steps.run("log to MLflow", run_logging.log_personal, result, settings.name)
