"""Outcomes by final cluster: what sites count of them.

Asked last, of algorithms that are not differentially private, where the schema of the sites' tables names an outcome. Each site
counts its rows by final cluster and outcome; of an outcome that is a number, it sends sums, first about 0 and then about the mean
of all sites. A cluster with fewer rows than the site may report counts as empty. A site with a policy counts the rows of a group
all in one cluster, that of the first row that stands for the group, so that clusters differ by whole groups, and leaves out groups
with fewer known outcomes than its floor. It sends multiples of its floor (`flareclust.core.outcomes`). Of a number, no value stands
alone in the sum of its group (the p % rule of `flareclust.core.microaggregation`), and groups whose values are all alike are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import outcomes as sums
from flareclust.core.disclosure import LEAST_ROWS, factor
from flareclust.core.microaggregation import without_dominant
from flareclust.core.outcomes import OutcomeForm
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, real, whole
from flareclust.protocol.sizes import ASKED_OUTCOME
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: What sites answer: rows by kind, cluster and time or value, and of a number rows, differences from an origin, and their squares.
#: `adjusted` is 1 where a policy has changed small numbers, or values that stand alone in their group.
_COUNTS = Schema(counts=counts("o k t"), adjusted=whole(""))
SUMS = Schema(rows=counts("k"), total=real("k"), squares=real("k", minimum=0), adjusted=whole(""))

#: What a task brings beside the final centroids: the form of the outcomes, and of a number its origin.
_FORM = Schema(outcome_form="f")
_ORIGIN = Schema(origin="")


class ClusterOutcomes(Phase):
    """Asks for the outcomes of the rows by final cluster, where the sites' tables have some."""

    steps = MappingProxyType(
        {
            StepName.OUTCOME_COUNTS: Step(_COUNTS, "outcome_counts", summed=True),
            StepName.OUTCOME_SUMS: Step(SUMS, "outcome_sums", summed=True),
        }
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps; none of algorithms under differential privacy, which have `NoisyOutcomes`."""
        return {} if executor.private else cls.steps

    def outcome_counts(self, task: Task, rows: SiteRows) -> Message:
        """Return how many rows each kind, final cluster, and time or value has."""
        task, form = asked_outcome(task)
        if form.kind == "number":
            raise BadMessage(f"{ASKED_OUTCOME}: expected times or categories, which are counted")
        outcomes, labels = self._outcomes(task, rows, form)
        k, context = len(task.arrays["centroids"]), rows.context
        found = sums.counts_by_outcome(outcomes, labels, k, form)
        found[:, found.sum(axis=(0, 2)) < max(context.min_count, LEAST_ROWS)] = 0
        if not context.grouped:
            return {"counts": found, "adjusted": np.array(0)}
        # Multiples of what the policy rounds to, so that nothing is left to be rounded.
        floor = -(-context.min_count // context.round_counts) * context.round_counts
        chances = sums.chances_of(rows.raw, outcomes, labels, k)
        return {"counts": sums.as_multiples(found, floor, chances, form), "adjusted": np.array(1)}

    def outcome_sums(self, task: Task, rows: SiteRows) -> Message:
        """Return known rows of each final cluster, and the sums of their differences from the origin and of the squares of these."""
        task, form = asked_outcome(task)
        _ORIGIN.check({name: value for name, value in task.arrays.items() if name == "origin"})
        if form.kind != "number":
            raise BadMessage(f"{ASKED_OUTCOME}: expected a number, of which sums are")
        outcomes, labels = self._outcomes(task, rows, form)
        k, context = len(task.arrays["centroids"]), rows.context
        known, total, squares = sums.sums_by_cluster(outcomes, labels, k, float(task.arrays["origin"]))
        kept = known >= max(context.min_count, LEAST_ROWS)
        scale = np.where(kept, factor(known, context.round_counts, context.min_count), 0.0)
        found = {"total": total * scale, "squares": squares * scale}
        return {"rows": np.where(kept, known, 0), **found, "adjusted": np.array(int(context.grouped))}

    def _outcomes(self, task: Task, rows: SiteRows, form: OutcomeForm) -> tuple[FloatArray, IntArray]:
        """Return the rows' outcomes (n, w), and their final clusters (n,); Refusal where they have none, or of another form."""
        if not rows.private:  # under differential privacy whether there are enough rows is theirs
            rows.check_sums()
        outcomes = rows.table.outcomes
        if outcomes is None:
            raise Refusal(
                "has no outcomes: its mapping lacks their columns, its schema names none (outcome), or its rows are in parts or on the "
                "engine devices, which have none"
            )
        # A finer grid, or a category as a number, would disclose more.
        if rows.table.outcome_form != tuple(form.numbers.tolist()):
            raise Refusal("has outcomes of another form than the job asks for; give all sites the same schema")
        own = rows.completed(task.arrays["centroids"])
        labels = self.executor.labels(task, replace(own, rng=stream(self.params.seed, 0, task.site)))
        groups = rows.table.groups
        if groups is None:
            return outcomes, labels
        _, first, place = np.unique(groups, return_index=True, return_inverse=True)
        known = np.bincount(place, ~np.isnan(outcomes).any(axis=1))
        few = known < rows.context.min_count
        if form.kind == "number":
            outcomes, kept = without_dominant(outcomes, place)
            least, largest = np.full(len(few), np.inf), np.full(len(few), -np.inf)
            np.fmin.at(least, place, outcomes[:, 0])
            np.fmax.at(largest, place, outcomes[:, 0])
            few |= least >= largest  # all alike, so their mean is theirs
            outcomes = np.where(kept[:, None] >= 0, outcomes, np.nan)
        return np.where(few[place, None], np.nan, outcomes), labels[first][place]


def outcome_steps(numbers: Sequence[float] | None) -> tuple[str, ...]:
    """Return the steps by which a job asks for outcomes of this form (4,); none for None."""
    if numbers is None:
        return ()
    counted = OutcomeForm.of(np.array(numbers)).kind != "number"
    return (StepName.OUTCOME_COUNTS,) if counted else (StepName.OUTCOME_SUMS,)


def asked_outcome(task: Task) -> tuple[Task, OutcomeForm]:
    """Return a task without the form of outcomes that it asks for, and that form; BadMessage where there is none."""
    asked = {name: value for name, value in task.arrays.items() if name == ASKED_OUTCOME}
    _FORM.check(asked, {"f": 4})
    centroids = task.arrays.get("centroids")
    if centroids is None or centroids.ndim != 2:
        raise BadMessage("centroids: expected those of the result, with two axes")
    try:
        form = OutcomeForm.of(asked[ASKED_OUTCOME])
    except ValueError as error:
        raise BadMessage(f"{ASKED_OUTCOME}: {error}") from None
    if len(centroids) * form.shape[0] * form.shape[1] > sums.MOST_NUMBERS:
        raise BadMessage(f"{ASKED_OUTCOME}: expected a question about at most {sums.MOST_NUMBERS:,} numbers")
    return replace(task, arrays={name: value for name, value in task.arrays.items() if name not in asked}), form
