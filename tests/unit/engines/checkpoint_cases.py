"""Rows, and a file, for the tests of checkpoints."""

from pathlib import Path

import numpy as np

from flareclust.federation.checkpoint import CHECKPOINT, Checkpoint, Progress, write
from flareclust.protocol.rounds import Round

ABOUT = {"algorithm": "lloyd", "k": 3, "params": {"rounds": 4}}


def sites(d=5, n=60, m=3):
    rng = np.random.default_rng(4)
    places = 4.0 * rng.normal(size=(4, d))
    return {f"site-{i}": places[rng.integers(0, 4, n)] + rng.normal(size=(n, d)) for i in range(m)}


def stored(folder: Path) -> Path:
    state = Round({"centroids": np.eye(3)}, False, {"shift": 0.1}, {"names": np.array(["a", "bc"])}, "update", 2)
    write(folder / CHECKPOINT, Checkpoint(state, Progress(["a", "b"], ["a"], {"b": "is away"})), ABOUT)
    return folder / CHECKPOINT
