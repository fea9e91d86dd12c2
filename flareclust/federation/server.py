"""The server's side of a job: which exchange follows which, through the phases before the rounds, the rounds, and after them.

An algorithm's own `begin` and `merge` know nothing of phases: what prepares rows goes out with every task, and the result is in
the units of the columns.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.seeding import SERVER, stream
from flareclust._foundation.typing import Message
from flareclust.core import assessment
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.missing.assessment import masked_metrics
from flareclust.core.rounds import HISTORY
from flareclust.federation.site import PHASES, job_lines, steps_of_member
from flareclust.preparation.categories import exact_modes
from flareclust.preparation.scale import Measured
from flareclust.preparation.scaling import LENGTH_ONE, OPEN_GAPS
from flareclust.preparation.settings import ClusteringParams, ColumnsParams, ModesParams, by_direction, leaves_gaps
from flareclust.privacy.dp.assessment import noisy_metrics
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.protocol.replies import by_name
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS, Schema
from flareclust.protocol.stages import Phase
from flareclust.protocol.state import State
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.aggregator import ClusteringAggregator


class ServerJob:
    """One job at its server, whose sums come as totals over all sites where it is `secure`.

    Raises:
        UserError: a setting needs the sums of single sites, and `secure` hides them.
    """

    def __init__(self, aggregator: "ClusteringAggregator", *, secure: bool = False) -> None:
        self.aggregator, self.params = aggregator, aggregator.params
        if secure:
            if leaves_gaps(self.params):
                raise UserError("missing=partial does not go with secure_sums; take missing=mean")
            self.aggregator = aggregator.secured()
        lines = job_lines(aggregator.executor)
        asking = {line.phase for line in lines.values()}
        self._phases: dict[type[Phase], Phase] = {
            kind: kind(self.params, secure=secure) for kind in PHASES[0] if kind in asking
        }
        self._before = {name: self._phases[line.phase] for name, line in lines.items() if line.phase in self._phases}
        member = aggregator.member
        of_member = {} if member is None else steps_of_member(member.executor)
        self.steps = {**of_member, **{name: line.step for name, line in lines.items()}}
        if aggregator.asks is not None:
            self.steps = {name: self.steps[name] for name in aggregator.asks}
        self._of_member = of_member.keys() - lines.keys()

    # ---- the course of the job ----

    def first(self) -> Round[Any]:
        """Return the first exchange."""
        return self._next_phase(Round(), -1)

    def advance(self, round_: Round[Any], replies: Mapping[str, Message]) -> Round[Any]:
        """Merge the replies, in the order of the sites' names, and count the round."""
        phase, step = self._before.get(round_.step), self.steps[round_.step]
        rng = stream(self.params.seed, round_.index, SERVER)
        if phase is not None:
            after: Round[Any] = getattr(phase, step.merge)(round_, by_name(replies), rng)
            return after if not after.done else self._next_phase(after, list(self._phases).index(type(phase)))
        method = "merge_of_member" if round_.step in self._of_member else step.merge
        merged: Round[Any] = getattr(self.aggregator, method)(round_, by_name(replies), rng)
        index = round_.index + step.counts
        return self._shown(replace(merged, index=index, columns=round_.columns, facts=round_.facts))

    def _next_phase(self, ended: Round[Any], place: int) -> Round[Any]:
        """Return the first exchange after a phase that has ended, by its place among the phases; -1 before all of them."""
        for phase in list(self._phases.values())[place + 1 :]:
            if (begun := phase.begin()) is not None:
                return begun
        columns, begun = replace(ended.columns, directions=by_direction(self.params)), self.aggregator.begin()
        task = dict(begun.task)
        # The caller's centroids are in the units of the columns.
        if "centroids" in task and columns.scales and columns.mean is not None:
            if task["centroids"].shape[1] != len(columns.mean):
                raise JobFailed(
                    f"start has centroids of {task['centroids'].shape[1]} columns where the rows have {len(columns.mean)}"
                )
            task["centroids"] = columns.scaled(task["centroids"])
        return self._shown(replace(begun, task=task, columns=columns, facts=ended.facts, diagnostics=ended.diagnostics))

    def _shown(self, round_: Round[Any]) -> Round[Any]:
        """Return a round whose centroids are as rows are compared with them."""
        names = [name for name in ("centroids", "candidates") if name in round_.task]
        sent: Message = {name: round_.columns.centers(round_.task[name]) for name in names}
        return replace(round_, task={**round_.task, **sent})

    def so_far(self, round_: Round[Any]) -> Round[Any] | None:
        """Return the best solution so far as a finished round, for when the next exchange fails; None where there is none."""
        return None if round_.step in self._before else self.aggregator.so_far(round_)

    # ---- what replies must be ----

    def schema(self, step: str) -> Schema:
        """Return what the sites send in a step; raise JobFailed for one that the job does not have."""
        if step not in self.steps:
            raise JobFailed(f"the job has no step {step!r}, which its settings ask for")
        return self.steps[step].schema

    def own_sizes(self, round_: Round[Any]) -> dict[str, dict[str, int]]:
        """Return, by site, the sizes that its reply to a round must respect: the numbers of different columns."""
        columns, params = round_.columns, self.params
        if round_.step in self._before or not columns.different or not isinstance(params, ColumnsParams):
            return {}
        own = columns.masks.sum(axis=1) if params.shown == "own" else np.full(*columns.masks.shape)
        return {site: {"d": int(d)} for site, d in zip(columns.sites, own, strict=True)}

    def limits(self, round_: Round[Any]) -> dict[str, int]:
        """Return the most entries by axis symbol that an honest site's reply to a round can have, where they are not known."""
        if round_.step == StepName.DESCRIBE:  # names of columns have about 16 bytes each, four to a number
            return {"o": MOST_COLUMNS, "s": MOST_COLUMNS, "b": 4 * MOST_COLUMNS}
        if round_.step == StepName.KNOWN_MOMENTS:
            return {"k": MOST_COLUMNS, "d": 1}
        if round_.step in (StepName.SCALES, StepName.KNOWN_SCALES):  # all rows as one group
            return {"k": 1, "d": MOST_COLUMNS}
        usual = {"k": max(self.params.k, len(round_.task.get("candidate", ()))), "d": MOST_COLUMNS}
        return {**usual, **self.aggregator.limits(round_)}

    def least_rows(self) -> int:
        """Return how many rows a group must have over all sites to be reported with secure sums, in steps that are `counted`."""
        return max(self.params.min_count, LEAST_ROWS) if isinstance(self.params, ClusteringParams) else LEAST_ROWS

    # ---- what comes of it ----

    def quality(self, round_: Round[Any], sums: Message) -> dict[str, float | None]:
        """Return the label-free metrics of the final centroids from the sums of all sites."""
        own = self.aggregator.metrics(round_)
        if isinstance(self.params, PrivateParams):
            return {**noisy_metrics(self.params, round_, sums), **own}
        metrics = masked_metrics if round_.columns.different else assessment.label_free_metrics
        return {**metrics(round_.task["centroids"], sums), **own}

    def result(self, round_: Round[Any]) -> Message:
        """Return the arrays of the result, the centroids in the units of the columns, and how rows were prepared."""
        columns, params = round_.columns, self.params
        arrays = {**columns.kept(), **round_.facts.arrays(), **self.aggregator.result(round_), **columns.sent()}
        back = [name for name in ("centroids", HISTORY) if name in arrays]
        arrays |= {name: columns.unscaled(arrays[name]) for name in back}
        if isinstance(params, ModesParams):
            arrays |= {name: exact_modes(arrays[name], params.categories or []) for name in back}
        if leaves_gaps(params):
            arrays[OPEN_GAPS] = np.array(True)
        if columns.directions:
            arrays[LENGTH_ONE] = np.array(True)
        if isinstance(params, ColumnsParams):
            arrays |= {"standardized": np.array(True)} if params.scale != "none" else {}
            arrays["mask"] = ~np.isnan(arrays["centroids"])
        return arrays

    def state_of(self, step: str) -> type[State]:
        """Return the class of what the server keeps while it waits for the replies to a step."""
        return Measured if step in self._before else self.aggregator.state
