"""The site's side of `metric=cosine`: rows are scaled to length 1, and the algorithm works on the scaled rows.

Between rows and centroids of length 1 the nearest by Euclidean distance is the one of largest cosine. The server brings
centroids to length 1 (`flareclust.aggregators.cosine`); what sites send are means of rows of length 1, so that they add up.
Source: Dhillon and Modha (2001), Concept decompositions for large sparse text data using clustering, section 3.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.scaling import of_length_one, without_direction
from flareclust.data.tables import Table
from flareclust.executors import partwise
from flareclust.executors.gaps import GapsExecutor, GapsParams
from flareclust.executors.parameters import COSINE, EUCLIDEAN, METRIC, PARTIAL
from flareclust.privacy.context import SiteRows
from flareclust.protocol.params import both
from flareclust.protocol.task import Task


class MetricParams(GapsParams):
    """Parameters of algorithms that can cluster rows by their direction."""

    metric: Annotated[str, OneOf(METRIC)] = both(
        EUCLIDEAN, "The distance of rows and centroids; cosine is for embeddings, whose length says nothing."
    )

    @model_validator(mode="after")
    def _no_scaled_directions(self) -> "MetricParams":
        if self.metric == COSINE and self.scale != "none":
            raise UserError(f"metric={COSINE} and scale={self.scale} exclude each other; leave out one of them")
        if self.metric == COSINE and self.missing == PARTIAL:
            raise UserError(f"metric={COSINE} and missing={PARTIAL} exclude each other; take missing=mean")
        return self


class MetricExecutor(GapsExecutor):
    """A site whose rows are brought to length 1 where the job says so."""

    params: MetricParams

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return the task, and rows of length 1; those at the origin stay there."""
        task, table = super().viewed(task, table)
        return task, replace(table, X=of_length_one(table.X)) if self.params.metric == COSINE else table

    @partwise.computed_by(partwise.labels)
    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row; -1 for rows without a direction, which a site with a policy can have."""
        labels = super().labels(task, rows)
        return np.where(without_direction(rows.X), -1, labels) if self.params.metric == COSINE else labels

    def _check_task(self, task: Task, data: FloatArray) -> None:
        super()._check_task(task, data)
        if self.params.metric == COSINE and without_direction(data).any():
            raise Refusal(
                f"has rows of zeros only, which have no direction; leave them out at the site, or take metric={EUCLIDEAN}"
            )
