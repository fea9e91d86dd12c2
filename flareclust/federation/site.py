"""How a site answers a task, in every engine: the method of the step, and the stages around it.

`PHASES` has the phases of a job in their order, around the rounds of the algorithm, and `site_stages` its stages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from inspect import getdoc
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flareclust._foundation.errors import Aborted, BadMessage
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import AbortCheck, FloatArray, Message, never_abort
from flareclust.data.tables import Table
from flareclust.federation.assessment import Assessment, Placing
from flareclust.federation.noisy_outcomes import NoisyOutcomes
from flareclust.federation.outcomes import ClusterOutcomes
from flareclust.federation.profiles import ClusterProfiles
from flareclust.federation.rows_read import ReadRows
from flareclust.federation.stages import CentroidStage, RowStage, SchemaStage
from flareclust.preparation import settings
from flareclust.preparation.different import Description
from flareclust.preparation.names import ColumnNames
from flareclust.preparation.rows import STAGES, stages_for
from flareclust.preparation.spread import ColumnSpreads
from flareclust.privacy.dp.assessment import NoisyAssessment
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.saturation import SaturationStage
from flareclust.privacy.secure_aggregation.client import Keys, MaskingStage
from flareclust.privacy.session import SiteSession
from flareclust.privacy.stages import GroupingStage, PolicyStage
from flareclust.protocol.registry import name_of
from flareclust.protocol.rows import OtherRows, SiteContext, SiteRows
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.stages import Phase, SiteExchange, Stage
from flareclust.protocol.steps import Step, with_counts
from flareclust.protocol.task import Answer, StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: The phases of a job before and after the rounds of its algorithm.
PHASES: tuple[tuple[type[Phase], ...], tuple[type[Phase], ...]] = (
    (Keys, ColumnNames, ColumnSpreads, Description),
    (Assessment, NoisyAssessment, Placing, ClusterProfiles, ClusterOutcomes, NoisyOutcomes, ReadRows),
)


class _Line(NamedTuple):
    """A step, and who answers it: a phase, else the algorithm itself, or its member."""

    step: Step
    phase: type[Phase] | None
    of_member: bool = False


@cache
def job_lines(executor: "type[ClusteringExecutor]") -> Mapping[str, _Line]:
    """Return all steps that sites answer in jobs of an algorithm, in the order of a job.

    Raises:
        TypeError: a step has no method.
    """
    before, after = ([(phase, phase.steps_of(executor)) for phase in part] for part in PHASES)
    parts, own = [*before, (None, executor.steps), *after], with_counts(executor.steps)
    lines = {
        name: _Line(step, phase)
        for phase, steps in parts
        for name, step in with_counts(steps).items()
        if phase is None or name not in own
    }
    for name, line in lines.items():
        owner = line.phase or executor
        if not callable(getattr(owner, line.step.method, None)):
            raise TypeError(f"{owner.__name__} has no method {line.step.method!r} for its step {name!r}")
    return MappingProxyType(lines)


def steps_to_end(executor: "type[ClusteringExecutor]") -> dict[str, Step]:
    """Return the steps up to the end of the rounds, without those of every job: keys, assessment, profiles, outcomes, late rows."""
    of_others = (Keys, *PHASES[1])
    return {name: line.step for name, line in job_lines(executor).items() if line.phase not in of_others}


class _Listed(NamedTuple):
    """A phase of jobs, or a stage of replies: its name, what it does in a sentence, and the steps of a phase."""

    name: str
    does: str
    steps: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: type, steps: Iterable[str] = ()) -> "_Listed":
        """Return what the first paragraph of a class's docstring says of it."""
        words = " ".join((getdoc(kind) or "").partition("\n\n")[0].split())
        return cls(kind.__name__, words, tuple(steps))


def phases_of(executor: "type[ClusteringExecutor] | None") -> list[_Listed]:
    """Return the phases that jobs of an algorithm can have, in their order; those of all algorithms for None."""

    def listed(part: tuple[type[Phase], ...]) -> list[_Listed]:
        steps = {phase: phase.steps if executor is None else phase.steps_of(executor) for phase in part}
        return [_Listed.of(phase, steps[phase]) for phase in part if steps[phase]]

    own = () if executor is None else tuple(with_counts(executor.steps))
    return [*listed(PHASES[0]), _Listed("rounds", "Asks for what the algorithm itself needs.", own), *listed(PHASES[1])]


def stages_of(executor: "ClusteringExecutor | None") -> list[_Listed]:
    """Return the stages that replies of an algorithm can pass at a site, in their order; those of all algorithms for None."""
    prepared = [stage for stage, asking in STAGES.items() if executor is None or isinstance(executor.params, asking)]
    views = [] if executor is None else map(type, executor.views())
    gate = (PolicyStage, MaskingStage, RowStage, GroupingStage, SaturationStage)
    return [_Listed.of(kind) for kind in (*gate, *prepared, *views, CentroidStage, SchemaStage)]


def site_stages(executor: "ClusteringExecutor", session: SiteSession | None) -> tuple[list[Stage], list[Stage]]:
    """Return the stages of a job at a site: those that decide whether it takes part, and those that show rows to the algorithm.

    `session` is the job at a site with a policy; None where it has none.
    """
    params, private = executor.params, executor.private
    rows = RowStage(
        private,
        params.table_schema if isinstance(params, settings.TableParams) else None,
        executor.gaps,
        policed=session is not None,
        drops=isinstance(params, settings.ColumnsParams) and params.missing == "drop-rows",
        open_gaps=settings.leaves_gaps(params),
    )
    alike: Message = {"noise": np.array(params.alike)} if isinstance(params, PrivateParams) else {}
    masks = MaskingStage(executor.sums, None if session is None else session.policy, alike)
    gate: list[Stage] = [masks, rows]
    if session is not None:
        sends_rows = isinstance(params, settings.SeedsParams) and params.seeds == "rows"
        used_per_id = params.used_per_id if isinstance(params, PrivateParams) else None
        policy = PolicyStage(session, type(executor).__name__, private, sends_rows)
        groups = GroupingStage(session, private, used_per_id)
        limits = SaturationStage.of(session.policy, private=private)
        gate = [policy, *gate, groups, *limits]
    centroids = CentroidStage(params.k * executor.parts, executor.beside_centroids, required=private)
    return gate, [*stages_for(params), *executor.views(), centroids]


