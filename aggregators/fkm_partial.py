"""FKM for sites with different columns, the server's side: on the columns that all have, or on all with means filled in."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.aggregators.base import Round
from flareclust.aggregators.described import DescribedAggregator
from flareclust.aggregators.fkm import FKMAggregator
from flareclust.executors import fkm_partial
from flareclust.executors.described import View
from flareclust.features.columns import Columns


class FKMCommonAggregator(DescribedAggregator, FKMAggregator):
    """The server of FKM on the columns that all sites have; a job without such a column fails."""

    params: fkm_partial.FKMPartialParams  # type: ignore[assignment]  # FKM's, without those of robust

    steps = fkm_partial.FKMCommonExecutor.steps
    view: ClassVar[View] = fkm_partial.FKMCommonExecutor.view

    def merge_described(
        self, round_: Round, columns: Columns, replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round:
        """Merge as FKM does."""
        return FKMAggregator.merge(self, round_, replies, rng)


class FKMImputedAggregator(FKMCommonAggregator):
    """The server of FKM on all columns, with means in the place of those that a site lacks; the arguments are the same."""

    steps = fkm_partial.FKMImputedExecutor.steps
    view: ClassVar[View] = fkm_partial.FKMImputedExecutor.view
