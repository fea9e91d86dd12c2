"""Run an experiment's federation in its engine; with a range of k, first the one that chooses k."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.aggregators.dp_base import PrivateAggregator
from flareclust.data.digest import digest_of
from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.data.memory import check_fits
from flareclust.data.tables import Table
from flareclust.engines.devices import run_devices
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions, RunSettings
from flareclust.engines.pooled import run_pooled
from flareclust.evaluation import selection as choice
from flareclust.executors.parameters import COSINE
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared, check_directions, tables_of
from flareclust.experiment.results.evaluate import with_round_metrics
from flareclust.experiment.results.profiled import is_profiled
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import CheckpointFile
from flareclust.federation.exchanges import Sampling
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome

log = logging.getLogger(__name__)

#: The file of a run's checkpoint, the id of the interrupted job to go on from, or neither.
Kept = CheckpointFile | str | None

#: Why a site of a POC is missing that had no part in the job at all.
OFF = "was not connected when the job began; see flareclust poc status"


def submit(
    experiment: Experiment,
    prepared: Prepared,
    on_round: OnRound = lambda record: None,
    token: str | None = None,
    kept: Kept = None,
) -> Outcome:
    """Run the federation in the experiment's engine; with a range of k, first the one that chooses.

    Args:
        experiment: what was asked.
        prepared: what it runs on.
        on_round: gets a record per exchange.
        token: of this experiment, the same when it is tried again; a provisioned federation then finds its job.
        kept: the checkpoint of this run. On provisioned sites it stays at the server; there, the interrupted job to go on from.

    Raises:
        JobFailed: it started and did not reach a result.
        UserError: a setting is wrong.
    """
    if prepared.sites:
        experiment.check_enough(len(prepared.sites))
    if experiment.protects_ids and prepared.sites and experiment.engine in ("inprocess", "simulator"):
        check_ids(prepared, secure_sums=experiment.secure_sums)
    if trouble := noise_beforehand(experiment, prepared):
        log.warning("%s", trouble)
    if isinstance(kept, CheckpointFile):
        kept = kept.of(_rows_of(experiment, prepared))
    return _chosen_and_run(experiment, prepared, on_round, token, kept)


def submit_again(
    experiment: Experiment, prepared: Prepared, on_round: OnRound, token: str, kept: Kept = None
) -> Outcome:
    """Do as `submit` does, and start the job again where it ended for a reason outside of it: `experiment.retries` times."""
    for _ in range(experiment.retries):
        try:
            return submit(experiment, prepared, on_round, token, kept)
        except JobFailed as error:
            if not error.transient:
                raise
            log.warning("the job is started again: %s", error)
    return submit(experiment, prepared, on_round, token, kept)


def check_ids(prepared: Prepared, *, secure_sums: bool) -> None:
    """Raise UserError unless all rows have ids; warn where rows of one id are at several sites, refuse it with secure sums."""
    tables = [rows for rows in prepared.sites.values() if isinstance(rows, Table)]
    owners = [set(table.ids) for table in tables if table.ids is not None]
    if len(owners) < len(prepared.sites):
        raise UserError(
            "unit=id protects ids, and the rows have none; name their column (--id NAME, or id_column=), or give a schema with a "
            "column of type id (--schema FILE, or schema=)"
        )
    if len(set[str]().union(*owners)) < sum(map(len, owners)):
        if secure_sums:  # all its parts are in one total, which has the noise for one of them
            raise UserError(
                "ids have rows at several sites; with secure sums the noise covers ids that are at one site only. Assign whole ids "
                "to sites, or leave out secure_sums"
            )
        log.warning(
            "ids have rows at several sites, and each site protects those that it has; what they reveal together adds up over these "
            "sites. Assign whole ids to sites to simulate one site for each id"
        )


def noise_beforehand(experiment: Experiment, prepared: Prepared) -> str:
    """Return what to know of a private job before it spends anything: how many rows it needs, where they are known to be fewer."""
    shapes, algorithm = _shapes(prepared), registry.get(experiment.algorithm)
    if not (algorithm.federated and shapes and "epsilon" in algorithm.parameters()):
        return ""
    aggregator = algorithm.build(prepared.k, experiment.seed, {**prepared.params, **experiment.params})[1]
    if not isinstance(aggregator, PrivateAggregator):
        return ""
    aggregator = aggregator.secured() if experiment.secure_sums else aggregator
    d, m = shapes[0][1], len(shapes)
    n = _rows_used(prepared, aggregator.params.rows_per_id) if experiment.protects_ids else sum(n for n, _ in shapes)
    needed = aggregator.rows_needed(d, m)
    if n >= needed:
        return ""
    share = n / needed
    helps = [f"epsilon={aggregator.epsilon_for(1 / share):.2g}"]
    helps += [f"k={int(prepared.k * share)}"] if prepared.k * share >= 2 else []
    helps += ["secure_sums"] if not experiment.secure_sums and aggregator.shares_noise and m >= LEAST_SITES else []
    return (
        f"with k={prepared.k}, {d} columns, {m} sites and epsilon={aggregator.params.epsilon:g} clusters stand out "
        f"of the noise from about {needed} rows in all, and there are {n}; what helps: {', or '.join(helps)}"
    )


def _rows_used(prepared: Prepared, per_id: int) -> int:
    """Return over how many rows the sums are, where so many rows of each id are used."""
    tables = [rows for rows in prepared.sites.values() if isinstance(rows, Table)]
    return sum(int(table.ids.first(per_id).sum()) for table in tables if table.ids is not None)


def _rows_of(experiment: Experiment, prepared: Prepared) -> dict[str, object]:
    """Return what runs must agree in that go on from each other, beside the settings of the job: whose rows, and how they are seen."""
    about = experiment.model_dump(
        mode="json", include={"data", "partition", "n_sites", "columns", "policy", "cohort", "dropout"}
    )
    sites = sorted(prepared.sites)
    return {**about, "rows": digest_of(" ".join(sites), [prepared.sites[site] for site in sites])}


def _shapes(prepared: Prepared) -> list[tuple[int, int]]:
    """Return rows and columns of every site; nothing where some are in files or with the sites themselves."""
    shapes = []
    for rows in prepared.sites.values():
        if isinstance(rows, Path):
            return []
        n, d = (rows.X if isinstance(rows, Table) else rows).shape
        shapes.append((n, d))
    return shapes


def _chosen_and_run(
    experiment: Experiment, prepared: Prepared, on_round: OnRound, token: str | None, kept: Kept
) -> Outcome:
    """Run the algorithm with its k, or with the one that is chosen first."""
    params, k = prepared.settled(experiment.params)["params"], prepared.k
    if params.get("metric") == COSINE and experiment.policy is None:
        check_directions(prepared)

    def run(name: str, params: Mapping[str, Any], k: int, *, assess: bool = True, kept: Kept = kept) -> Outcome:
        own = None if token is None else f"{token}-{name}-{k}"
        profile = assess and is_profiled(experiment, prepared)
        options = _options(experiment, k, assess=assess, profile=profile)
        return _run(experiment, prepared, name, params, options, on_round, own, kept)

    if experiment.k_range is None:
        return with_round_metrics(run(experiment.algorithm, params, k), prepared)
    if experiment.policy is None and (shapes := _shapes(prepared)):
        choice.check_sizes(experiment.k_range, experiment.criterion, shapes)
    choosing = choice.settings(experiment.k_range, experiment.criterion, params)
    if experiment.algorithm == choice.CHOOSER:
        return run(choice.CHOOSER, {**params, **choosing}, k)
    chosen = run(choice.CHOOSER, choosing, k, assess=False, kept=None)
    k = choice.chosen_k(chosen.arrays) or k
    return choice.joined(chosen, with_round_metrics(run(experiment.algorithm, params, k), prepared))


def _options(experiment: Experiment, k: int, *, assess: bool, profile: bool) -> JobOptions:
    shared = {name: getattr(experiment, name) for name in RunSettings.model_fields}
    usual = JobOptions.model_fields["deadline"].default
    return JobOptions(k=k, assess=assess, profile=profile, deadline=max(usual, 3 * experiment.task_timeout), **shared)


def _run(
    experiment: Experiment,
    prepared: Prepared,
    name: str,
    params: Mapping[str, Any],
    options: JobOptions,
    on_round: OnRound,
    token: str | None,
    kept: Kept,
) -> Outcome:
    algorithm = registry.get(name)
    policy = None if experiment.policy is None else Policy.of(experiment.policy)
    file = kept if isinstance(kept, CheckpointFile) else None
    if not algorithm.federated:
        if file is not None and file.resume:
            raise UserError(f"{name} is not federated and has no exchanges to resume; run it anew")
        tables = tables_of(prepared)
        check_fits(sum(table.X.nbytes for table in tables.values()), "the table of all sites")
        return run_pooled(algorithm, params, tables, options, prepared.index)
    sampling = Sampling(experiment.cohort, experiment.dropout, experiment.seed) if experiment.samples else None
    if experiment.engine == "inprocess":
        return run_inprocess(
            algorithm, params, prepared.sites, options, on_round, prepared.reading, policy, file, sampling
        )
    if experiment.engine == "devices":
        if kept is not None:
            raise UserError("runs of the engine devices keep no checkpoint to resume from; run it anew")
        assert prepared.devices is not None
        return run_devices(algorithm, params, prepared.devices, options, on_round, sampling)
    if experiment.engine in ("poc", "production"):
        resume = kept if isinstance(kept, str) else None
        return _run_remote(experiment, algorithm, params, options, on_round, token, resume)
    # Imported here: psutil and NVFlare's job classes are not needed in-process.
    from flareclust.engines.scratch import scratch_folder
    from flareclust.engines.simulator import run_simulator

    with scratch_folder() as scratch:
        return run_simulator(
            algorithm, params, prepared.sites, options, Path(scratch), on_round, prepared.reading, policy, file
        )


def _run_remote(
    experiment: Experiment,
    algorithm: registry.Algorithm,
    params: Mapping[str, Any],
    options: JobOptions,
    on_round: OnRound,
    token: str | None,
    resume: str | None,
) -> Outcome:
    """Run the job on sites that are there already; those of a POC are ours, and their labels may be read."""
    from flareclust.engines.provisioned import run_production

    if experiment.engine == "production":
        return run_production(
            algorithm, params, options, Path(experiment.kit or ""), on_round, token=token, resume=resume
        )
    from flareclust.engines.poc import federation as poc

    federation = poc.find(Path(experiment.kit or poc.DEFAULT))
    options = options.among(list(federation.sites))
    outcome = run_production(algorithm, params, options, federation.admin_kit, on_round, token=token, resume=resume)
    off = {site: OFF for site in federation.sites if site not in outcome.sites}
    outcome = replace(outcome, sites=sorted({*outcome.sites, *off}), refused=off | dict(outcome.refused))
    for site, own in federation.kits.items():
        if (own / outcome.job / LABELS_FILE).exists():
            outcome.labels[site] = read_labels(own / outcome.job)
    return outcome
