"""MLflow: one federation is one run, found again by its key.

Runs are addressed by explicit ids through MlflowClient. Nothing here touches MLflow's active run or its global
tracking address, so tasks in several threads and processes may log side by side. Every call may be repeated: a
retried task finds the same run and leaves no second copy of a metric, a model or a version.

MLflow is imported on first use, because that takes about a second.
"""

import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import make_folder, write_rows
from flareclust._foundation.typing import FloatArray
from flareclust.tracking import promotion
from flareclust.tracking.model_files import MODEL_NAME, column_names, save_model
from flareclust.tracking.note import NOTE_TAG, describe_failure
from flareclust.tracking.promotion import METRIC, Decision
from flareclust.tracking.store import KIND, KIND_TAG, apart_from, connect, resolve_uri, run_page, runs_page, sqlite_file

# MLflow's own limits, in characters. (Its client splits long lists into requests by itself.)
_PARAM_LENGTH, _TAG_LENGTH = 6000, 8000

RUN_KEY_TAG = "flareclust.run_key"
ERROR_TAG = "flareclust.error"

#: Name of a metric, value and step.
_Number: TypeAlias = tuple[str, float, int]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Tracker:
    """Logs federations to one MLflow experiment.

    A SQLite store is created when absent, whole or not at all, and brought to the installed MLflow's schema; its
    files lie in the folder `mlruns` beside the database.

    The experiment is created when absent. UserError where the store cannot be opened, or the experiment was deleted.
    """

    def __init__(self, uri: str | None = None, experiment: str = "flareclust") -> None:
        self.uri = resolve_uri(uri)
        self._client = connect(self.uri)
        self._experiment_id = _open_experiment(self._client, self.uri, experiment)

    def start(
        self, run_key: str, name: str, params: Mapping[str, object], tags: Mapping[str, object] | None = None
    ) -> str:
        """Open the run with this key, or create it, and return its id.

        A run that is found is set to RUNNING again and loses the error of its earlier attempt. Finding and creating
        are two steps in MLflow, so one key must not be started in two places at the same moment.

        Params that are None are left out; texts are cut at MLflow's limits.

        Raises:
            UserError: The run has another value for one of the params, or the key holds a quote.
        """
        texts = {key: str(value)[:_PARAM_LENGTH] for key, value in params.items() if value is not None}
        if (run := self.find(run_key)) is not None:
            _check_unchanged(run.data.params, texts, run_key)
            self.reopen(run, name)
        else:
            run = self.create(run_key, name)
        run_id = str(run.info.run_id)
        self.log(run_id, (), known={}, params=texts, tags={**(tags or {}), RUN_KEY_TAG: run_key})
        return run_id

    def create(self, run_key: str, name: str, tags: Mapping[str, object] = _NOTHING) -> Any:
        """Return a new run, which has its key from the start: a crash between two calls must not leave a run that nobody finds again."""
        texts = {key: str(value)[:_TAG_LENGTH] for key, value in tags.items()} | {RUN_KEY_TAG: run_key}
        return self._client.create_run(self._experiment_id, run_name=name, tags=texts)

    def reopen(self, run: Any, name: str | None = None) -> None:
        """Set a run to RUNNING again, without the error of its earlier attempt."""
        self._client.update_run(run.info.run_id, status="RUNNING", name=name)
        for tag in {ERROR_TAG, NOTE_TAG} & run.data.tags.keys() if ERROR_TAG in run.data.tags else ():
            self._client.delete_tag(run.info.run_id, tag)

    def find(self, run_key: str) -> Any:
        """Return MLflow's run with this key, the oldest of several; None if there is none. UserError for a key with a quote."""
        _check_quotable("run key", run_key)
        own, first = f"tags.`{RUN_KEY_TAG}` = '{run_key}'", ["attributes.start_time ASC"]
        found = self._client.search_runs([self._experiment_id], own, order_by=first, max_results=1)
        return found[0] if found else None

    def log_data(self, run_id: str, data: Any) -> None:
        """Log which data the run is about, see `flareclust.tracking.origin.data_input`; a second time changes nothing."""
        self._client.log_inputs(run_id, datasets=[data])

    def log(
        self,
        run_id: str,
        numbers: Sequence[_Number],
        started_ms: int | None = None,
        *,
        known: Mapping[str, float] | None = None,
        params: Mapping[str, object] = _NOTHING,
        tags: Mapping[str, object] = _NOTHING,
    ) -> None:
        """Log in one batch the numbers that the run does not have already, as metrics, with params and tags.

        A round that a metric already has is left alone, and so is a value that is the same; numbers may be logged again.

        Args:
            run_id: The run.
            numbers: As `numbers_of` gives them.
            started_ms: Start of the federation, milliseconds since 1970; round r is dated started_ms + r. None for now.
            known: The metrics of the run, where they are known here.
            params, tags: Logged as text, cut at MLflow's limits.
        """
        from mlflow.entities import Metric, Param, RunTag

        old = self._client.get_run(run_id).data.metrics if known is None else known
        rounds = {name for name, _, _ in numbers if name.startswith("round/")}
        steps = {
            name: {one.step for one in self._client.get_metric_history(run_id, name)} for name in rounds & old.keys()
        }
        now = time.time_ns() // 1_000_000
        metrics = [
            Metric(name, value, now if started_ms is None or name not in rounds else started_ms + step, step)
            for name, value, step in numbers
            if (step not in steps.get(name, ()) if name in rounds else old.get(name) != value)
        ]
        if metrics or params or tags:
            texts = [Param(key, str(value)[:_PARAM_LENGTH]) for key, value in params.items()]
            labels = [RunTag(key, str(value)[:_TAG_LENGTH]) for key, value in tags.items()]
            self._client.log_batch(run_id, metrics=metrics, params=texts, tags=labels)

    def log_centroids(self, run_id: str, centroids: FloatArray, columns: Sequence[str] | None) -> None:
        """Keep centroids (k, d) with the run, as centroids.npz and centroids.csv, whose header is x0, x1, ... without names."""
        names = column_names(centroids, columns)
        self._make_folder()
        with tempfile.TemporaryDirectory() as scratch:
            np.savez(Path(scratch, "centroids.npz"), centroids=centroids)
            with Path(scratch, "centroids.csv").open("w", newline="", encoding="utf-8") as stream:
                write_rows(stream, [names, *centroids.tolist()])
            self._client.log_artifacts(run_id, scratch)

    def log_files(self, run_id: str, files: Sequence[Path]) -> None:
        """Keep files with the run under their own names."""
        self._make_folder()
        for file in files:
            self._client.log_artifact(run_id, str(file))

    def log_table(self, run_id: str, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Log columns of values as a table that MLflow shows, once; `name` ends in .json."""
        self._make_folder()
        if name not in {file.path for file in self._client.list_artifacts(run_id)}:
            self._client.log_table(run_id, dict(columns), name)

    def log_model(self, run_id: str, centroids: FloatArray, columns: Sequence[str] | None = None, **parts: Any) -> str:
        """Log a model whose `predict` gives the nearest centroid, and return its address `runs:/<run_id>/model`.

        What it is made of, and what is refused, says `flareclust.tracking.model_files.save_model`.
        """
        from mlflow.entities import LoggedModelOutput

        self._make_folder()
        run = self._client.get_run(run_id)
        model = self._find_model(run_id) or self._client.create_logged_model(
            self._experiment_id, name=MODEL_NAME, source_run_id=run_id, params=run.data.params
        )
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, MODEL_NAME)
            save_model(folder, centroids, columns, run_id=run_id, model_id=model.model_id, **parts)
            self._client.log_model_artifacts(model.model_id, str(folder))
        self._client.finalize_logged_model(model.model_id, "READY")
        outputs = run.outputs.model_outputs if run.outputs else []
        if model.model_id not in {output.model_id for output in outputs}:
            self._client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        return f"runs:/{run_id}/{MODEL_NAME}"

    def register(self, run_id: str, model_name: str) -> int:
        """Enter the run's model in the registry and return its version, the same at a second call; UserError without a model."""
        _check_quotable("model name", model_name)
        if (model := self._find_model(run_id)) is None:
            raise UserError(f"run {run_id} has no model to register; call log_model first")
        return promotion.register(self._client, run_id, model, model_name)

    def offer_alias(self, model_name: str, version: int, alias: str, metric: str = METRIC) -> Decision:
        """Move the alias to this version if the rule gives it that, see `flareclust.tracking.promotion.decide`.

        What was decided, and why, is written to the version as the tag `flareclust.<alias>`. UserError where there is no such
        version, versions cannot be compared by this metric, or the alias is no name.
        """
        promotion.check_alias(alias)
        new = promotion.version(self._client, model_name, version)
        decision = promotion.decide(new, promotion.holder(self._client, model_name, alias), metric)
        if decision.takes_over:
            self._client.set_registered_model_alias(model_name, alias, str(version))
        self._client.set_model_version_tag(model_name, str(version), f"flareclust.{alias}", decision.reason)
        return decision

    def tag(self, run_id: str, key: str, value: object) -> None:
        """Set a tag of a run, as text."""
        self._client.set_tag(run_id, key, str(value)[:_TAG_LENGTH])

    def page(self, run_id: str) -> str:
        """Return the address of the run's page."""
        return run_page(self.uri, self._experiment_id, run_id)

    def finish(self, run_id: str) -> None:
        """Close the run as FINISHED."""
        self._client.set_terminated(run_id, "FINISHED")

    def fail(self, run_id: str, reason: str, *, stopped: bool = False) -> None:
        """Close the run as FAILED, or as KILLED if somebody stopped it; its description and the tag `flareclust.error` have the reason."""
        self.tag(run_id, ERROR_TAG, reason)
        self.tag(run_id, NOTE_TAG, describe_failure(reason, stopped=stopped))
        self._client.set_terminated(run_id, "KILLED" if stopped else "FAILED")

    def _make_folder(self) -> None:
        """Make the folder for files beside a SQLite store, for its owner only: pictures show rows."""
        if file := sqlite_file(self.uri):
            make_folder(file.parent / "mlruns")

    def _find_model(self, run_id: str) -> Any:
        query = f"name = '{MODEL_NAME}' AND source_run_id = '{run_id}'"
        found = self._client.search_logged_models([self._experiment_id], filter_string=query, max_results=1)
        return found[0] if found else None


def _check_quotable(what: str, text: str) -> None:
    """Raise UserError unless a text can stand in a search of MLflow."""
    # MLflow's search expressions have no escapes.
    if not text or set(text) & set("'\"`\\"):
        raise UserError(f"expected a {what} without quotes and backslashes, got {text!r}")


def _check_unchanged(old: Mapping[str, str], new: Mapping[str, str], run_key: str) -> None:
    """Raise UserError where a run that is taken up again has other params."""
    changed = [key for key in sorted(old.keys() & new.keys()) if old[key] != new[key]]
    if changed:
        said = "; ".join(f"{key}: {old[key]!r} -> {new[key]!r}" for key in changed)
        raise UserError(
            f"the run with key {run_key!r} was started with other params ({said}); "
            "restore them to resume it, or use another key for another federation"
        )


def numbers_of(
    final: Mapping[str, float | None] = _NOTHING,
    cost: Mapping[str, float | None] = _NOTHING,
    rounds: Iterable[Mapping[str, float | None]] = (),
) -> list[_Number]:
    """Return quality, cost and rounds as names `final/...`, `cost/...` and `round/...`, values and steps.

    None and values that are not finite are left out: MLflow keeps infinity as the largest float. The step of a round is its `round`.
    """
    parts = [("final", final, 0), ("cost", cost, 0)]
    parts += [("round", {**row, "round": None}, int(row["round"] or 0)) for row in rounds]
    return [
        (f"{prefix}/{name}", float(value), step)
        for prefix, values, step in parts
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def _open_experiment(client: Any, uri: str, name: str) -> str:
    """Return the id of an experiment, which is created when absent; one without a kind gets that of training runs.

    UserError for one that was deleted.
    """

    if (experiment := client.get_experiment_by_name(name)) is None:
        # A server knows where its files belong; for a local database MLflow would take the working directory.
        file = sqlite_file(uri)
        location = (file.parent / "mlruns" / quote(name, safe=" ")).as_uri() if file else None
        with apart_from("RESOURCE_ALREADY_EXISTS"):
            return str(client.create_experiment(name, artifact_location=location, tags={KIND_TAG: KIND}))
        experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage == "deleted":
        raise UserError(
            f"the MLflow experiment {name!r} was deleted; choose another name, or restore it with "
            f"`mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        )
    if KIND_TAG not in experiment.tags:
        client.set_experiment_tag(experiment.experiment_id, KIND_TAG, KIND)
    return str(experiment.experiment_id)


def pages_of(uri: str | None, name: str, port: int) -> dict[str, str]:
    """Return the addresses of an experiment's training runs and of its newest run, by what they show.

    Where there is no such experiment, the page of all is returned; `flareclust ui` starts the pages at this port.
    """
    store = resolve_uri(uri)
    client = connect(store)
    if client.get_experiment_by_name(name) is None:
        return {"experiments": f"http://127.0.0.1:{port}/#/experiments"}
    number = str(_open_experiment(client, store, name))
    newest = client.search_runs([number], order_by=["attributes.start_time DESC"], max_results=1)
    pages = {f"runs of {name}": runs_page(store, number, port)}
    return pages | ({"newest run": run_page(store, number, newest[0].info.run_id, port)} if newest else {})
