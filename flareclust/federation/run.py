"""The run of a federation, the same in every engine: rounds, quorum, assessment.

An engine supplies `ask`, which carries a task to sites and brings their answers; this module decides everything else.

Rules:
- All sites are asked. Those that refuse, fail, send a bad reply or do not answer in time are left out of the following
  clustering rounds and named in the result.
- A round needs the quorum `min_sites`; unless set, more than half of all sites. Below it the job fails with every
  reason in one message, unless it interrupts a refinement: then the result is the best solution so far
  (`ClusteringAggregator.so_far`), with a warning.
- A round may ask some of the sites only (`Round.sites`). It needs as many of them as is their share of the quorum; the others
  get nothing, and stay in the job.
- Where sites disagree about the number of columns, the number that most of them have counts.
- A site that was lost, with its process, its machine or its network, is not waited for; what it misses it does not get later.
- The assessment asks every site that could still answer, and never makes a job fail. Nor do profiles of the clusters, and their outcomes.

With secure sums (docs/secure-sums.md) all sites are asked for a key first. Where a step's replies are sums, sites mask them,
and their total takes the place of their replies. From the first of these sums on the sites are the same until the end. If one
drops out during the clustering, the job fails; during a refinement the result is the best solution so far; during the
assessment there are no metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust._foundation.typing import IntArray, Message
from flareclust.core.outcomes import OutcomeForm
from flareclust.evaluation.batch_effects import batch_effects, outlying_clusters, tiny_clusters
from flareclust.federation.checkpoint import Checkpoint, OnCheckpoint
from flareclust.federation.exchanges import Ask, ExchangeRequest, Exchanges, OnRound, Sampling, SecureExchanges
from flareclust.federation.outcome_exchanges import LATEST, outcomes_of_clusters
from flareclust.federation.profile_exchanges import describe_clusters
from flareclust.federation.rows_read import READ, reading_steps
from flareclust.federation.server import ServerJob
from flareclust.preparation.settings import TrimParams
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.protocol import cluster_arrays as keys
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round

if TYPE_CHECKING:
    from flareclust.federation.aggregator import ClusteringAggregator


def quorum(m: int, min_sites: int | None) -> int:
    """Return how many of m sites a round needs: `min_sites`, or more than half of them."""
    return m // 2 + 1 if min_sites is None else min_sites


@dataclass(frozen=True)
class FederationOptions:
    """Settings of a federation that every algorithm has.

    Attributes:
        min_sites: quorum of a round; None for more than half of the sites.
        assess: whether to ask for the label-free metrics and let the sites write their labels.
        profile: whether to ask for what describes the clusters after that, where the algorithm has it.
        outcomes: the form of the outcomes to ask for at the end (`OutcomeForm.numbers`); None for none.
        secure_sums: whether sites send sums masked, so that only their total is known here.
        secure_min_sites: these sums are of at least so many sites, which hold the server to it; None for three.
    """

    min_sites: int | None = None
    assess: bool = True
    profile: bool = False
    outcomes: tuple[float, ...] | None = None
    secure_sums: bool = False
    secure_min_sites: int | None = None

    @classmethod
    def of(cls, settings: object) -> "FederationOptions":
        """Return these settings of a job, which are attributes of the same names."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})


#: The default settings.
_USUAL = FederationOptions()


