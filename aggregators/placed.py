"""The server's side of a job that only places late sites' rows in the clusters of a finished federation.

The job contains the centroids, so its submitter can choose them. Sums over the rows nearest to chosen centroids would reveal
the rows. So there is no assessment here, and a site sends the number of rows that it has placed, and nothing else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.typing import Message
from flareclust._foundation.version import __version__
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.executor import ClusteringExecutor
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName

#: The arrays of the finished federation that its executor is sent, among the files of the job.
FILE = "placed.npz"

#: What the diagnostics of the only round count: rows of all late sites that were placed.
ROWS = "rows"


class PlacedAggregator(ClusteringAggregator):
    """Sends the result that it has read, of a finished federation of k clusters, and counts the rows."""

    executor = ClusteringExecutor
    asks = (StepName.PLACE,)

    def __init__(self, k: int, seed: int = 0) -> None:
        super().__init__(k, seed)
        self._arrays: Message = {}

    def read(self, folder: Path) -> None:
        """Read the arrays that came with the job."""
        with np.load(folder / FILE, allow_pickle=False) as file:
            self._arrays = {name: file[name] for name in file.files}

    def version(self) -> str:
        """Return the version of flareclust without a digest: which messages the sites have, they know themselves."""
        return __version__

    def begin(self) -> Round[Any]:
        """Return the finished federation, to be placed in."""
        return Round(self._arrays, step=StepName.PLACE)

    def merge(self, round_: Round[Any], replies: Mapping[str, Message], rng: np.random.Generator) -> Round[Any]:
        """Add up the numbers of placed rows; the round is the last."""
        rows = sum(int(reply["rows"]) for reply in replies.values())
        return Round(done=True, diagnostics={ROWS: float(rows)})

    def result(self, round_: Round[Any]) -> Message:
        """Return the arrays of the finished federation."""
        return self._arrays
