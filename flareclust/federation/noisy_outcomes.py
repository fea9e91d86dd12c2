"""Outcomes by final cluster under differential privacy: noisy numbers of rows, paid for beside the clustering.

A row is in one cell of a histogram by kind, cluster, and time or value: its cluster is that of the nearest final centroid, or of a
mixture the most probable component; both are public. So a row more or less changes one cell by one, whatever the grid of times; rows at
risk follow from the cells by sums.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core import outcomes as sums
from flareclust.core.dp.outcomes import possible_counts
from flareclust.core.dp.sums import UNIT
from flareclust.core.outcomes import OutcomeForm
from flareclust.federation.outcomes import ClusterOutcomes, asked_outcome
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.mechanism import deviation_of_total, sigma
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.dp.site import Noise
from flareclust.protocol import cluster_arrays as keys
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import MOST_ROWS, Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor


class NoisyOutcomes(ClusterOutcomes):
    """Asks for noisy numbers of rows by final cluster and outcome, where a job under differential privacy pays for them."""

    params: PrivateParams

    steps = MappingProxyType({StepName.OUTCOME_COUNTS: Step(Schema(counts="o k t"), "outcome_counts", summed=True)})

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the step of algorithms under differential privacy."""
        return cls.steps if executor.private else {}

    def outcome_counts(self, task: Task, rows: SiteRows) -> Message:
        """Return the noisy numbers of rows; no floor cuts them, which would depend on the rows."""
        noise = Noise.granted_for_outcomes(self.params, rows)
        task, form = asked_outcome(task)
        if form.kind == "number":
            raise BadMessage("outcome_form: expected times or categories, of which differential privacy has counts")
        outcomes, labels = self._outcomes(task, rows, form)
        found = sums.counts_by_outcome(outcomes, labels, len(task.arrays["centroids"]), form)
        return {"counts": noise.add_to_sums(found * UNIT, float(UNIT), 1.0, "outcomes") / UNIT}


# The server's side.


def why_unpaid(params: PrivateParams, form: OutcomeForm) -> str:
    """Return why a job under differential privacy has no outcomes; "" where it has some."""
    if form.kind == "number":
        return "a number would need bounds under differential privacy; name an outcome with values, as intervals of type ordered"
    if params.outcome_epsilon is None:
        return "under differential privacy they cost of the sites' budgets what outcome_epsilon says; set it, beside epsilon"
    return ""


def noise_of_totals(params: PrivateParams, round_: Round[Any], replies: Mapping[str, Message]) -> float:
    """Return the standard deviation of the noise of each number of rows, as it is at all sites that answered together."""
    rho = accounting.WHOLE * accounting.rho_of(params.outcome_epsilon or 0.0, params.delta)
    one = sigma(float(params.rows_of_unit), rho)
    if ALL in replies:
        return deviation_of_total(one, round_.state.summed_sites, params.colluding)
    return one * math.sqrt(len(replies))


def possible_arrays(params: PrivateParams, noisy: FloatArray, form: OutcomeForm, noise: float) -> tuple[Message, str]:
    """Return arrays of numbers of rows that can be, from noisy ones (o, k, t), and a sentence about their noise."""
    counts = possible_counts(np.clip(noisy, -MOST_ROWS, MOST_ROWS), form)  # beyond them a site lies
    smallest = int(counts.sum(axis=(0, 2)).min())
    advice = (
        "a wider interval (every) has fewer cells and less noise in all"
        if form.kind == "time"
        else "fewer values have less noise in all"
    )
    text = (
        f"outcomes hold noise of differential privacy (outcome_epsilon={params.outcome_epsilon:g}), a standard deviation of {noise:.2g} rows "
        f"in each of {form.shape[1]:,} numbers of a cluster; the smallest has about {smallest:,} rows. Intervals and tests would not know of "
        f"the noise, so there are none. What helps: a larger outcome_epsilon, more rows, fewer clusters; {advice}"
    )
    return {keys.OUTCOME_COUNTS: counts, keys.OUTCOME_NOISE: np.array(noise)}, text