def run_federation(
    aggregator: "ClusteringAggregator",
    ask: Ask,
    sites: Sequence[str],
    options: FederationOptions = _USUAL,
    *,
    on_round: OnRound = lambda record: None,
    resume: Checkpoint | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    exchanging: Callable[[Ask, list[str], int, OnRound], Exchanges] = Exchanges,
    sampling: Sampling | None = None,
) -> Outcome:
    """Run clustering rounds until the aggregator is done, then the assessment.

    Args:
        aggregator: the algorithm's server side.
        ask: how this engine reaches the sites.
        sites: names of all sites of the job.
        options: quorum, what follows the rounds, and secure sums.
        on_round: gets a record per exchange; of a resumed run first those before the interruption.
        resume: the state to go on from; None to begin.
        on_checkpoint: gets the state after each exchange but the assessment, with which another run can go on; None where
            nobody keeps it.
        exchanging: makes the exchanges of a run without secure sums.
        sampling: which sites each round has, in a run without secure sums; None for all. The assessment asks all of them.

    Raises:
        UserError: secure sums with fewer than three sites, or with settings that need single sites' sums.
        JobFailed: a round stayed below its quorum, or no centroid could be found.
    """
    needed = quorum(len(sites if resume is None else resume.progress.sites), options.min_sites)
    exchanges, job = exchanging(ask, sorted(sites), needed, on_round), ServerJob(aggregator, secure=options.secure_sums)
    if options.secure_sums:
        minimum = options.secure_min_sites or LEAST_SITES
        exchanges = SecureExchanges(ask, exchanges.sites, exchanges.needed, on_round, minimum)
    else:
        exchanges.sampling = sampling
    if resume is not None:
        exchanges.resume(resume.progress)
    exchanges.agree(job)
    round_ = job.first() if resume is None else resume.round_
    round_ = _clustered(job, exchanges, round_, on_checkpoint)
    metrics = exchanges.assess(round_, job) if options.assess else {}
    described = options.assess and options.profile
    profiles, unprofiled = describe_clusters(exchanges, round_, job) if described else ({}, [])
    outcomes, unknown = _outcomes(exchanges, round_, job, options)
    read = _rows_read(exchanges, round_, job) if options.assess else {}
    counts = {site: reply["counts"] for site, reply in exchanges.assessed.items()}
    labelled = job.aggregator.labelled(round_)
    return Outcome(
        arrays={**job.result(round_), **profiles, **outcomes, **read},
        metrics=metrics,
        rounds=exchanges.records,
        sites=exchanges.sites,
        refused=exchanges.refused,
        bytes_up=exchanges.bytes_up,
        bytes_down=exchanges.bytes_down,
        seconds_local=exchanges.seconds_local,
        seconds_merge=exchanges.seconds_merge,
        warnings=[
            *exchanges.warnings(),
            *job.aggregator.warnings(round_, exchanges.assessed),
            *batch_effects(counts),
            *tiny_clusters(counts if labelled is None else {ALL: labelled}),
            *_outlying(job, round_, exchanges.totals, labelled),
            *unprofiled,
            *unknown,
        ],
    )


def _outcomes(
    exchanges: Exchanges, round_: Round[Any], job: ServerJob, options: FederationOptions
) -> tuple[Message, list[str]]:
    """Return arrays about the outcomes of the clusters, and warnings; none where the job does not ask for them."""
    if options.outcomes is None or not options.assess:
        return {}, []
    return outcomes_of_clusters(exchanges, round_, job, OutcomeForm.of(np.array(options.outcomes)))


def _rows_read(exchanges: Exchanges, round_: Round[Any], job: ServerJob) -> Message:
    """Return arrays about the rows that sites read, in the order of `READ`; none where no schema was used, or too few sites answer."""
    steps = [step for step in reading_steps(job.params) if step in job.steps]
    if not steps:
        return {}
    before, exchanges.undescribed = exchanges.undescribed, {}
    asked = Round[Any](step=steps[0], index=round_.index + LATEST)  # sites may refuse a round before the last one
    try:
        replies = exchanges.describe(ExchangeRequest(job.schema(asked.step), asked.step, asked, [], {}))
    except (JobFailed, BadMessage):
        return {}
    finally:
        exchanges.undescribed = before
    exchanges.record(asked.step, replies, asked.index, 0.0, {})
    numbers = np.array([[reply[name] for name in READ.fields] for reply in replies.values()])
    sites = [] if ALL in replies else list(replies)
    return {keys.ROWS_READ: numbers, keys.ROWS_READ_SITES: np.array(sites, dtype=np.str_)}


def _outlying(job: ServerJob, round_: Round[Any], totals: Message, labelled: IntArray | None) -> list[str]:
    """Return warnings about clusters of outliers, from the totals of the assessment; none of noisy ones or of different columns."""
    params = job.params
    if not totals or isinstance(params, PrivateParams) or round_.columns.different:
        return []
    trims = isinstance(params, TrimParams) and not params.trim_rows
    advice = "set trim_rows=0.05 or more" if trims else "more clusters, or an algorithm with trim_rows, keep them apart"
    scatter = totals["scatter"] if labelled is None else np.where(labelled > 0, totals["scatter"], 0.0)
    return outlying_clusters(round_.task["centroids"], totals["counts"], scatter, advice)


def _clustered(
    job: ServerJob, exchanges: Exchanges, round_: Round[Any], on_checkpoint: OnCheckpoint | None
) -> Round[Any]:
    """Return the finished round: the last one, or the best solution so far where a refinement was interrupted."""
    while not round_.done:
        request = ExchangeRequest.of(job, round_)
        try:
            replies = exchanges.cluster(request)
        except JobFailed as failure:
            if (so_far := job.so_far(round_)) is None:
                raise
            exchanges.failure = str(failure)
            return so_far
        step, index = round_.step, round_.index
        started, round_ = perf_counter(), job.advance(round_, replies)
        seconds = perf_counter() - started
        exchanges.seconds_merge += seconds
        exchanges.record(step, replies, index, seconds, round_.diagnostics)
        if on_checkpoint is not None:
            on_checkpoint(Checkpoint(round_, exchanges.progress()))
    return round_
