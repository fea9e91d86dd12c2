"""The base class of all executors: the site's side of an algorithm, as every engine and NVFlare see it."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, Message
from flareclust._foundation.version import __version__
from flareclust.core import compiled
from flareclust.data.tables import Table
from flareclust.federation import site
from flareclust.federation.nvflare_executor import HELD, ExecutorShell
from flareclust.preparation.rows import arrays_for_late_rows
from flareclust.preparation.settings import ClusteringParams, ColumnsParams, ScaledParams
from flareclust.privacy.session import SiteSession
from flareclust.protocol.digests import job_digest
from flareclust.protocol.parametrized import Parametrized
from flareclust.protocol.params import Params
from flareclust.protocol.registry import name_of
from flareclust.protocol.rows import OtherRows, SiteRows
from flareclust.protocol.stages import Stage
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Answer, Task


class ClusteringExecutor(Parametrized, ExecutorShell):
    """An NVFlare executor around pure functions of one site's rows, one for each step of the algorithm.

    A subclass declares its parameters, `params: ItsParams`, and with them gets its constructor (`flareclust.protocol.params`),
    and its steps. What jobs do beside these, to columns, gaps, groups and masks, is in phases and stages around it, which
    follow from the parameters (`flareclust.federation.site`).
    """

    side: Literal["site"] = "site"
    params: Params

    #: What sites are asked for in the rounds, and which methods answer: (task, rows) -> arrays. Pure: a method depends on its
    #: arguments and the constructor's only; it is called on a copy of the executor, which is dropped.
    steps: ClassVar[Mapping[str, Step]] = MappingProxyType({})

    #: The arrays of a finished result that `labels` needs, beside those that prepare rows.
    placed_by: ClassVar[tuple[str, ...]] = ("centroids",)

    #: The arrays of a task that are as many points as its `centroids`.
    beside_centroids: ClassVar[tuple[str, ...]] = ()

    #: So many centroids for each cluster a task may have.
    parts: ClassVar[int] = 1

    #: Whether all that is computed from a site's rows is totals in jobs with secure sums, each of them over all rows.
    totals_only: ClassVar[bool] = False

    #: Whether the final clusters can be described by the columns of the rows.
    describes: ClassVar[bool] = True

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Check that each step has its method."""
        super().__init_subclass__(**arguments)
        cls.steps = MappingProxyType(dict(cls.steps))
        site.job_lines(cls)

    def __init__(self, k: int, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.configure(k, seed, **settings)

    @abstractmethod
    def local(self, task: Task, rows: SiteRows) -> Message:
        """Compute the site's reply to the first step of the algorithm; raise `Refusal` when the site cannot take part.

        Args:
            task: what the server asks for.
            rows: the site's rows (n, d), and what computing from them takes.
        """

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row; unless overridden, that of the nearest final centroid.

        Args:
            task: carries the arrays of the last `Round`, `centroids` (k, d) among them.
            rows: those that get the labels (n, d), with the generator that `local` got in round 0; `computed` are those that
                replies were computed from.
        """
        return rows.nearest(task.arrays["centroids"])

    def details(self, task: Task, rows: SiteRows) -> Mapping[str, FloatArray]:
        """Return what the site's file of labels says of each row beside its label (n,), by name; nothing unless overridden.

        Arguments are those of `labels`. Neither leaves the site.
        """
        return {}

    def views(self) -> list[Stage]:
        """Return stages of the algorithm's own that show it other rows, such as embeddings; none unless overridden."""
        return []

    @property
    def member(self) -> "ClusteringExecutor | None":
        """Return another algorithm whose steps are asked in jobs of this one, of the rows that this one shows; None unless overridden."""
        return None

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise UserError where the settings name sites that the federation does not have; nothing unless overridden."""

    @property
    def min_count(self) -> int:
        """Return how many rows a cluster must have to leave the site, unless the site's policy states more.

        1 with differential privacy, where noise protects single rows.
        """
        if self.private:
            return 1
        return self.params.min_count if isinstance(self.params, ClusteringParams) else 2

    @property
    def gaps(self) -> bool | None:
        """Return whether the job takes rows with missing cells, which are NaN; None for an algorithm that never does."""
        return self.params.missing != "refuse" if isinstance(self.params, ScaledParams | ColumnsParams) else None

    def answer(
        self, task: Task, data: FloatArray | Table | OtherRows, aborted: AbortCheck, session: SiteSession | None = None
    ) -> Answer:
        """Answer `task` from the rows (n, d), as `flareclust.federation.site.answer` does."""
        return site.answer(self, task, data, aborted, session)

    def sender(self, step: str) -> str | None:
        """Return the name of the algorithm whose message the reply to a step is; None where it is not registered."""
        return site.sender_of(self, step, name_of(type(self)))

    def without_rows(self) -> "ClusteringExecutor":
        """Return a copy for one computation: it has no rows of its own, and its state is discarded afterwards."""
        executor = object.__new__(type(self))
        executor.__dict__.update({name: value for name, value in vars(self).items() if name not in HELD})
        return executor

    @classmethod
    def warm_up(cls) -> None:
        """Compile the kernels once, so that processes started later load them from disk."""
        compiled.warm_up()

    @classmethod
    def job_steps(cls) -> Mapping[str, Step]:
        """Return all steps that sites answer in jobs of this algorithm, those of phases among them, in the order of a job."""
        return MappingProxyType({name: line.step for name, line in site.job_lines(cls).items()})

    def version(self) -> str:
        """Return the version of flareclust and the digest of the job's messages, which decides whether versions fit."""
        return version_of(type(self), self.member and type(self.member))

    def step(self, name: str) -> Step:
        """Return a step of the job; raise BadMessage for one that it does not have."""
        return site.line_of(self, name).step

    def placing(self, arrays: Message) -> Message:
        """Return the arrays of a finished result that a late site needs for its labels, without other sites' replies."""
        needed = {name: arrays[name] for name in self.placed_by if name in arrays}
        return needed | arrays_for_late_rows(self.params, arrays)


def version_of(executor: type[ClusteringExecutor], member: type[ClusteringExecutor] | None) -> str:
    """Return the version of flareclust, a plus, and the digest of the messages of jobs that ask for the steps of both."""
    asked = [one for one in (executor, member) if one is not None]
    return f"{__version__}+{job_digest([(one.job_steps(), one.params_class()) for one in asked])}"
