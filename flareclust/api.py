"""`flareclust.run`: one federated clustering from Python."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.own_files import reserved
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import check_path
from flareclust.evaluation import criteria, selection
from flareclust.experiment.config import Experiment, make_experiment, new_folder
from flareclust.experiment.prepare import in_memory, prepare
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.artifacts import check_out, check_resume
from flareclust.experiment.results.result import Result
from flareclust.experiment.submit import Kept
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import CHECKPOINT, CheckpointFile
from flareclust.flows.configured import server_configured
from flareclust.flows.run import carry_out
from flareclust.protocol import registry


class _Default(str):
    """A default that differs from the same word given by the caller."""


_DEFAULT_DATA = _Default("digits")

#: The engines that run on this machine, where their checkpoints are; with others the server has them.
LOCAL = ("inprocess", "simulator")

#: The arguments of `run` that are no fields of an experiment, or not as they are.
_OF_THE_CALL = ("data", "schema", "track", "out", "progress", "on_round", "resume")


def run(
    algorithm: str,
    data: str | Path | FloatArray | Mapping[str, Any] = _DEFAULT_DATA,
    k: int | str | range | tuple[int, int] | None = None,
    *,
    partition: str | None = None,
    n_sites: int | None = None,
    seed: int = 0,
    criterion: str = criteria.USUAL,
    engine: str = "inprocess",
    kit: str | Path | None = None,
    track: bool = False,
    out: str | Path | None = None,
    columns: Sequence[str] | None = None,
    schema: str | Path | None = None,
    id_column: str | None = None,
    truth: str | None = None,
    query: str | None = None,
    password: str | None = None,
    min_sites: int | None = None,
    expect_sites: Sequence[str] | None = None,
    wait_for: int | None = None,
    wait_seconds: int | None = None,
    task_timeout: int = 600,
    secure_sums: bool = False,
    policy: str | Path | Mapping[str, Any] | None = None,
    profile: bool | None = None,
    match_to: str | Path | Result | None = None,
    title: str | None = None,
    row_name: str = "rows",
    start_from: str | Path | Result | None = None,
    cohort: int | None = None,
    dropout: float = 0.0,
    progress: bool = False,
    on_round: OnRound | None = None,
    resume: str | Path | None = None,
    **params: object,
) -> Result:
    """Cluster data that are spread over sites.

    Args:
        algorithm: a name from `flareclust.algorithms()`, e.g. "feca".
        data: a data set's name, a table file, an array or data frame (n, d), or a mapping from site names to such tables
            (n_i, d), files or what `read_table` returns, or `flareclust.Devices`; a mapping is not partitioned. By default "digits", and what the sites have where there are real ones.
        k: number of clusters, or a range such as "5..25", (5, 25) or range(5, 26) to select from; may be left out for data sets whose number
            is known.
        partition: how the rows are assigned to sites: "iid", "dirichlet:0.3", ...; see `flareclust.data.partition`. By default "iid".
        n_sites: number of sites, by default 10.
        seed: of the partition and of the job.
        criterion: how one k of a range is selected: "calinski-harabasz", "silhouette", "davies-bouldin", "elbow" or "separation";
            of `gmm` also "bic", which is its default, or "icl".
        engine: "inprocess", "devices" (for many small sites), "simulator", "poc" or "production"; the last two run on sites that are there already.
        kit: for "production" the kit of the admin who submits the job, for "poc" its folder.
        track: whether to log an MLflow run; NVFlare engines then go through the Prefect flow, where a Prefect server is set.
        out: folder for the result's files, in the place of an older result; None for none (tracked runs then use
            `flareclust-runs/...`).
        columns: names of the columns to use, of data in files; None for all. Files of sites are read by name, whatever
            the order of their columns.
        schema: file with the schema by which files and data frames are read, or were read by `read_table`; None for tables of
            numbers.
        id_column: name of the column with ids, where no schema says it; no feature.
        truth: name of the column with known classes, to compare the clusters with; no feature.
        query: with a database as data ("sql+sqlite:///FILE", or as SQLAlchemy has it behind "sql+"), the SELECT that gives the rows, or
            the file NAME.sql that has it.
        password: where the password of that database is, "env:NAME" or "file:PATH"; None where none is needed.
        min_sites: quorum of a round; None for more than half of the sites.
        expect_sites: for "production", names of the sites that should take part; the result names those that were not connected. None
            for those of your last jobs of this kind.
        wait_for: so many connected sites end the wait of `wait_seconds`; None for all that are expected.
        wait_seconds: for "production", how long to wait for sites before the job is submitted; None for no wait.
        task_timeout: seconds a site has for one task.
        secure_sums: whether sites send sums masked, so that the server learns their total only.
        policy: what simulated sites let out, a file or a mapping; see `flareclust.privacy.policy`.
        profile: whether the clusters are described, see `Result.profiles`; None for where the columns have names and are at most 60.
        match_to: earlier result under whose numbers the clusters are kept: itself, its folder, "runs:/<run id>" or
            "models:/<name>@<alias>"; see `Result.match_to`.
        title: of the report, and of the run's page in MLflow.
        row_name: what the report calls rows, in the plural, such as "patients".
        start_from: earlier result from whose centroids the run starts, named in the same way; for algorithms whose `start` may be
            centroids, with the k, the columns and the scale of that result.
        cohort: how many sites are drawn for each round, with the engines "inprocess" and "devices"; None for all.
        dropout: probability that a site of these engines drops out of a round.
        progress: whether to show rounds and sites while the job runs, in a notebook or on a terminal.
        on_round: called with a record per exchange while the job runs; not together with `progress`.
        resume: folder (`out`) of an interrupted run with the same settings to go on from; for "poc" and "production" the id of
            its job. The result is that of a run without the interruption.
        **params: the algorithm's own settings, e.g. n_init=10.

    Raises:
        UserError: the request cannot be carried out as stated.
        JobFailed: the federation did not reach a result; the text names the sites and their reasons.

    Example:
        >>> import flareclust
        >>> result = flareclust.run("feca", data="iris", k=3, n_sites=3)
        >>> result.centroids.shape
        (3, 4)
    """
    asked = {name: value for name, value in locals().items() if name not in _OF_THE_CALL}
    if progress and on_round is not None:
        raise UserError("progress and on_round both follow the rounds; leave out one of them")
    if isinstance(data, Mapping):
        asked["partition"], asked["n_sites"] = _of_named_sites(data, partition, n_sites)
    ranged = isinstance(k, str | range | tuple) and selection.parse_k(k)[1] is not None
    if not ranged and criterion != criteria.USUAL and "criterion" in registry.get(algorithm).parameters():
        params["criterion"] = criterion  # the algorithm selects k by itself
    if data is not _DEFAULT_DATA:
        asked["data"] = str(data) if isinstance(data, str | Path) else "own data"
    if schema is not None:
        asked["table_schema"] = str(check_path("schema", schema).absolute())
    asked["match_to"], asked["start_from"] = _saved_at(match_to), _start_at(start_from)
    unsaved = match_to if isinstance(match_to, Result) and asked["match_to"] is None else None
    experiment = make_experiment(**asked)
    loaded = None if isinstance(data, str | Path) else prepare(experiment, in_memory(experiment.rows, data))
    follow: AbstractContextManager[OnRound] = nullcontext(on_round or (lambda record: None))
    if progress or hasattr(sys, "ps1"):  # which interactive interpreters have, notebooks too
        from flareclust.experiment.reports import terminal

        if progress:
            follow = terminal.progress(experiment)
        else:
            terminal.compile_if_first()
    folder, again = None if out is None else Path(out), None if resume is None else str(resume)
    with follow as show:
        return run_experiment(
            experiment, loaded, track=track, out=folder, on_round=show, resume=again, match_to=unsaved
        )


def _saved_at(earlier: str | Path | Result | None) -> str | Path | None:
    """Return the name of an earlier result, of one in memory the folder where it is saved; None for one that is in memory alone."""
    if not isinstance(earlier, Result):
        return earlier
    return None if earlier.centroids_file is None else Path(earlier.centroids_file).parent


def _start_at(earlier: str | Path | Result | None) -> str | Path | None:
    """Return the name of the result that a run starts from; UserError for one that is in memory alone."""
    if isinstance(earlier, Result) and earlier.centroids_file is None:
        raise UserError(
            "start_from: the result is in no folder; save it first (result.save(folder)), or give its centroids: "
            "start=result.centroids.tolist()"
        )
    return _saved_at(earlier)


def _of_named_sites(data: Mapping[str, Any], partition: str | None, n_sites: int | None) -> tuple[str, int]:
    """Return partition and number of sites of rows by site; raise UserError where something else was asked for."""
    if not data:
        raise UserError("no sites: expected a mapping of site names to rows")
    if n_sites not in (None, len(data)):
        raise UserError(f"n_sites is {n_sites}, and data has {len(data)} sites by name; leave n_sites out")
    if partition not in (None, "none"):
        raise UserError(
            f"partition is {partition!r}, and data has the rows of each site; leave it out, or pass one table"
        )
    return "none", len(data)


def run_experiment(
    experiment: Experiment,
    prepared: Prepared | None = None,
    *,
    track: bool,
    out: Path | None,
    on_round: OnRound = lambda record: None,
    resume: str | None = None,
    match_to: Result | None = None,
) -> Result:
    """Run an experiment where it belongs: through the flow (tracked, NVFlare, a Prefect server), or by plain function calls.

    Args:
        experiment, prepared, track, on_round: as of `carry_out`.
        out: folder for the files; None for none, or a folder of its own for tracked runs.
        resume: the folder of an interrupted run, or the id of its job, to go on from.
        match_to: the earlier result whose numbers the clusters get, where it is in no folder.
    """
    if resume is not None and experiment.engine in LOCAL:
        folder = Path(resume)
        if out is not None and out.absolute() != folder.absolute():
            raise UserError(f"a run goes on in its own folder, {folder}; leave out --out (out=)")
        check_resume(folder)
        out = folder
    if track:
        require("tracking", "an MLflow run (track=True; --no-track leaves it out)")
    if track and out is None:
        out = new_folder(experiment)
    kept: Kept = resume
    if experiment.engine in LOCAL:
        kept = None if out is None else CheckpointFile(out / CHECKPOINT, resume is not None)
    if out is not None:
        check_out(out, resume=resume is not None)
    if track and experiment.engine != "inprocess" and server_configured():
        from flareclust.flows.experiment import run_flow

        assert out is not None
        return run_flow(experiment, prepared, out, on_round, kept, match_to)
    with reserved(out):
        return carry_out(experiment, prepared, out, on_round, kept, track=track, match_to=match_to)
