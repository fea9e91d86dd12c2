"""Run an experiment's federation in its engine; with a range of k, first the one that chooses k."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require_part
from flareclust.data.digest import digest_of
from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.data.memory import check_fits
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import ExpectedSites, JobOptions, RunSettings
from flareclust.engines.pooled import run_pooled
from flareclust.evaluation import selection as choice
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared, check_directions, tables_of
from flareclust.experiment.results.evaluate import with_round_metrics
from flareclust.experiment.results.profiled import is_profiled
from flareclust.federation import OnRound
from flareclust.federation.checkpoint import CheckpointFile
from flareclust.federation.exchanges import Sampling
from flareclust.preparation import settings
from flareclust.privacy.dp import server as dp_server
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome

_log = logging.getLogger(__name__)

#: The file of a run's checkpoint, the id of the interrupted job to go on from, or neither.
Kept = CheckpointFile | str | None


def submit(
    experiment: Experiment,
    prepared: Prepared,
    on_round: OnRound = lambda record: None,
    token: str | None = None,
    kept: Kept = None,
) -> Outcome:
    """Run the federation in the experiment's engine; with a range of k, first the one that chooses.

    Args:
        experiment, prepared: what was asked, and what it runs on.
        on_round: gets a record per exchange.
        token: of this experiment, the same when it is tried again; a provisioned federation then finds its job.
        kept: the checkpoint of this run. On provisioned sites it stays at the server; there, the interrupted job to go on from.

    Raises:
        JobFailed: it started and did not reach a result.
        UserError: a setting is wrong.
    """
    submission = _Submission(experiment, prepared, on_round, token, kept)
    submission.check()
    return submission.run()


@dataclass(frozen=True)
class _Submission:
    """An experiment on its way to its engine; the attributes are the arguments of `submit`."""

    experiment: Experiment
    prepared: Prepared
    on_round: OnRound
    token: str | None
    kept: Kept

    def check(self) -> None:
        """Raise UserError where the sites do not fit the settings; warn where noise would cover all clusters."""
        asked, prepared = self.experiment, self.prepared
        if prepared.sites:
            asked.check_enough(len(prepared.sites))
        if asked.protects_ids and prepared.sites and asked.engine in ("inprocess", "simulator"):
            _check_ids(prepared, secure_sums=asked.secure_sums)
        if trouble := self._noise_beforehand():
            _log.warning("%s", trouble)
        if self._params.get("metric") == settings.COSINE and asked.policy is None:
            check_directions(prepared)

    def run(self) -> Outcome:
        """Run the algorithm with its k, or with the one that is chosen first."""
        asked, params, k = self.experiment, self._params, self.prepared.k
        if asked.k_range is None:
            return with_round_metrics(self._job(asked.algorithm, params, k), self.prepared)
        own = choice.own_settings(
            asked.algorithm, asked.k_range, asked.criterion, params, secure_sums=asked.secure_sums
        )
        if own is not None and asked.algorithm != choice.CHOOSER:
            return with_round_metrics(self._job(asked.algorithm, {**params, **own}, k), self.prepared)
        if asked.policy is None and (shapes := self._shapes()):
            choice.check_sizes(asked.k_range, asked.criterion, shapes)
        if own is not None:
            return self._job(asked.algorithm, {**params, **own}, k)
        choosing = choice.settings(asked.k_range, asked.criterion, params)
        chosen = self._job(choice.CHOOSER, choosing, k, first=True)
        k = choice.chosen_k(chosen.arrays) or k
        # The first has waited for both.
        after = replace(self, experiment=asked.model_copy(update={"wait_seconds": None}))
        return choice.joined(chosen, with_round_metrics(after._job(asked.algorithm, params, k), self.prepared))

    @property
    def _params(self) -> dict[str, Any]:
        """Return the algorithm's settings, with those that follow from the data."""
        return {**self.prepared.params, **self.experiment.params}

    def _noise_beforehand(self) -> str:
        """Return what to know of a private job before it spends anything: how many rows it needs, where they are known to be fewer."""
        asked, shapes, algorithm = self.experiment, self._shapes(), registry.get(self.experiment.algorithm)
        if not (algorithm.federated and shapes and "epsilon" in algorithm.parameters()):
            return ""
        aggregator = algorithm.build(self.prepared.k, asked.seed, self._params)[1]
        params = aggregator.params
        if not isinstance(params, PrivateParams):
            return ""
        aggregator = aggregator.secured() if asked.secure_sums else aggregator
        d, m = shapes[0][1], len(shapes)
        n = sum(n for n, _ in shapes)
        if asked.protects_ids:  # so many rows of each id are used
            tables = [rows for rows in self.prepared.sites.values() if isinstance(rows, Table)]
            n = sum(int(own.ids.first(params.rows_per_id).sum()) for own in tables if own.ids is not None)
        needed = aggregator.rows_needed(d, m)
        if n >= needed:
            return ""
        share, k = n / needed, self.prepared.k
        helps = [f"epsilon={dp_server.epsilon_for(params, 1 / share):.2g}"]
        helps += [f"k={int(k * share)}"] if k * share >= 2 else []
        shares_noise = any(step.maskable for step in aggregator.executor.steps.values())
        helps += ["secure_sums"] if not asked.secure_sums and shares_noise and m >= LEAST_SITES else []
        return (
            f"with k={k}, {d} columns, {m} sites and epsilon={params.epsilon:g} clusters stand out "
            f"of the noise from about {needed} rows in all, and there are {n}; what helps: {', or '.join(helps)}"
        )

    def _shapes(self) -> list[tuple[int, int]]:
        """Return rows and columns of every site; nothing where some are in files or with the sites themselves."""
        sites = self.prepared.sites.values()
        arrays = [rows.X if isinstance(rows, Table) else rows for rows in sites if not isinstance(rows, Path)]
        return [(rows.shape[0], rows.shape[1]) for rows in arrays] if len(arrays) == len(sites) else []

    def _checkpoint(self) -> CheckpointFile | None:
        """Return where the state is kept, with what runs must agree in that go on from each other, beside the settings of the
        job: whose rows, and how they are seen.
        """
        if not isinstance(self.kept, CheckpointFile):
            return None
        agreed = {"data", "partition", "n_sites", "columns", "policy", "cohort", "dropout"}
        sites = dict(sorted(self.prepared.sites.items()))
        rows = digest_of(" ".join(sites), list(sites.values()))
        return self.kept.of({**self.experiment.model_dump(mode="json", include=agreed), "rows": rows})

    def _job(self, name: str, params: Mapping[str, Any], k: int, *, first: bool = False) -> Outcome:
        """Run an algorithm in the engine; `first` is one that others follow, which is not assessed or resumed."""
        asked, prepared, algorithm = self.experiment, self.prepared, registry.get(name)
        shared = {name: getattr(asked, name) for name in RunSettings.model_fields}
        deadline = max(JobOptions.model_fields["deadline"].default, 3 * asked.task_timeout)
        profile = not first and is_profiled(asked, prepared)
        outcomes = None if first else prepared.outcomes
        options = JobOptions(k=k, assess=not first, profile=profile, outcomes=outcomes, deadline=deadline, **shared)
        options.check_outcomes(params, outcomes)
        file = None if first else self._checkpoint()
        if not algorithm.federated:
            if file is not None and file.resume:
                raise UserError(f"{name} is not federated and has no exchanges to resume; run it anew")
            tables = tables_of(prepared)
            check_fits(sum(table.X.nbytes for table in tables.values()), "the table of all sites")
            return run_pooled(algorithm, params, tables, options, prepared.index)
        policy = None if asked.policy is None else Policy.of(asked.policy)
        sampling = Sampling(asked.cohort, asked.dropout, asked.seed) if asked.samples else None
        here = algorithm, params, prepared.sites, options
        if asked.engine == "inprocess":
            return run_inprocess(*here, self.on_round, prepared.reading, policy, file, sampling)
        if asked.engine == "devices":
            if not first and self.kept is not None:
                raise UserError("runs of the engine devices keep no checkpoint to resume from; run it anew")
            assert prepared.devices is not None
            require_part("devices", "the engine devices")
            from flareclust.devices.engine import run_devices

            return run_devices(algorithm, params, prepared.devices, options, self.on_round, sampling)
        if asked.engine in ("poc", "production"):
            token = None if self.token is None else f"{self.token}-{name}-{k}"
            resume = self.kept if isinstance(self.kept, str) and not first else None
            return self._remote_job(algorithm, params, options, token=token, resume=resume)
        # Imported here: psutil and NVFlare's job classes are not needed in-process.
        from flareclust.platform.scratch import scratch_folder
        from flareclust.platform.simulator import run_simulator

        with scratch_folder() as scratch:
            return run_simulator(*here, Path(scratch), self.on_round, prepared.reading, policy, file)

    def _remote_job(
        self, algorithm: registry.Algorithm, params: Mapping[str, Any], options: JobOptions, **job: str | None
    ) -> Outcome:
        """Run a job on sites that are there already; those of a POC are ours, and their labels may be read."""
        from flareclust.platform.provisioned import run_production

        if (asked := self.experiment).engine == "production":
            return run_production(
                algorithm, params, options, Path(asked.kit or ""), self.on_round, expected=asked, **job
            )
        from flareclust.platform.poc import federation as poc

        federation = poc.find(Path(asked.kit or poc.DEFAULT))
        options, kit = options.among(list(federation.sites)), federation.admin_kit
        expected = ExpectedSites(expect_sites=federation.sites)
        outcome = run_production(algorithm, params, options, kit, self.on_round, expected=expected, **job)
        for site, own in federation.kits.items():
            if (own / outcome.job / LABELS_FILE).exists():
                outcome.labels[site] = read_labels(own / outcome.job)
        return outcome


def _check_ids(prepared: Prepared, *, secure_sums: bool) -> None:
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
        _log.warning(
            "ids have rows at several sites, and each site protects those that it has; what they reveal together adds up over these "
            "sites. Assign whole ids to sites to simulate one site for each id"
        )
