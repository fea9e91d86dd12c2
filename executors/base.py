"""The base class of all executors: how a site answers a task, in every engine."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flareclust._foundation.errors import Aborted, BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, Message
from flareclust._foundation.validation import LARGEST
from flareclust.core import kernels, microaggregation
from flareclust.core.assessment import TOTALS, assessment_sums, without_small
from flareclust.core.lloyd import assign
from flareclust.core.rounding import factor
from flareclust.data.tables import Table
from flareclust.evaluation.scores import scaled, score_sums
from flareclust.executors.nvflare_executor import ExecutorShell
from flareclust.privacy.context import SiteContext
from flareclust.privacy.policy import Policy
from flareclust.privacy.rounding import rounded_reply
from flareclust.privacy.secure_aggregation.masking import KEY, KeyTable
from flareclust.protocol.params import Parametrized, Params
from flareclust.protocol.schema import SECONDS, Schema
from flareclust.protocol.task import ASSESS, ASSESSMENT, CLUSTER, KEYS, PLACE, PLACED, SCORE, Answer, Task

if TYPE_CHECKING:
    from flareclust.privacy.dp.budget import DPSession

_CENTROIDS = Schema(centroids="k d")


class ClusteringExecutor(Parametrized, ExecutorShell):
    """An NVFlare executor around one pure function, `local`.

    A subclass declares its parameters, `params: ItsParams`, and with them gets its constructor (`flareclust.protocol.params`).
    """

    side: Literal["site"] = "site"
    params: Params

    #: Clusters with fewer rows never leave the site: the parameter, or what the site's policy states if that is more.
    min_count: int = 2

    #: Schema of the reply of `local` to the step `CLUSTER`: exactly these arrays leave the site.
    reply: ClassVar[Schema]

    #: The steps that sites answer before the rounds.
    first_steps: ClassVar[tuple[str, ...]] = ()

    #: The schema of every further step of the algorithm's rounds. The base class computes the arrays of `SCORE`.
    steps: ClassVar[Mapping[str, Schema]] = MappingProxyType({})

    #: The steps whose replies are sums over rows (`flareclust.privacy.secure_aggregation.totals`), which can leave the site masked.
    summed: ClassVar[frozenset[str]] = frozenset({ASSESS})

    #: The schemas of further sums, which leave the site masked only.
    masked_only: ClassVar[Mapping[str, Schema]] = MappingProxyType({})

    #: The steps that a job with secure sums replaces by totals. The site refuses them in such a job.
    plain_only: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, k: int, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.configure(k, seed, **settings)
        self.policy: Policy | None = None

    @abstractmethod
    def local(self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck) -> Message:
        """Compute the site's reply of one round from its rows (n, d).

        Pure: it depends on its arguments and the constructor's only. Raises `Refusal` when the site cannot take part.
        """

    def labels(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, seen: FloatArray
    ) -> IntArray:
        """Return the final cluster (n,) of each row; unless overridden, that of the nearest final centroid.

        Args:
            task: carries the arrays of the last `Round`, `centroids` (k, d) among them.
            data: the site's rows (n, d), which get the labels.
            rng: the generator that `local` got in round 0, so that a local clustering can be repeated.
            aborted: as in `local`.
            seen: the rows (m, d) that `local` got: `data` itself, or at a site with a policy its microaggregated rows.
        """
        return assign(data, task.arrays["centroids"])[0]

    # ---- the same for every engine ----

    def answer(
        self, task: Task, data: FloatArray | Table, aborted: AbortCheck, site: SiteContext | None = None
    ) -> Answer:
        """Answer `task` from the rows (n, d): the one entry that all engines use.

        Names of columns matter to algorithms for sites with different columns only. `site` holds the site's policy, which
        overrides the job's settings; None where the site has no policy.

        Raises:
            Refusal: the site cannot take part; the message holds no data.
            BadMessage: `local` returned something else than `reply` promises.
            Aborted: `aborted()` became true.
        """
        started = perf_counter()
        schema = {ASSESS: ASSESSMENT, PLACE: PLACED, KEYS: KEY}.get(task.step) or self.schema(task.step)
        table = data if isinstance(data, Table) else Table(data)
        table.check_unchanged()
        executor = self if site is None else self.under(site.policy)
        executor._check_rows(table.X)
        if aborted():
            raise Aborted(f"stopped before the step {task.step}")
        if site is not None and site.policy.dp is not None:
            task = replace(task, terms=_terms(site, table, task.site))
        task, keys = executor._without_keys(task)
        visible = table if site is None or executor.private else site.microaggregated(table)
        if task.step in (ASSESS, KEYS) and not executor.private and len(visible.X) < executor.min_count:
            raise Refusal(f"has fewer rows than min_count={executor.min_count}, so sums over them would tell the rows")
        result = executor.compute(task, visible, aborted)
        table.check_unchanged()
        if extra := set(result.arrays) - set(schema.fields):  # a faulty algorithm could have named them by a value
            raise BadMessage(f"made {len(extra)} arrays more than those that its schema has: {sorted(schema.fields)}")
        arrays = schema.pack(result.arrays)
        if site is not None and not executor.private:
            arrays = rounded_reply(arrays, schema, site.policy.round_counts, executor.min_count)
        if keys is not None:
            arrays = self._sums.hidden(task.site, (task.step, task.round, task.arrays), keys, schema, arrays)
        # The computing time depends on the rows, so it is not sent under differential privacy.
        seconds = 0.0 if self.private else perf_counter() - started
        answer = Answer({**arrays, SECONDS: np.array(seconds)})
        if task.step not in (ASSESS, PLACE):
            return answer
        try:
            return replace(answer, labels=executor._placed(task, table, visible, aborted))
        except Exception as error:
            if site is None or isinstance(error, Aborted):
                raise
            # Labels depend on the rows and not on groups of them, so a refusal would give information about rows.
            return replace(answer, unplaced=error)

    def under(self, policy: Policy) -> "ClusteringExecutor":
        """Return a copy of this executor that keeps to the site's policy: clusters below its minimum are not sent.

        Raises:
            Refusal: the job asks for rows as seeds, or the policy for differential privacy, which the algorithm does not
                have.
        """
        if policy.dp is not None and not self.private:
            raise Refusal(
                f"lets out differentially private numbers only, which {type(self).__name__} does not make; algorithms that "
                "do have names that begin with dp-"
            )
        if getattr(self.params, "seeds", None) == "rows":
            raise Refusal('lets out no rows, as seeds="rows" would; take seeds="means" (its policy)')
        executor = copy(self)
        executor.min_count = max(self.min_count, policy.min_count)
        executor.policy = policy
        executor._rows = executor._site = None  # rows that the shell has read: an algorithm gets rows as arguments only
        return executor

    def _without_keys(self, task: Task) -> tuple[Task, KeyTable | None]:
        """Return the task without the keys, and the keys of the sites whose sums are added to this site's, None for none."""
        only = task.step in self.masked_only
        always = only or (self.policy is not None and self.policy.secure_sums)
        sums = only or task.step in {ASSESS, *self.summed}
        secure = self._sums.secure(task.site)
        if secure and task.step in self.plain_only:
            raise Refusal(f"takes part in a job with secure sums, which does without the step {task.step}")
        arrays, keys = self._sums.taken(task.site, task.step, task.arrays, sums=sums, always=always, policy=self.policy)
        return replace(task, arrays=arrays, secure=secure), keys

    def _placed(self, task: Task, site_table: Table, visible: Table, aborted: AbortCheck) -> IntArray:
        """Return the labels (n,) of the site's own rows; replies are computed from `visible`, microaggregated by a policy."""
        task_view, table_view = self.viewed(task, site_table)
        visible_view = table_view if visible is site_table else self.viewed(task, visible)[1]
        return self.labels(task_view, table_view.X, stream(self.seed, 0, task.site), aborted, visible_view.X)

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return a task and a table as the algorithm sees them: as they are, unless overridden."""
        return task, table

    def compute(self, task: Task, table: Table, aborted: AbortCheck) -> Answer:
        """Answer a task without its labels: a step of the algorithm, scores, or the assessment."""
        data = table.X
        if task.step == KEYS:
            return Answer(self._sums.key(task.site, data, private=self.private))
        self._check_task(task, data)
        if task.step == PLACE:
            return Answer({"rows": np.array(len(data))})
        if task.step == ASSESS:
            sums = self.assess(task, data)
            if self.policy is not None and not self.private:
                sums = without_small(sums, self.min_count)
                scale = factor(sums["counts"], self.policy.round_counts, self.min_count)
                sums |= {name: value * scale for name, value in sums.items() if name != "counts"}
            return Answer(sums | {name: np.sum(sums[name]) for name in TOTALS})
        if task.step == SCORE:
            fields = self.schema(SCORE).fields
            sums = score_sums(task.arrays, data, fields, self.min_count, aborted, limited=self.policy is None)
            if self.policy is None:
                return Answer(sums)
            return Answer(scaled(task.arrays, sums, self.policy.round_counts, self.min_count))
        return Answer(self.local(task, data, stream(self.seed, task.round, task.site), aborted))

    def assess(self, task: Task, data: FloatArray) -> Message:
        """Return the sums over the rows (n, d) by final centroid, from which label-free metrics are computed."""
        return assessment_sums(data, task.arrays["centroids"])[1]

    def placing(self, arrays: Message) -> Message:
        """Return the arrays for a late site, from those of a finished result."""
        return arrays

    @classmethod
    def warm_up(cls) -> None:
        """Compile the kernels once, so that processes started later load them from disk."""
        kernels.warm_up()
        microaggregation.warm_up()

    @classmethod
    def schema(cls, step: str) -> Schema:
        """Return the schema of a step's reply; raise BadMessage for a step that the algorithm does not have."""
        further = {**cls.steps, **cls.masked_only}
        if step != CLUSTER and step not in further:
            raise BadMessage(f"was asked for the step {step!r}, which {cls.__name__} does not have")
        return cls.reply if step == CLUSTER else further[step]

    @classmethod
    def all_steps(cls) -> tuple[str, ...]:
        """Return every step that sites may be asked for beside the assessment and the placing of late rows."""
        return (*cls.first_steps, *cls.masked_only, CLUSTER, *cls.steps)

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise UserError where the settings name sites that the federation does not have; nothing unless overridden."""

    def _check_rows(self, data: FloatArray) -> None:
        if len(data) == 0:
            raise Refusal("has no rows")
        minimum, largest = data.min(), data.max()  # NaN where a cell is; and no copy of the rows
        if not (np.isfinite(minimum) and np.isfinite(largest)):
            raise Refusal("has rows with NaN or infinite values; remove or impute them at the site")
        if max(-minimum, largest) > LARGEST:
            raise Refusal(f"has values beyond {LARGEST:g}, whose squares cannot be added up; rescale them at the site")
        if self.policy is not None and len(data) < self.policy.least_rows(private=self.private):
            raise Refusal("has fewer rows than it must have to take part (its policy: min_rows, min_count)")

    def _check_task(self, task: Task, data: FloatArray) -> None:
        if task.step == SCORE:
            self.check_centroids(task.arrays.get("candidates"), data, len(task.arrays.get("candidate", ())))
        elif "centroids" in task.arrays:
            self.check_centroids(task.arrays["centroids"], data, self.k)

    def check_centroids(self, centroids: object, data: FloatArray, maximum: int) -> None:
        """Raise BadMessage or Refusal unless these are at most `maximum` centroids of the site's columns."""
        sizes = _CENTROIDS.check({"centroids": centroids})  # type: ignore[dict-item]
        if sizes["k"] > maximum:
            raise Refusal(f"was sent {sizes['k']} centroids where the job has at most {maximum}")
        if sizes["d"] != data.shape[1]:
            raise Refusal(f"has rows of {data.shape[1]} columns where the federation has {sizes['d']}")


def _terms(site: SiteContext, table: Table, name: str) -> "DPSession":
    from flareclust.privacy.dp.budget import DPSession  # needs an optional package

    return DPSession.of(site, table, name)
