"""The base class of all executors: how a site answers a task, in every engine."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from time import perf_counter
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from flareclust._foundation.errors import Aborted, BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, IntArray, Message
from flareclust.core import assessment, compiled, microaggregation
from flareclust.core.devices import steps as devices_steps
from flareclust.core.devices.ragged import Entries, Ragged, nothing_computed
from flareclust.core.disclosure import factor
from flareclust.core.lloyd import assign
from flareclust.data.tables import Table
from flareclust.evaluation.scores import check_candidates, scaled, score_sums
from flareclust.executors import partwise
from flareclust.executors.nvflare_executor import HELD, ExecutorShell
from flareclust.executors.phases import Phase
from flareclust.executors.profiles import ClusterProfiles
from flareclust.executors.stages import RowStage, SchemaStage
from flareclust.preparation.settings import ClusteringParams
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.privacy.secure_aggregation.client import MaskingStage
from flareclust.privacy.secure_aggregation.masking import KEY
from flareclust.privacy.session import SiteSession
from flareclust.privacy.stages import GroupingStage, PolicyStage, SiteExchange, Stage
from flareclust.protocol.params import Parametrized, Params
from flareclust.protocol.schema import SECONDS, Schema
from flareclust.protocol.steps import COUNTED, Step, with_counts
from flareclust.protocol.task import ASSESSMENT, PLACED, Answer, StepName, Task
from flareclust.sites.cluster import ClusterTable

_CENTROIDS = Schema(centroids="k d")


#: What sites are asked for whatever the algorithm; a key is made without it.
_OF_ALL = MappingProxyType(
    {
        StepName.KEYS: Step(KEY, method=""),
        StepName.PLACE: Step(PLACED, "place"),
        StepName.ASSESS: Step(ASSESSMENT, "assess", summed=True),
    }
)


class ClusteringExecutor(Parametrized, ExecutorShell):
    """An NVFlare executor around pure functions of one site's rows, one for each step of the algorithm.

    A subclass declares its parameters, `params: ItsParams`, and with them gets its constructor (`flareclust.protocol.params`).
    Its `steps` are added to those of its bases and of its phases.
    """

    side: Literal["site"] = "site"
    params: Params

    #: The arrays of a finished result that `labels` needs.
    placed_by: ClassVar[tuple[str, ...]] = ("centroids",)

    #: What a job asks for beside the algorithm's own steps.
    phases: ClassVar[tuple[type[Phase], ...]] = (ClusterProfiles,)

    #: Whether all that is computed from a site's rows is totals in jobs with secure sums, each of them over all rows.
    totals_only: ClassVar[bool] = False

    #: What sites are asked for, in the order of a job.
    steps: ClassVar[Mapping[str, Step]] = _OF_ALL
    _own_steps: ClassVar[Mapping[str, Step]]
    _part_classes: ClassVar[Mapping[str, type[Phase]]] = MappingProxyType({})

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Add the steps of the bases to those of the class; steps before the rounds come first."""
        super().__init_subclass__(**arguments)
        cls._own_steps = vars(cls).get("steps", {})
        tables = [vars(base)["_own_steps"] for base in reversed(cls.__mro__) if "_own_steps" in vars(base)]
        known = {**_OF_ALL}
        # Exact moments of clusters are for no algorithm under differential privacy, whatever its bases have.
        phases = [phase for phase in cls.phases if not (cls.private and issubclass(phase, ClusterProfiles))]
        for table in (*(phase.steps for phase in phases), *tables):
            known |= table
        own = {name for table in tables for name in with_counts(table)}
        parts = {name: phase for phase in phases for name in with_counts(phase.steps) if name not in own}
        cls._part_classes = MappingProxyType(parts)
        if not cls.totals_only:
            known.pop(StepName.PROFILE_TOTALS, None)
        parameters = cls.params_class().model_fields
        steps = with_counts({name: step for name, step in known.items() if step.parameter in (None, *parameters)})
        for name, step in steps.items():
            if name != StepName.KEYS and not callable(getattr(cls.part_class(name), step.method, None)):
                raise TypeError(f"{cls.part_class(name).__name__} has no method {step.method!r} for its step {name!r}")
        order = [*StepName.BEFORE_ROUNDS, StepName.CLUSTER]  # then those of the rounds
        place = {name: order.index(name) if name in order else len(order) for name in steps}
        cls.steps = MappingProxyType({name: steps[name] for name in sorted(steps, key=place.__getitem__)})

    def __init__(self, k: int, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.configure(k, seed, **settings)

    @abstractmethod
    def local(self, task: Task, rows: SiteRows) -> Message:
        """Compute the site's reply to the first step of the algorithm from its rows (n, d).

        Pure, as the method of every step: it depends on its arguments and the constructor's only; it is called on a copy
        of the executor, which is dropped. Raises `Refusal` when the site cannot take part.

        Args:
            task: what the server asks for.
            rows: the site's rows (n, d), and what computing from them takes.
        """

    @partwise.computed_by(partwise.labels)
    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row; unless overridden, that of the nearest final centroid.

        Args:
            task: carries the arrays of the last `Round`, `centroids` (k, d) among them.
            rows: those that get the labels (n, d), with the generator that `local` got in round 0; `computed` are those that
                replies were computed from.
        """
        return assign(rows.X, task.arrays["centroids"])[0]

    # ---- the steps that all algorithms share: the assessment, scores of candidate solutions, placing of late rows ----

    @partwise.computed_by(partwise.place)
    def place(self, task: Task, rows: SiteRows) -> Message:
        """Return how many rows (n, d) are placed in the clusters of a finished result."""
        return {"rows": np.array(len(rows.X))}

    @partwise.computed_by(partwise.assess)
    def assess(self, task: Task, rows: SiteRows) -> Message:
        """Return the sums over the rows (n, d) by final centroid, from which label-free metrics are computed."""
        self.check_enough_rows(rows.X, rows.context)
        sums = self.assessed(rows.X, task.arrays["centroids"])
        if rows.context.grouped:
            sums = assessment.without_small(sums, rows.context.min_count)
            scale = factor(sums["counts"], rows.context.round_counts, rows.context.min_count)
            sums |= {name: value * scale for name, value in sums.items() if name != "counts"}
        return sums | {name: sums[name].sum() for name in assessment.TOTALS}

    def assess_batch(self, task: Task, devices: Ragged, context: SiteContext) -> Entries | None:
        """Return the replies of many sites to `assess`; None where an algorithm computes other sums."""
        centroids = task.arrays["centroids"]
        usual = type(self).assessed is ClusteringExecutor.assessed and devices_steps.fits(*centroids.shape)
        return devices_steps.assessments_of_each(devices, centroids, context.min_count) if usual else None

    def assessed(self, data: FloatArray, centroids: FloatArray) -> Message:
        """Return the sums of the rows (n, d) nearest to each of the centroids (k, d)."""
        return assessment.assessment_sums(self.compared(data, centroids), centroids)[1]

    def score(self, task: Task, rows: SiteRows) -> Message:
        """Return how well each of several solutions fits the rows (n, d)."""
        fields, free = self.step(task.step).schema.fields, not rows.context.grouped
        limited = free and not rows.context.secure
        data = self.scored(task, rows)
        sums = score_sums(
            task.arrays,
            data,
            fields,
            rows.context.min_count,
            rows.aborted,
            limited=limited,
            repeats=rows.context.repeats,
            view=self.compared,
        )
        return sums if free else scaled(task.arrays, sums, rows.context.round_counts, rows.context.min_count)

    def compared(self, data: FloatArray, centroids: FloatArray) -> FloatArray:
        """Return the rows (n, d) as they are compared with centroids (k, d); as they are, unless overridden."""
        return data

    def scored(self, task: Task, rows: SiteRows) -> FloatArray:
        """Return the rows that scores cover; all rows (n, d) unless overridden."""
        return rows.X

    def check_enough_rows(self, data: Sized, context: SiteContext) -> None:
        """Raise Refusal where sums over these rows would disclose them."""
        if not self.private and len(data) < context.min_count:
            raise Refusal(
                f"has fewer rows than min_count={context.min_count}, so sums over them would disclose the rows"
            )

    @property
    def min_count(self) -> int:
        """Return how many rows a cluster must have to leave the site, unless the site's policy states more."""
        return self.params.min_count if isinstance(self.params, ClusteringParams) else 2

    # ---- the same for every engine ----

    def answer(
        self, task: Task, data: FloatArray | Table, aborted: AbortCheck, site: SiteSession | None = None
    ) -> Answer:
        """Answer `task` from the rows (n, d): the one entry that all engines use.

        Names of columns matter to algorithms for sites with different columns only. `site` holds the site's policy, which
        overrides the job's settings; None where the site has no policy.

        Raises:
            Refusal: the site cannot take part; the message holds no data.
            BadMessage: the step's method returned something else than its schema promises.
            Aborted: `aborted()` became true.
        """
        started = perf_counter()
        table = data if isinstance(data, Table) else Table(data)
        context = SiteContext(self.min_count).of_repeated(table.repeats)
        exchange = SiteExchange(task, self.step(task.step), table, table, context)
        if aborted():
            raise Aborted(f"stopped before the step {task.step}")
        stages = self._stages(site)
        for stage in stages:
            exchange = stage.before(exchange)
        executor = self._without_rows()
        if task.step == StepName.KEYS:
            reply = self._key(exchange)
        else:
            reply = executor.compute(exchange.task, exchange.step, exchange.seen, exchange.context, aborted)
        for stage in reversed(stages):
            reply = stage.after(exchange, reply)
        # The computing time depends on the rows, so it is not sent under differential privacy.
        seconds = 0.0 if self.private else perf_counter() - started
        answer = Answer({**reply, SECONDS: np.array(seconds)})
        if task.step not in (StepName.ASSESS, StepName.PLACE):
            return answer
        try:
            return Answer(answer.arrays, labels=executor._placed(exchange, aborted))
        except Exception as error:
            if site is None or isinstance(error, Aborted):
                raise
            # Labels depend on the rows and not on groups of them, so a refusal would give information about rows.
            return replace(answer, unplaced=error)

    def check_on_cluster(self, site: SiteSession | None = None) -> None:
        """Raise Refusal where what this job computes at a site needs all rows in one process; `site` is that of `answer`."""
        partwise.check_settings(self, site)

    def answer_on_cluster(
        self, task: Task, rows: ClusterTable, aborted: AbortCheck
    ) -> tuple[Answer, Iterator[int] | None]:
        """Answer `task` from rows on the site's cluster as `answer` does; the labels of the rows are returned separately, as an iterator."""
        return partwise.answer_of_parts(self, task, rows, aborted)

    def _stages(self, site: SiteSession | None) -> list[Stage]:
        """Return the stages that process a task in this order before the computation, and its reply in reverse order."""
        table_schema, schema = getattr(self.params, "table_schema", None), SchemaStage()
        drops = getattr(self.params, "missing", None) == "drop-rows"
        rows = RowStage(self.private, table_schema, self.gaps, policed=site is not None, drops=drops)
        if site is None:
            return [MaskingStage(self._sums, None, self.alike()), rows, schema]
        sends_rows = getattr(self.params, "seeds", None) == "rows"
        policy = PolicyStage(site, type(self).__name__, self.private, sends_rows)
        return [
            policy,
            MaskingStage(self._sums, site.policy, self.alike()),
            rows,
            GroupingStage(site, self.private, self.used_per_id),
            schema,
        ]

    def alike(self) -> Message:
        """Return the settings that must be the same at all sites for their masks to cancel; none unless overridden."""
        return {}

    def _without_rows(self) -> "ClusteringExecutor":
        """Return a copy for one computation: it has no rows of its own, and its state is discarded afterwards."""
        executor = object.__new__(type(self))
        executor.__dict__.update({name: value for name, value in vars(self).items() if name not in HELD})
        return executor

    def _key(self, exchange: SiteExchange) -> Message:
        """Return a new public key of the site."""
        data = exchange.seen.X
        self.check_enough_rows(data, exchange.context)
        return self._sums.key(exchange.task.site, data, private=self.private)

    def _placed(self, exchange: SiteExchange, aborted: AbortCheck) -> IntArray:
        """Return the labels (n,) of the site's own rows; replies are computed from `seen`, microaggregated by a policy."""
        task, own = self.viewed(exchange.task, exchange.table)
        seen = own if exchange.seen is exchange.table else self.viewed(exchange.task, exchange.seen)[1]
        rng = stream(self.params.seed, 0, task.site)
        return self.labels(task, SiteRows(own, rng, aborted, exchange.context, seen.X))

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return a task and a table as the algorithm sees them: as they are, unless overridden."""
        return task, table

    def compute(self, task: Task, step: Step, table: Table, context: SiteContext, aborted: AbortCheck) -> Message:
        """Return the reply of the step's method, of the rows that the algorithm sees."""
        if not step.named:
            task, table = self.viewed(task, table)
            self.check_task(task, table.X)
        rows = SiteRows(table, stream(self.params.seed, task.round, task.site), aborted, context)
        reply: Message = getattr(self.part(task.step), step.method)(task, rows)
        return {name: reply[name] for name in COUNTED.fields} if step.schema is COUNTED else reply

    def grouped(self, task: Task, rows: SiteRows) -> tuple[IntArray, BoolArray | None]:
        """Return the cluster (n,) of the rows (n, d) that the algorithm sees, and which of their cells count as known.

        The cells are None for all that the site knows, unless overridden.
        """
        return self.labels(task, rows), None

    @property
    def used_per_id(self) -> int | None:
        """Return the maximum number of rows per id that the algorithm uses where ids are protected; None for all rows."""
        return None

    def placing(self, arrays: Message) -> Message:
        """Return the arrays of a finished result that a late site needs for its labels, without other sites' replies."""
        return {name: arrays[name] for name in self.placed_by if name in arrays}

    @classmethod
    def warm_up(cls) -> None:
        """Compile the kernels once, so that processes started later load them from disk."""
        compiled.warm_up()
        microaggregation.warm_up()

    @classmethod
    def part_class(cls, name: str) -> type[Any]:
        """Return the class with the method of a step: one of the phases, or the algorithm's own."""
        return cls._part_classes.get(name, cls)

    def part(self, name: str) -> Any:
        """Return the object whose method answers a step: this one, or a phase of it."""
        kind = self._part_classes.get(name)
        return self if kind is None else kind(self)

    @classmethod
    def step(cls, name: str) -> Step:
        """Return a step; raise BadMessage for one that the algorithm does not have."""
        if name not in cls.steps:
            raise BadMessage(f"was asked for the step {name!r}, which {cls.__name__} does not have")
        return cls.steps[name]

    @classmethod
    def own_steps(cls) -> dict[str, Step]:
        """Return the steps up to the end of the rounds, without those of all algorithms (keys, assessment, late rows, profiles)."""
        common = {*_OF_ALL, *with_counts(ClusterProfiles.steps)}
        return {name: step for name, step in cls.steps.items() if name not in common}

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise UserError where the settings name sites that the federation does not have; nothing unless overridden."""

    def check_task(self, task: Task, data: FloatArray) -> None:
        """Raise BadMessage or Refusal unless the centroids of a task fit the rows (n, d)."""
        if "candidates" in task.arrays:
            check_candidates(task.arrays)
            self.check_centroids(task.arrays["candidates"], data, len(task.arrays["candidate"]))
        if "centroids" in task.arrays:
            self.check_centroids(task.arrays["centroids"], data, self.params.k)

    def check_centroids(self, centroids: object, data: FloatArray, maximum: int) -> None:
        """Raise BadMessage or Refusal unless these are at most `maximum` centroids of the site's columns."""
        sizes = _CENTROIDS.check({"centroids": centroids})  # type: ignore[dict-item]
        if sizes["k"] > maximum:
            raise Refusal(f"was sent {sizes['k']} centroids where the job has at most {maximum}")
        if sizes["d"] != data.shape[1]:
            raise Refusal(f"has rows of {data.shape[1]} columns where the federation has {sizes['d']}")


def batched_method(executor: type[ClusteringExecutor], step: str) -> str | None:
    """Return the method that computes a step for many sites: that of the class which has the step's own method, or None.

    Beside the method of a step, which says what one site sends, a class may have a method of that name and `_batch`, which
    computes the same for many sites in the engine devices. It returns None for settings that it does not cover.
    """
    method = executor.step(step).method
    owner = next((base for base in executor.part_class(step).__mro__ if method in vars(base)), None)
    of_many = f"{method}_batch"
    return of_many if owner is not None and of_many in vars(owner) else None


def answers_of_many(executor: ClusteringExecutor, task: Task, devices: Ragged) -> Entries:
    """Answer a task from the rows of many sites without policies, as `ClusteringExecutor.answer` does for each.

    What `answer` checks beforehand holds for all sites computed here; the others have the size -1. Their random streams are
    those of their `keys`; the task's `site` says nothing.
    """
    method, table, single = batched_method(type(executor), task.step), Table(devices.values), executor._without_rows()
    if single.gaps:  # rows may lack cells, which the loops do not know
        return nothing_computed(devices.m)
    try:
        viewed, seen = single.viewed(task, table)
        if method is None or seen.X is not table.X or viewed.arrays.keys() != task.arrays.keys():
            return nothing_computed(devices.m)
        single.check_task(viewed, seen.X)
        found: Entries | None = getattr(single.part(task.step), method)(
            viewed, devices, SiteContext(executor.min_count)
        )
    except (Refusal, BadMessage):  # each site says it by itself
        found = None
    return found or nothing_computed(devices.m)
