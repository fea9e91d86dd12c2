"""FKM for sites with different columns, the server's side: on the columns that all have, or on all with means filled in."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from flareclust._foundation.typing import Message
from flareclust._foundation.validation import check_bool
from flareclust.aggregators.base import Round
from flareclust.aggregators.described import DescribedAggregator
from flareclust.aggregators.fkm import WEIGHTED, FKMAggregator
from flareclust.executors.described import View
from flareclust.executors.fkm_partial import FKMCommonExecutor, FKMImputedExecutor
from flareclust.features.columns import Columns


class FKMCommonAggregator(DescribedAggregator, FKMAggregator):
    """The server of FKM on the columns that all sites have; a job without such a column fails.

    Args:
        k: number of clusters.
        seed: of the job.
        rounds: as for FKM, like all that follow but the last.
        tol: as there.
        n_init: as there.
        start: as there.
        standardize: whether columns are scaled by the federation's mean and standard deviation of each.
    """

    reply = FKMCommonExecutor.reply
    steps = FKMCommonExecutor.steps
    view: ClassVar[View] = FKMCommonExecutor.view

    def __init__(
        self,
        k: int,
        seed: int = 0,
        rounds: int = 10,
        tol: float = 1e-4,
        n_init: int = 10,
        start: str = WEIGHTED,
        standardize: bool = False,
    ) -> None:
        FKMAggregator.__init__(self, k, seed, rounds, tol, n_init, start)
        self.standardize = check_bool("standardize", standardize)

    def merge_described(
        self, round_: Round, columns: Columns, replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round:
        """Merge as FKM does."""
        return FKMAggregator.merge(self, round_, replies, rng)


class FKMImputedAggregator(FKMCommonAggregator):
    """The server of FKM on all columns, with means in the place of those that a site lacks; the arguments are the same."""

    reply = FKMImputedExecutor.reply
    steps = FKMImputedExecutor.steps
    view: ClassVar[View] = FKMImputedExecutor.view
