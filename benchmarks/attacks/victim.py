"""A site that answers whatever it is asked, in this process: its executors, its policy and the gate that replies pass."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message
from flareclust.data.datasets import load
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.site import steps_to_end
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task

#: The rows that sites have, by the name of the data.
ROWS = {"s1": 1500, "digits": 1797, "iris": 150, "clouds": 300}

#: Algorithms that want more rows to a cluster than others, whatever a job says.
_LEAST = {"kfed": 2}

_NAME = "victim"


def rows_of(data: str, n: int | None = None) -> FloatArray:
    """Return the rows (n, d) of a site with public data, drawn at random; "clouds" are generated."""
    if data == "clouds":
        rng = np.random.default_rng(4)
        X = np.repeat(rng.uniform(-30, 30, (15, 2)), 20, axis=0) + rng.normal(size=(300, 2))
    else:
        X = load(data).X
    chosen = stream(0, 0, "site").permutation(len(X))[: n or ROWS[data]]
    return np.ascontiguousarray(X[chosen])


class Victim:
    """A site, as a server sees it.

    Where the site answers no further exchange of a job the next question is asked in a new one, with executors that
    remember nothing. The table is that of the site in all of them.

    Args:
        rows: the site's (n, d).
        policy: the site's; None for none, and then jobs say `min_count=1`.
        names: of the algorithms whose executors the job lists: each answers the steps that those before it do not have.
        k: of the jobs.
        per_job: most questions of a job.
        **params: settings of the jobs.
    """

    def __init__(
        self, rows: FloatArray, policy: Policy | None, *names: str, k: int = 2, per_job: int = 120, **params: Any
    ) -> None:
        self.table, self.policy, self.names = Table(rows), policy, names
        self.k, self.per_job, self.params = k, per_job, params
        self.jobs = self.exchanges = self.answers = 0
        self._asked, self._last = 0, False
        self.refusals: list[str] = []
        self.held: SimulatedSite | None = None
        self._open()

    def ask(self, step: str, arrays: Message) -> Message | None:
        """Return what the site answers to the next question; None where it refuses."""
        if self._asked >= self.per_job or self._last:
            self._open()
        task = Task(step, self._asked, {name: np.array(value) for name, value in arrays.items()}, _NAME)
        self._asked, self._last, self.exchanges = (
            self._asked + 1,
            step in (StepName.ASSESS, StepName.PLACE),
            self.exchanges + 1,
        )
        try:
            reply = answered(self._executor(step), task, self.table, self.held).arrays
        except (Refusal, BadMessage) as reason:
            self.refusals.append(str(reason))
            return None
        self.answers += 1
        return reply

    def again(self, k: int) -> None:
        """Begin a job with another k."""
        self.k = k
        self._open()

    def _open(self) -> None:
        """Begin a job."""
        self.jobs, self._asked, self._last = self.jobs + 1, 0, False
        self._executors = [self._built(name) for name in self.names]
        if self.policy is not None:
            held = SimulatedSite.of(self.policy, get(self.names[0]))
            # Only so that the groups need not be made again: they follow from the rows, and are the same.
            self.held = held if self.held is None else replace(held, session=self.held.session)

    def _built(self, name: str) -> ClusteringExecutor:
        algorithm = get(name)
        known = algorithm.parameters()
        asked: Mapping[str, Any] = {"min_count": _LEAST.get(name, 1)} if "min_count" in known else {}
        given = {key: value for key, value in self.params.items() if key in known}
        return algorithm.build(self.k, 0, {**asked, **given})[0]

    def _executor(self, step: str) -> ClusteringExecutor:
        able = [one for one in self._executors if step in steps_to_end(type(one))]
        return (able or self._executors)[0]
