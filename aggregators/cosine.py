"""The server's side of `metric=cosine`: the centroids that sites are sent, and those of the result, have length 1.

An algorithm merges means of rows of length 1, which are shorter the more the rows differ; their directions are the
centroids of spherical k-means (Dhillon and Modha 2001, section 3).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.aggregators.scaled import ScaledAggregator
from flareclust.core.scaling import of_length_one
from flareclust.executors import parameters
from flareclust.executors.cosine import MetricParams
from flareclust.features.scaling import LENGTH_ONE, OPEN_GAPS


class MetricAggregator(ScaledAggregator):
    """A server that brings centroids to length 1 where the job says so. The result has `length_one` then."""

    params: MetricParams

    def directed(self, centroids: FloatArray) -> FloatArray:
        """Return centroids (k, d) as the metric has them."""
        return of_length_one(centroids) if self.params.metric == parameters.COSINE else centroids

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Merge a round; what is sent next are directions."""
        after = super().advance(round_, replies)
        sent: Message = {
            name: self.directed(after.task[name]) for name in ("centroids", "candidates") if name in after.task
        }
        return replace(after, task={**after.task, **sent})

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, and whether it is of rows of length 1."""
        arrays = super().result(round_)
        if self.params.missing == parameters.PARTIAL:
            arrays = arrays | {OPEN_GAPS: np.array(True)}
        return arrays | {LENGTH_ONE: np.array(True)} if self.params.metric == parameters.COSINE else arrays

    def secured(self) -> ClusteringAggregator:
        """Return this aggregator as it works with totals only; raise UserError where gaps stay open."""
        if self.params.missing == parameters.PARTIAL:
            raise UserError(f"missing={parameters.PARTIAL} does not go with secure_sums; take missing=mean")
        return super().secured()
