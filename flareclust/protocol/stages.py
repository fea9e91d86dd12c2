"""What a job is made of beside the rounds of its algorithm: phases with steps of their own, and stages around each exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from flareclust._foundation.typing import Message
from flareclust.data.tables import Table
from flareclust.protocol.params import Params
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor


class Phase:
    """A part of a job with steps of its own, such as the preparation of columns or the assessment, at a site or at the server.

    A step's `method` answers at a site: (task, rows) -> arrays. Before the rounds, its `merge` is the server's:
    (round, replies, rng) -> next round; the phase is over with a round that is done, which has the columns of the job.

    Attributes:
        steps: what sites are asked for.
        trusted: whether it gets the executor itself, which holds the site's rows and keys; others get a copy without these.
        params: the settings of the job.
        executor: at a site, its side of the algorithm.
        secure: at the server, whether sums come as totals over all sites.
    """

    steps: ClassVar[Mapping[str, Step]]
    trusted: ClassVar[bool] = False
    params: Params

    def __init__(self, params: Params, executor: "ClusteringExecutor | None" = None, *, secure: bool = False) -> None:
        self.params, self._executor, self.secure = params, executor, secure

    @property
    def executor(self) -> "ClusteringExecutor":
        """Return the site's side of the algorithm."""
        assert self._executor is not None, "a server has no executor"
        return self._executor

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps that jobs of an algorithm have; none where its jobs are without this phase."""
        return cls.steps

    def begin(self) -> Round[Any] | None:
        """Return the server's first question before the rounds; None where the job's settings ask for nothing."""
        return None


@dataclass(frozen=True)
class SiteExchange:
    """One task at one site, on its way to the algorithm and back.

    Attributes:
        task: what the server asks for.
        step: its line in the table of steps.
        table: the site's rows.
        rows: what the algorithm sees of them, and the site's conditions.
        keys: the keys of the sites whose masked sums are added to this site's; None for none.
        labelling: whether the rows only get labels, so that nothing that they are may cause a refusal.
    """

    task: Task
    step: Step
    table: Table
    rows: SiteRows
    keys: object = None
    labelling: bool = False

    def under(self, **conditions: object) -> "SiteExchange":
        """Return the exchange where the site's conditions have other values."""
        return replace(self, rows=self.rows.under(**conditions))

    def without(self, *names: str) -> "SiteExchange":
        """Return the exchange where the task has none of these arrays."""
        arrays = {name: value for name, value in self.task.arrays.items() if name not in names}
        return replace(self, task=replace(self.task, arrays=arrays))


class Stage:
    """What happens at a site before and after an algorithm computes a reply: one option of a job, or one promise of the site.

    Stages look at the exchange before the computation, in the order of their list, and at the reply after it, in the reverse
    order. They raise `Refusal` where the site cannot take part.
    """

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange as the next stage, and at last the algorithm, gets it."""
        return exchange

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return the reply as it goes on to the next stage, and at last to the server."""
        return reply
