"""Rows by their direction, `metric=cosine`: prepared columns (`flareclust.executors.scaled`) bring rows to length 1.

Between rows and centroids of length 1 the nearest by Euclidean distance is the one of largest cosine. The server brings
centroids to length 1 (`flareclust.aggregators.scaled`); what sites send are means of rows of length 1, so that they add up.
Source: Dhillon and Modha (2001), Concept decompositions for large sparse text data using clustering, section 3.
"""

from typing import Annotated

from pydantic import model_validator

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import FloatArray
from flareclust.core.scaling import without_direction
from flareclust.executors.gaps import GapsParams
from flareclust.preparation.settings import COSINE, EUCLIDEAN, METRIC, PARTIAL
from flareclust.protocol.params import Params, both


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


def by_direction(params: Params) -> bool:
    """Return whether a job clusters rows by their direction."""
    return isinstance(params, MetricParams) and params.metric == COSINE


def check_directions(data: FloatArray) -> None:
    """Raise Refusal where one of the rows (n, d) has no direction."""
    if without_direction(data).any():
        raise Refusal(
            f"has rows of zeros only, which have no direction; leave them out at the site, or take metric={EUCLIDEAN}"
        )
