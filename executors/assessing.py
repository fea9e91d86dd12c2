"""The site's side of the steps that all algorithms share: the assessment, scores of candidate solutions, and placing of late rows."""

from abc import abstractmethod
from collections.abc import Sized
from typing import ClassVar

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core.assessment import TOTALS, assessment_sums, without_small
from flareclust.core.devices import steps as devices_steps
from flareclust.core.devices.ragged import Entries, Ragged
from flareclust.core.rounding import factor
from flareclust.evaluation.scores import scaled, score_sums
from flareclust.executors import partwise
from flareclust.privacy.context import SiteContext
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task


class Assessing:
    """A mixin with these three steps, for executors."""

    #: Whether the algorithm is differentially private; its sums need no least number of rows.
    private: ClassVar[bool]

    @classmethod
    @abstractmethod
    def step(cls, name: str) -> Step:
        """Return a step of the algorithm."""

    @partwise.computed_by(partwise.place)
    def place(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return how many rows (n, d) are placed in the clusters of a finished result."""
        return {"rows": np.array(len(data))}

    @partwise.computed_by(partwise.assess)
    def assess(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return the sums over the rows (n, d) by final centroid, from which label-free metrics are computed."""
        self._check_enough(data, context)
        sums = self.assessed(data, task.arrays["centroids"])
        if context.grouped:
            sums = without_small(sums, context.min_count)
            scale = factor(sums["counts"], context.round_counts, context.min_count)
            sums |= {name: value * scale for name, value in sums.items() if name != "counts"}
        return sums | {name: sums[name].sum() for name in TOTALS}

    def assess_batch(self, task: Task, devices: Ragged, context: SiteContext) -> Entries | None:
        """Return the replies of many sites to `assess`; None where an algorithm computes other sums."""
        centroids = task.arrays["centroids"]
        usual = type(self).assessed is Assessing.assessed and devices_steps.fits(*centroids.shape)
        return devices_steps.assessments_of_each(devices, centroids, context.min_count) if usual else None

    def assessed(self, data: FloatArray, centroids: FloatArray) -> Message:
        """Return the sums of the rows (n, d) nearest to each of the centroids (k, d)."""
        return assessment_sums(self.compared(data, centroids), centroids)[1]

    def score(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return how well each of several solutions fits the rows (n, d)."""
        fields, free = self.step(task.step).schema.fields, not context.grouped
        limited = free and not context.secure
        data = self.scored(task, data, context)
        sums = score_sums(
            task.arrays,
            data,
            fields,
            context.min_count,
            aborted,
            limited=limited,
            repeats=context.repeats,
            view=self.compared,
        )
        return sums if free else scaled(task.arrays, sums, context.round_counts, context.min_count)

    def compared(self, data: FloatArray, centroids: FloatArray) -> FloatArray:
        """Return the rows (n, d) as they are compared with centroids (k, d); as they are, unless overridden."""
        return data

    def scored(self, task: Task, data: FloatArray, context: SiteContext) -> FloatArray:
        """Return the rows that scores cover; all rows (n, d) unless overridden."""
        return data

    def _check_enough(self, data: Sized, context: SiteContext) -> None:
        if not self.private and len(data) < context.min_count:
            raise Refusal(
                f"has fewer rows than min_count={context.min_count}, so sums over them would disclose the rows"
            )
