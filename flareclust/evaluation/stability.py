"""How stable clusters are: whether other runs find each of them again.

Source: Hennig 2007, Cluster-wise assessment of cluster stability, Computational Statistics & Data Analysis 52. A cluster of the
reference run is matched to the cluster of another run that has the largest Jaccard index with it (section 3).

Readings and deviations:
1. The Jaccard index is over all rows of the reference run, each labelled by the other run's centroids; the paper takes the rows
   that were drawn.
2. Stable from 0.85 and unstable below 0.6, as in the paper and in R's `fpc::clusterboot`; what lies between is one class here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: What is changed in a repeat, and what tables call it.
KINDS: Mapping[str, str] = {"seeds": "other seeds", "rows": "resampled rows", "sites": "one site left out"}

#: Mean Jaccard indices from which a cluster is stable, and from which it is uncertain.
STABLE, UNCERTAIN = 0.85, 0.6


@dataclass(frozen=True)
class ClusterStability:
    """How stable one cluster is.

    Attributes:
        cluster: its number in the reference run.
        rows: how many rows it has.
        seeds: mean Jaccard index over repeats with other seeds.
        resampled: mean over repeats with resampled rows.
        left_out: mean over repeats without one site; NaN where there is one site only.
        jaccard: the smallest of these means.
        word: stable (from 0.85), uncertain (from 0.6) or unstable, by `jaccard`.
    """

    cluster: int
    rows: int
    seeds: float
    resampled: float
    left_out: float
    jaccard: float
    word: str

    def to_json(self) -> dict[str, Any]:
        """Return the plain values; None for NaN."""
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value for name, value in vars(self).items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ClusterStability":
        """Return what `to_json` has written."""
        known: dict[str, Any] = {name: np.nan if value is None else value for name, value in values.items()}
        return cls(**known)


def kinds(row_name: str = "rows") -> dict[str, str]:
    """Return what is changed in a repeat, and what tables call it where rows are called so."""
    return {**KINDS, "rows": f"resampled {row_name}"}


def repeats_text(repeats: Mapping[str, int], row_name: str = "rows") -> str:
    """Return how many repeats there were, by what was changed: "20 with other seeds, ..."."""
    return ", ".join(f"{repeats[kind]} with {name}" for kind, name in kinds(row_name).items())


def jaccard(reference: IntArray, other: IntArray, k: int) -> FloatArray:
    """Return for each cluster of a reference (k,) the largest Jaccard index with a cluster of another run; NaN without rows.

    Both are labels of the same rows (n,), -1 for those in no cluster.
    """
    other_k = int(other.max(initial=0)) + 1
    table = np.zeros((k + 1, other_k + 1))  # the last row and column are of -1
    np.add.at(table, (reference, other), 1)
    shared, own = table[:k, :other_k], table[:k].sum(axis=1)
    union = own[:, None] + table[:, :other_k].sum(axis=0) - shared
    found: FloatArray = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0).max(axis=1)
    found[own == 0] = np.nan
    return found


def word(index: float) -> str:
    """Return what a mean Jaccard index means: stable, uncertain or unstable; unknown for NaN."""
    if np.isnan(index):
        return "unknown"
    if index >= STABLE:
        return "stable"
    return "uncertain" if index >= UNCERTAIN else "unstable"
