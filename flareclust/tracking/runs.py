"""MLflow: one federation is one run, found again by its key.

Runs are addressed by explicit ids through MlflowClient. Nothing here touches MLflow's active run or its global
tracking address, so tasks in several threads and processes may log side by side. Every call may be repeated: a
retried task finds the same run and leaves no second copy of a metric, a model or a version.

MLflow is imported on first use, because that takes about a second.
"""

import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from flareclust._foundation.csv_text import write_rows
from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import make_folder
from flareclust._foundation.typing import FloatArray
from flareclust.tracking import model_registry
from flareclust.tracking.model_files import MODEL_NAME, column_names, save_model
from flareclust.tracking.note import NOTE_TAG, describe_failure
from flareclust.tracking.origin import DataOrigin, dataset_input
from flareclust.tracking.pages import KIND, KIND_TAG, run_page, runs_page
from flareclust.tracking.promotion import METRIC, Decision, check_alias, decide
from flareclust.tracking.store import connect, resolve_uri, sqlite_file

# MLflow's own limits, in characters. (Its client splits long lists into requests by itself.)
PARAM_LENGTH = 6000
TAG_LENGTH = 8000

RUN_KEY_TAG = "flareclust.run_key"
ERROR_TAG = "flareclust.error"


class Tracker:
    """Logs federations to one MLflow experiment.

    A SQLite store is created when absent, whole or not at all, and brought to the installed MLflow's schema; its
    files lie in the folder `mlruns` beside the database.

    Args:
        uri: Address of the store; None means MLFLOW_TRACKING_URI, else `_DEFAULT_URI`.
        experiment: Name of the experiment, created when absent.

    Raises:
        UserError: The store cannot be opened, or the experiment was deleted.
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

        Args:
            run_key: What makes this federation the same one when it is tried again.
            name: Shown in MLflow's lists.
            params: Logged as text, cut at MLflow's 6000 characters; those that are None are left out.
            tags: Logged as text, cut at MLflow's 8000 characters.

        Raises:
            UserError: The run has another value for one of the params, or the key holds a quote.
        """
        from mlflow.entities import Param, RunTag

        texts = {key: str(value)[:PARAM_LENGTH] for key, value in params.items() if value is not None}
        labels = {key: str(value)[:TAG_LENGTH] for key, value in (tags or {}).items()} | {RUN_KEY_TAG: run_key}
        if (run := self.find(run_key)) is not None:
            _check_unchanged(run.data.params, texts, run_key)
            self._client.update_run(run.info.run_id, status="RUNNING", name=name)
            for tag in {ERROR_TAG, NOTE_TAG} & run.data.tags.keys() if ERROR_TAG in run.data.tags else ():
                self._client.delete_tag(run.info.run_id, tag)
        else:
            # The key goes in with the run: a crash between two calls must not leave a run that nobody finds again.
            run = self._client.create_run(self._experiment_id, run_name=name, tags={RUN_KEY_TAG: run_key})
        run_id = str(run.info.run_id)
        self._client.log_batch(
            run_id,
            params=[Param(key, value) for key, value in texts.items()],
            tags=[RunTag(key, value) for key, value in labels.items()],
        )
        return run_id

    def find(self, run_key: str) -> Any:
        """Return MLflow's run with this key, the oldest of several; None if there is none. UserError for a key with a quote."""
        _check_quotable("run key", run_key)
        found = self._client.search_runs(
            [self._experiment_id],
            filter_string=f"tags.`{RUN_KEY_TAG}` = '{run_key}'",
            order_by=["attributes.start_time ASC"],
            max_results=1,
        )
        return found[0] if found else None

    def log_origin(self, run_id: str, origin: DataOrigin) -> None:
        """Log which data the run is about, by name and digest; a second time changes nothing."""
        self._client.log_inputs(run_id, datasets=[dataset_input(origin)])

    def log_rounds(self, run_id: str, rounds: Sequence[Mapping[str, float | None]], started_ms: int) -> None:
        """Log what each round reported, as metrics `round/<key>`.

        A step that a metric already has is left alone, so that rounds may be logged again. None and non-finite values are
        skipped: MLflow keeps infinity as the largest float.

        Args:
            run_id: The run.
            rounds: One mapping per round; its `round` is the step.
            started_ms: Start of the federation, milliseconds since 1970; round r is dated started_ms + r.

        Raises:
            UserError: A mapping has no `round`.
        """
        from mlflow.entities import Metric

        logged = self._client.get_run(run_id).data.metrics
        steps: dict[str, set[int]] = {}
        metrics = []
        for row in rounds:
            if (number := row.get("round")) is None:
                raise UserError(f"expected `round` in every mapping of rounds, got only {sorted(row)}")
            step = int(number)
            for key, value in finite("round", {key: row[key] for key in row if key != "round"}):
                if key not in steps:
                    history = self._client.get_metric_history(run_id, key) if key in logged else []
                    steps[key] = {metric.step for metric in history}
                if step not in steps[key]:
                    steps[key].add(step)
                    metrics.append(Metric(key, value, started_ms + step, step))
        self._client.log_batch(run_id, metrics)

    def log_result(
        self,
        run_id: str,
        *,
        final: Mapping[str, float | None],
        cost: Mapping[str, float | None],
        centroids: FloatArray,
        columns: Sequence[str] | None,
        files: Sequence[Path],
    ) -> None:
        """Log the outcome: metrics `final/*` and `cost/*`, centroids.npz, centroids.csv and the given files.

        Args:
            run_id: The run.
            final, cost: Quality of the clustering; seconds, bytes and the like. None and non-finite values are skipped.
            centroids: (k, d), in the data's unit.
            columns: d names for the header of centroids.csv; None means x0, x1, ...
            files: Files to keep with the run under their own names.

        Raises:
            UserError: The names do not match the centroids, a file is missing, or two files have one name.
        """
        names = column_names(centroids, columns)
        _check_files(files)
        self.log_metrics(run_id, dict([*finite("final", final), *finite("cost", cost)]))
        self._make_folder()
        with tempfile.TemporaryDirectory() as scratch:
            np.savez(Path(scratch, "centroids.npz"), centroids=centroids)
            with Path(scratch, "centroids.csv").open("w", newline="", encoding="utf-8") as stream:
                write_rows(stream, [names, *centroids.tolist()])
            self._client.log_artifacts(run_id, scratch)
        self.log_files(run_id, files)

    def log_metrics(self, run_id: str, values: Mapping[str, float]) -> None:
        """Log numbers of the whole run, those that it does not have already."""
        from mlflow.entities import Metric

        known = self._client.get_run(run_id).data.metrics
        now = time.time_ns() // 1_000_000
        new = [Metric(name, value, now, 0) for name, value in values.items() if known.get(name) != value]
        self._client.log_batch(run_id, new)

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

    def log_model(
        self,
        run_id: str,
        centroids: FloatArray,
        columns: Sequence[str] | None = None,
        **parts: Any,
    ) -> str:
        """Log a model whose `predict` gives the nearest centroid, and return its address `runs:/<run_id>/model`.

        Args:
            run_id: The run.
            centroids: (k, d), finite unless there are `gaps`.
            columns: d names, by which the model picks its columns; without, it takes tables of exactly d columns.
            parts: How rows are prepared and measured, see `flareclust.tracking.model_files.save_model`.

        Raises:
            UserError: The centroids are not finite, or the names do not match them.
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

    def register(self, run_id: str, model_name: str, alias: str | None = None) -> int:
        """Enter the run's model in the registry and return its version; a second call returns the same version.

        Args:
            run_id: A run with a model.
            model_name: Name in the registry, created when absent.
            alias: Moved to this version when given, so that `models:/<model_name>@<alias>` loads it.

        Raises:
            UserError: The run has no model.
        """
        _check_quotable("model name", model_name)
        if (model := self._find_model(run_id)) is None:
            raise UserError(f"run {run_id} has no model to register; call log_model first")
        version = model_registry.register(self._client, run_id, model, model_name)
        if alias is not None:
            self._client.set_registered_model_alias(model_name, alias, str(version))
        return version

    def offer_alias(self, model_name: str, version: int, alias: str, metric: str = METRIC) -> Decision:
        """Move the alias to this version if the rule gives it that, see `flareclust.tracking.promotion.decide`.

        What was decided, and why, is written to the version as the tag `flareclust.<alias>`.

        Raises:
            UserError: There is no such version, versions cannot be compared by this metric, or the alias is no name.
        """
        check_alias(alias)
        new = model_registry.version(self._client, model_name, version)
        decision = decide(new, model_registry.holder(self._client, model_name, alias), metric)
        if decision.takes_over:
            self._client.set_registered_model_alias(model_name, alias, str(version))
        self._client.set_model_version_tag(model_name, str(version), f"flareclust.{alias}", decision.reason)
        return decision

    def tag(self, run_id: str, key: str, value: object) -> None:
        """Set a tag of a run, as text."""
        self._client.set_tag(run_id, key, str(value)[:TAG_LENGTH])

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
    changed = [
        f"{key}: {old[key]!r} -> {new[key]!r}" for key in sorted(old.keys() & new.keys()) if old[key] != new[key]
    ]
    if changed:
        raise UserError(
            f"the run with key {run_key!r} was started with other params ({'; '.join(changed)}); "
            "restore them to resume it, or use another key for another federation"
        )


def _check_files(files: Sequence[Path]) -> None:
    """Raise UserError where a file is missing or two have one name, the centroids' files counted."""
    counts = Counter(["centroids.npz", "centroids.csv", *(file.name for file in files)])
    if doubles := [name for name, count in counts.items() if count > 1]:
        raise UserError(
            f"expected one file of each name in a run, got several called {', '.join(doubles)}; rename them"
        )
    if missing := [str(file) for file in files if not file.is_file()]:
        raise UserError(f"no such file to log: {', '.join(missing)}")


