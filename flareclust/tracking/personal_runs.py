"""Personalised models in MLflow: one run with the accuracy after each round."""

import time
import uuid
from dataclasses import replace
from pathlib import Path

from flareclust._foundation.errors import FlareclustError
from flareclust._foundation.version import __version__
from flareclust.personal.result import PersonalResult
from flareclust.tracking.runs import Tracker, finite
from flareclust.tracking.store import resolve_uri, store_errors

EXPERIMENT = "flareclust-personal"


class PersonalTracker(Tracker):
    """Logs personalised models to one MLflow experiment."""

    def log_personal(self, result: PersonalResult, name: str, started_ms: int) -> str:
        """Log settings, rounds, cost and files of a saved result as a finished run; return its id."""
        from mlflow.entities import Metric

        tags = {"kind": "personal", "method": result.settings["method"], "flareclust.version": __version__}
        run_id = self.start(uuid.uuid4().hex, name, result.settings, tags)
        self.log_rounds(run_id, result.rounds(), started_ms)
        cost = {f"bytes_{way}": float(size) for way, size in result.bytes.items()} | {"seconds": result.seconds}
        pairs = [*finite("final", {"accuracy": result.final_accuracy}), *finite("cost", cost)]
        now = time.time_ns() // 1_000_000
        self._client.log_batch(run_id, [Metric(key, value, now, 0) for key, value in pairs])
        self._make_folder()
        for path in sorted(Path(result.folder or "").iterdir()):
            self._client.log_artifact(run_id, str(path))
        self.finish(run_id)
        return run_id


def log_personal(result: PersonalResult, name: str, uri: str | None = None) -> PersonalResult:
    """Log a saved result to MLflow; return it with `run_id`, or with a warning where the store failed."""
    store = resolve_uri(uri)
    try:
        with store_errors(store):
            tracker = PersonalTracker(store, EXPERIMENT)
            run_id = tracker.log_personal(result, name, int((time.time() - result.seconds) * 1000))
    except FlareclustError as error:
        warning = f"the result is in {result.folder}, but not in MLflow as a whole: {error}"
        return replace(result, warnings=[*result.warnings, warning])
    return replace(result, run_id=run_id)
