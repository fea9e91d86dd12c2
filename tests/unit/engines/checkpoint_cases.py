"""Rows, and a file, for the tests of checkpoints."""

from pathlib import Path

import numpy as np

from flareclust.aggregators.lloyd import LloydAggregator, LloydState
from flareclust.federation.checkpoint import CHECKPOINT, Checkpoint, Progress, write
from flareclust.federation.refinement import Refinement
from flareclust.protocol.columns import Columns
from flareclust.protocol.rounds import Round

#: The server's side of the job.
SERVER = LloydAggregator(3)

ABOUT = {"algorithm": "lloyd", "k": 3, "params": {"rounds": 4}}


def sites(d=5, n=60, m=3):
    rng = np.random.default_rng(4)
    places = 4.0 * rng.normal(size=(4, d))
    return {f"site-{i}": places[rng.integers(0, 4, n)] + rng.normal(size=(n, d)) for i in range(m)}


def stored(folder: Path) -> Path:
    own = LloydState(left_out=np.array(["a", "bc"]), refinement=Refinement(np.eye(3), 4, 2, best=0.5), split=3)
    columns = Columns(np.ones(3), np.arange(3.0), names=("x", "y"), masks=np.ones((2, 3), dtype=bool), gamma=0.5)
    state = Round({"centroids": np.eye(3)}, False, {"shift": 0.1}, own, "update", 2, columns=columns)
    write(folder / CHECKPOINT, Checkpoint(state, Progress(["a", "b"], ["a"], {"b": "is away"})), ABOUT)
    return folder / CHECKPOINT