def answer(
    executor: "ClusteringExecutor",
    task: Task,
    data: FloatArray | Table | OtherRows,
    aborted: AbortCheck,
    session: SiteSession | None = None,
) -> Answer:
    """Answer `task` from the rows (n, d): the one entry that all engines use.

    Raises:
        Refusal: the site cannot take part; the message holds no data.
        BadMessage: the job has no such step, or the step's method returned something else than its schema promises.
        Aborted: `aborted()` became true.
    """
    started, line = perf_counter(), line_of(executor, task.step)
    if aborted():
        raise Aborted(f"stopped before the step {task.step}")
    rows = _rows(executor, task, data, aborted)
    gate, views = site_stages(executor, session)
    asked = shown(SiteExchange(task, line.step, rows.table, rows), gate)
    exchange = asked if line.step.as_is else shown(asked, views)
    reply = computed(executor, exchange)
    for stage in (SchemaStage(), *reversed(gate)):
        reply = stage.after(asked, reply)
    # The computing time depends on the rows, so it is not sent under differential privacy.
    seconds = 0.0 if executor.private else perf_counter() - started
    answer = Answer({**reply, SECONDS: np.array(seconds)})
    if task.step not in (StepName.ASSESS, StepName.PLACE):
        return answer
    try:
        single, own = executor.without_rows(), _to_label(executor, asked, exchange, views)
        labels = single.labels(exchange.task, own)
        return replace(answer, labels=labels, details=single.details(exchange.task, own))
    except Exception as error:
        if session is None or isinstance(error, Aborted):
            raise
        # Labels depend on the rows and not on groups of them, so a refusal would give information about rows.
        return replace(answer, unplaced=error)


def computed(executor: "ClusteringExecutor", exchange: SiteExchange) -> Message:
    """Return what the step's method makes of the rows that it sees."""
    line, single = line_of(executor, exchange.task.step), executor.without_rows()
    owner: object = single.member if line.of_member else single
    if line.phase is not None:
        owner = line.phase(executor.params, executor if line.phase.trusted else single)
    reply: Message = getattr(owner, line.step.method)(exchange.task, exchange.rows)
    return reply


def line_of(executor: "ClusteringExecutor", step: str) -> _Line:
    """Return a step of a job with who answers it; raise BadMessage for one that the job does not have."""
    lines, member = job_lines(type(executor)), executor.member
    if step in lines:
        return lines[step]
    if member is not None and step in (own := steps_of_member(type(member))):
        return _Line(own[step], None, of_member=True)
    raise BadMessage(f"was asked for the step {step!r}, which {type(executor).__name__} does not have")


def steps_of_member(member: "type[ClusteringExecutor]") -> dict[str, Step]:
    """Return the steps of an algorithm that jobs of another one ask for, in rows of its own: no sums of all rows."""
    left_out = {name for name, step in member.steps.items() if step.jobs == "secure" or name in StepName.SCORING}
    return {name: step for name, step in member.steps.items() if name not in left_out}


def sender_of(executor: "ClusteringExecutor", step: str, name: str | None) -> str | None:
    """Return the name of the algorithm whose message the reply to a step is: its own `name`, or that of its member."""
    member = executor.member
    return name if member is None or step in job_lines(type(executor)) else name_of(type(member))


def rows_shown(
    executor: "ClusteringExecutor", task: Task, table: Table, session: SiteSession | None = None
) -> SiteRows:
    """Return the rows as the method of a task's step gets them at a site; for evaluations, which repeat what a site computed.

    Raises:
        Refusal: the site cannot take part.
    """
    rows, step = _rows(executor, task, table, never_abort), line_of(executor, task.step).step
    gate, views = site_stages(executor, session)
    return shown(SiteExchange(task, step, rows.table, rows), [*gate, *views]).rows


def shown(exchange: SiteExchange, stages: list[Stage]) -> SiteExchange:
    """Return an exchange after these stages."""
    for stage in stages:
        exchange = stage.before(exchange)
    return exchange


def _rows(
    executor: "ClusteringExecutor", task: Task, data: FloatArray | Table | OtherRows, aborted: AbortCheck
) -> SiteRows:
    rng, context = stream(executor.params.seed, task.round, task.site), SiteContext(executor.min_count)
    if isinstance(data, OtherRows):
        return data.site_rows(rng, aborted, context)
    table = data if isinstance(data, Table) else Table(data)
    return SiteRows(table, rng, aborted, context.of_repeated(table.repeats))


def _to_label(
    executor: "ClusteringExecutor", asked: SiteExchange, exchange: SiteExchange, views: list[Stage]
) -> SiteRows:
    """Return the site's own rows, which get labels; replies are computed from groups of them at a site with a policy."""
    rng, computed = stream(executor.params.seed, 0, exchange.task.site), None
    if asked.rows.table is not asked.table:
        computed, own = exchange.rows.X, replace(asked, labelling=True, rows=replace(asked.rows, table=asked.table))
        exchange = shown(own, views[:-1])
    return replace(exchange.rows, computed=computed, rng=rng)
