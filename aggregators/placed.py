"""The server's side of a job that only places late sites' rows in the clusters of a finished federation.

There is nothing to merge: the first and only exchange is the assessment, with the arrays that the job brings along.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flareclust import registry
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.errors import JobFailed
from flareclust.typing import Message

#: The arrays of the finished federation that its executor is sent, among the files of the job.
FILE = "placed.npz"

#: What the result counts: rows of all late sites that were placed.
ROWS = "rows"


class PlacedAggregator(ClusteringAggregator):
    """Sends what it has read and gathers the assessment of it.

    Args:
        k: number of clusters of the finished federation.
        seed: of its job.
        algorithm: its algorithm, which knows how to read the assessment.
        settings: that algorithm's own.
    """

    def __init__(self, k: int, seed: int = 0, algorithm: str = "", settings: dict[str, Any] | None = None) -> None:
        self.algorithm, self.settings = algorithm, settings
        self._arrays: Message = {}
        super().__init__(k, seed)

    def read(self, folder: Path) -> None:
        """Read the arrays that came with the job."""
        with np.load(folder / FILE, allow_pickle=False) as file:
            self._arrays = {name: file[name] for name in file.files}

    def begin(self) -> Round:
        """Return the finished federation."""
        return Round(self._arrays, done=True)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Never needed: no round precedes the assessment."""
        raise JobFailed("a job that places late sites has no rounds")

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return the metrics over the late sites' rows, and how many they are."""
        _, inner = registry.get(self.algorithm).build(self.k, self.seed, self.settings or {})
        return {**inner.quality(round_, sums), ROWS: float(sums["counts"].sum())}
