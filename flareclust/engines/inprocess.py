"""The reference engine: one loop over the sites, no processes; sweeps and tests run in it."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, Message, Reading, never_abort
from flareclust.core.threads import THREADS, allowed_threads
from flareclust.data.memory import site_limit
from flareclust.data.tables import Rows, Table
from flareclust.engines.options import JobOptions
from flareclust.engines.site_threads import computed
from flareclust.federation import FederationOptions, OnRound, run_federation
from flareclust.federation.checkpoint import CheckpointFile, about_job, check_resumable
from flareclust.federation.exchanges import Sampling
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.site import sender_of
from flareclust.privacy.enforcement import PolicyEnforcer
from flareclust.privacy.job_folder import RequestLog
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm, executors, name_of
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Answer, StepName, Task
from flareclust.sites.rows import SiteData

_log = logging.getLogger(__name__)

#: The name of an in-process job where a site writes down what it spends.
_JOB = "in-process"


def run_inprocess(
    algorithm: Algorithm,
    params: Mapping[str, object],
    sites: Mapping[str, Rows],
    options: JobOptions,
    on_round: OnRound = lambda record: None,
    reading: Reading = None,
    policy: Policy | None = None,
    checkpoint: CheckpointFile | None = None,
    sampling: Sampling | None = None,
    workers: int | None = None,
) -> Outcome:
    """Run a federation in this process.

    The rows of a site are an array (n_i, d) or the path of its file, which is read as the site would read it, by the
    names in `reading` if there are any. A `policy` holds at every site. With a `checkpoint` the state is kept there after
    each exchange, and it may go on from there. `sampling` says which sites each round has; None for all.
    Sites with large tables compute in so many threads, `workers`; None for as many as the process may use.

    An unexpected exception in an algorithm is raised as it is, unlike in the NVFlare engines, where it is the fault of
    one site: here it is what a developer wants to see.

    Raises:
        JobFailed: as `flareclust.federation.run_federation`.
        UserError: a setting is wrong, or the checkpoint is not one of this job.
    """
    executor, aggregator = algorithm.build(options.k, options.seed, params)
    if checkpoint is not None:
        check_resumable(algorithm.name, private=executor.private and checkpoint.resume)
        checkpoint = checkpoint.of(about_job(algorithm.name, aggregator, params, secure_sums=options.secure_sums))
    kept = None if executor.private else checkpoint
    options = options.among(list(sites))
    executor.hold_to(options.sums())
    executor.check_sites(list(sites))
    aggregator.check_sites(list(sites))
    own = None if policy is None else policy.among(list(sites))
    policed = {} if own is None else {site: SimulatedSite.of(own, algorithm) for site in sites}
    workers = workers or (allowed_threads() if os.environ.get(THREADS) else None)  # a wrong one is refused first
    asking = _Asking(executor, sites, reading, policed, workers)
    outcome = run_federation(
        aggregator,
        asking.ask,
        list(sites),
        FederationOptions.of(options),
        on_round=on_round,
        sampling=sampling,
        resume=None if kept is None else kept.begin(aggregator),
        on_checkpoint=None if kept is None else kept.keep,
    )
    outcome.labels.update(asking.labels)
    return outcome


class _Asking:
    """Carries tasks to the sites. Each site's file is read once, however many rounds ask for its rows."""

    def __init__(
        self,
        executor: ClusteringExecutor,
        sites: Mapping[str, Rows],
        reading: Reading,
        policed: Mapping[str, "SimulatedSite"],
        workers: int | None,
    ) -> None:
        self._executor, self._sites, self._policed, self._workers = executor, dict(sites), policed, workers
        self._reading = reading or (None, "has")
        self.labels: dict[str, IntArray] = {}

    def ask(self, step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        """Return the sites' replies, and keep the labels of their rows."""
        work = (self._work(Task(step, round_, arrays, site)) for site in asked)
        answers = computed(work, self._workers)
        return {site: self._reply(step, site, found) for site, found in zip(asked, answers, strict=True)}

    def _work(self, task: Task) -> tuple[int, Callable[[AbortCheck], Answer | str]]:
        """Return the size of a site's rows, and what answers for it."""
        try:
            rows = self._read(task.site)
        except (Refusal, BadMessage) as reason:
            problem = str(reason)
            return 0, lambda aborted: problem
        return (rows.X if isinstance(rows, Table) else rows).nbytes, partial(self._answer, task, rows)

    def _read(self, site: str) -> FloatArray | Table:
        rows = self._sites[site]
        if isinstance(rows, Path):
            columns, agreement = self._reading
            data = SiteData(rows, columns, agreement, memory=site_limit(len(self._sites)))
            rows = self._sites[site] = data.table(reader_owns_them=True, gaps=bool(self._executor.gaps))
        return rows

    def _answer(self, task: Task, rows: FloatArray | Table, aborted: AbortCheck) -> Answer | str:
        """Return what a site answers, or why it does not."""
        # Each site gets its own copy of the task, as it would over a network.
        own = Task(task.step, task.round, {name: value.copy() for name, value in task.arrays.items()}, task.site)
        try:
            return answered(self._executor, own, rows, self._policed.get(task.site), aborted)
        except (Refusal, BadMessage) as reason:
            return str(reason)

    def _reply(self, step: str, site: str, answer: Answer | str) -> SiteReply:
        """Return a site's reply, and keep the labels of its rows."""
        if isinstance(answer, str):
            return SiteReply(problem=answer)
        if step == StepName.ASSESS and answer.labels is not None:
            self.labels[site] = answer.labels
        if answer.unplaced is not None:
            _log.warning("%s: rows got no labels: %s", site, type(answer.unplaced).__name__)
        return SiteReply(answer.arrays)


@dataclass(frozen=True)
class SimulatedSite:
    """A simulated site with a policy: the job there, the enforcer that its messages pass, and the algorithm that it knows."""

    session: SiteSession
    enforcer: PolicyEnforcer
    name: str
    executor: type[ClusteringExecutor]

    @classmethod
    def of(cls, policy: Policy, algorithm: Algorithm) -> "SimulatedSite":
        """Return a site for a job of an algorithm, registered or not; what it spends is forgotten with the run."""
        executor = algorithm.executor_class()
        known = {**executors(), algorithm.name: executor}
        enforcer = PolicyEnforcer(policy, RequestLog(), known)
        if policy.dp is None or not executor.private:
            return cls(SiteSession(policy, _JOB), enforcer, algorithm.name, executor)
        from flareclust.privacy.dp.ledger import Ledger  # needs an optional package

        return cls(SiteSession(policy, _JOB, Ledger.in_memory()), enforcer, algorithm.name, executor)


def answered(
    executor: ClusteringExecutor,
    task: Task,
    rows: FloatArray | Table,
    site: SimulatedSite | None,
    aborted: AbortCheck = never_abort,
) -> Answer:
    """Return what a site answers, with what its policy lets out.

    Raises:
        Refusal: it cannot take part, or its policy is against it.
        BadMessage: as `ClusteringExecutor.answer`.
    """
    if site is None:
        return executor.answer(task, rows, aborted)
    request = site.enforcer.check_request(task.step, task.round, task.arrays)
    answer = executor.answer(task, rows, aborted, site.session)
    own = site.name if isinstance(executor, site.executor) else name_of(type(executor))
    name = sender_of(executor, task.step, own)
    stated = site.session.statement(name, private=executor.private)
    return replace(answer, arrays=site.enforcer.check_reply(request, answer.arrays, stated))