def finite(prefix: str, values: Mapping[str, float | None]) -> Iterator[tuple[str, float]]:
    """Yield `<prefix>/<name>` and value of all that are finite numbers."""
    for key, value in values.items():
        if value is not None and math.isfinite(value):
            yield f"{prefix}/{key}", float(value)


def _open_experiment(client: Any, uri: str, name: str) -> str:
    """Return the id of an experiment, which is created when absent; one without a kind gets that of training runs.

    Raises:
        UserError: the experiment was deleted.
    """
    from mlflow.exceptions import MlflowException

    if (experiment := client.get_experiment_by_name(name)) is None:
        # A server knows where its files belong; for a local database MLflow would take the working directory.
        file = sqlite_file(uri)
        location = (file.parent / "mlruns" / quote(name, safe=" ")).as_uri() if file else None
        try:
            return str(client.create_experiment(name, artifact_location=location, tags={KIND_TAG: KIND}))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was quicker
                raise
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

    Args:
        uri: address of the store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        name: of the experiment; where there is none, the page of all experiments is returned.
        port: of the pages that `flareclust ui` starts.
    """
    store = resolve_uri(uri)
    client = connect(store)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return {"experiments": f"http://127.0.0.1:{port}/#/experiments"}
    number = str(_open_experiment(client, store, name))
    newest = client.search_runs([number], order_by=["attributes.start_time DESC"], max_results=1)
    pages = {f"runs of {name}": runs_page(store, number, port)}
    return pages | ({"newest run": run_page(store, number, newest[0].info.run_id, port)} if newest else {})
