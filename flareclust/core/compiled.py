"""Compiling the kernels of reading tables, k-means and private sums once, so that processes started later load them from disk."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from flareclust._foundation.machine import usable_cores
from flareclust._foundation.typing import FloatArray
from flareclust.core.arrays import TURNED, turn
from flareclust.core.assessment import assessment_sums
from flareclust.core.disclosure import describable
from flareclust.core.dp.sums import add_rows
from flareclust.core.group_kernels import add_means, columns_that_vary, rows_unlike, squares_of_each
from flareclust.core.kernels import nearest_centroids
from flareclust.core.lloyd import assign, cluster_statistics, lloyd, recompute_centroids
from flareclust.core.pyramid import build, pyramid_steps
from flareclust.core.screen import labels_once
from flareclust.core.seeds import farthest_first, kmeans_plusplus


def compiles_first() -> bool:
    """Return whether the next use compiles the kernels and keeps them on disk, which takes seconds; later ones load them."""
    stats = getattr(nearest_centroids, "stats", None)  # numba can be switched off
    if stats is None or stats.cache_path is None:
        return False
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    kept = Path(stats.cache_path).glob(f"kernels.{nearest_centroids.__name__}-*.{version}*.nbi")
    source = Path(nearest_centroids.__code__.co_filename).stat().st_mtime
    return not any(file.stat().st_mtime >= source for file in kept)


def compile_side_by_side() -> None:
    """Compile the kernels in processes of their own, which keep them on disk; nothing where there is one core, or no Python to start."""
    if usable_cores() == 1 or not sys.executable:
        return
    codes = [f"from flareclust.core import compiled; compiled.{part.__name__}()" for part in (iterations, starts)]
    nowhere = subprocess.DEVNULL
    with ExitStack() as ended:
        for code in codes:
            command = [sys.executable, "-c", code]
            ended.enter_context(subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere))


def warm_up() -> None:
    """Compile every kernel of reading tables, of k-means and of private sums, or load it from the cache on disk."""
    iterations()
    starts()


def iterations() -> None:
    """Compile the iterations of k-means, labels, and what is asked of clusters."""
    X, ones = _rows()
    found = lloyd(X, X[:2], max_iter=1)  # ends before the labels settle
    recompute_centroids(X, found)
    describable(X, found.labels, found.centroids, 1)
    cluster_statistics(X, found.labels, found.centroids)
    labels, _ = assign(X, X[:2])
    labels_once(X, X[0], 0.25, X[:2], labels)
    pyramid = build(X, ones, np.zeros(2), 1, 3.0)
    assert pyramid is not None
    pyramid_steps(pyramid, np.zeros(2), X[:2].copy(), np.full((2, 2), np.nan), 1, 0.0)


def starts() -> None:
    """Compile the starts of k-means, and the rest."""
    X, ones = _rows()
    labels = np.array([0, 1, 1])
    kmeans_plusplus(X, 2, np.random.default_rng(0))
    farthest_first(X, 2, [0])
    farthest_first(np.eye(5), 2, [0])
    columns_that_vary(X, labels, 2)
    squares_of_each(X, labels, X[:2])
    rows_unlike(X, X[0])
    add_means(X[:2], ones[:2], labels[:2], X[:2].copy(), np.zeros(2, np.bool_), np.zeros((2, 2)))
    assessment_sums(X, X[:2])
    ones.flags.writeable = False
    turn((ones,) * TURNED, np.zeros(TURNED, np.int64), np.empty((3, 1)))
    add_rows(np.ones((3, 4), np.int64), labels, np.zeros((2, 4), np.int64))


def _rows() -> tuple[FloatArray, FloatArray]:
    return np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]]), np.ones(3)
