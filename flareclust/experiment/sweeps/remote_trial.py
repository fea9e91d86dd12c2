"""A sweep's trial in another process: sent as JSON values, and measured from data that are loaded there."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust.experiment.config import Experiment
from flareclust.experiment.sweeps.data import is_known, load_data
from flareclust.experiment.sweeps.trials import ExperimentMeasure, Trial, TrialResult, TrialRun, attempt_any

log = logging.getLogger(__name__)

#: Measures what `trial_message` described, in another process, and returns the answer of `measure_message`.
Measure = Callable[[dict[str, Any]], dict[str, Any]]


def trial_message(trial: Trial) -> dict[str, Any]:
    """Return what another process needs to run a trial of a sweep; paths are absolute.

    Raises:
        UserError: the trial is no experiment of a sweep.
    """
    if not isinstance(trial.measure, ExperimentMeasure):
        raise UserError("only the trials of a sweep can run in other processes; use threads")
    experiment = trial.measure.experiment.model_dump(mode="json")
    if not is_known(experiment["data"]):
        experiment["data"] = str(Path(experiment["data"]).absolute())
    if experiment["table_schema"] is not None:
        experiment["table_schema"] = str(Path(experiment["table_schema"]).absolute())
    return {"cell": dict(trial.cell), "experiment": experiment, "data_digest": trial.params["data_digest"]}


def measure_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Run the trial that a message describes; return what it came to as JSON values, or why it failed."""
    experiment = Experiment(**message["experiment"])

    def measure() -> TrialResult:
        dataset, digest = load_data(experiment)
        if digest != message["data_digest"]:
            raise UserError(
                f"the data {experiment.data} of this worker differ from those of the sweep; give every worker the same files"
            )
        return ExperimentMeasure(experiment, dataset)()

    done = attempt_any(Trial(message["cell"], experiment.seed, {}, measure))
    if done.measured is None:
        return {"error": done.error}
    return done.measured.to_json()


def attempt_elsewhere(trial: Trial, measure: Measure) -> TrialRun:
    """Run one trial of many in another process. A process that is lost costs this trial and no other."""
    try:
        answer = measure(trial_message(trial))
    except FlareclustError as error:
        return TrialRun(trial, None, str(error))
    except Exception as error:  # whatever a cluster raises where a worker is gone
        log.info("%s was lost", trial.name, exc_info=True)
        return TrialRun(trial, None, f"its worker did not finish it: {type(error).__name__}: {error}")
    if "error" in answer:
        return TrialRun(trial, None, answer["error"])
    return TrialRun(trial, TrialResult.from_json(answer))
