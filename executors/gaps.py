"""The site's side of `missing=partial`: rows keep their gaps, and each step completes them for the centroids that it is about.

See `flareclust.core.missing.gaps`. Messages are those of complete rows: means of the completed rows of each cluster, and numbers of
rows. At a site with a policy groups show no gaps, so that there is nothing to complete but columns that no group shows.
"""

from typing import Annotated

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import FloatArray
from flareclust.core.missing.gaps import complete_alone
from flareclust.features.scaling import FILL
from flareclust.preparation.settings import MISSING, PARTIAL, ScaledParams
from flareclust.privacy.context import SiteRows
from flareclust.protocol.params import both
from flareclust.protocol.task import Task

#: Starts of the clustering with which a site completes rows before it clusters them.
_STARTS = 10


#: What missing cells mean where they can be left open. The fields of an algorithm's first base hold, so each declares it anew.
Missing = Annotated[str, OneOf((*MISSING, PARTIAL))]
MISSING_CELLS: str = both(
    "refuse",
    "What missing cells mean: a site that has some takes no part (refuse), they are filled with the mean of their column over all sites (mean), or they count nowhere, neither in distances nor in means (partial).",
)


class GapsParams(ScaledParams):
    """Parameters of algorithms that can leave missing cells open."""

    missing: Missing = MISSING_CELLS

    @model_validator(mode="after")
    def _open_gaps(self) -> "GapsParams":
        if self.missing == PARTIAL and getattr(self, "trim_rows", None):
            raise UserError("missing=partial and trim_rows exclude each other; leave out one of them")
        return self


def complete_site(task: Task, rows: SiteRows, k: int) -> SiteRows:
    """Return the rows (n, d) completed by the site's own k clusters."""
    fill, least = task.arrays[FILL], rows.context.min_count
    return rows.of(*complete_alone(rows.X, fill, k, rows.rng, n_init=_STARTS, least=least, aborted=rows.aborted))


def check_known(data: FloatArray) -> None:
    """Raise Refusal where one of the rows (n, d) has no known cell."""
    if np.isnan(data).all(axis=1).any():
        raise Refusal("has rows without a known cell; leave them out at the site")
