"""Tree, the server's side: one tree over the micro-clusters of all sites, and the clusters where it is cut.

Source: Ward's tree after Ward (1963), `flareclust.core.ward_tree`; with `shape="density"` that of HDBSCAN after Campello, Moulavi,
Sander (2013), `flareclust.core.density_tree`. Both are computed from means, numbers of rows and sums of squares.

1. With `cut="longest"` Ward's tree is cut where the ratio of two successive heights is largest, into 2 to k clusters of three
   micro-clusters on average; HDBSCAN's into the clusters with the largest stability, up to k.
2. More micro-clusters than `MOST` are merged before, by Ward's tree of part after part of them, in the order of the sites.
3. A final centroid is the mean of the rows of the cluster's micro-clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import density_tree
from flareclust.core.ward_tree import Linkage, cut, longest_lived, ward_linkage
from flareclust.executors import tree
from flareclust.executors.kfed import site_number
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

#: Most micro-clusters of a tree, which takes time with their square, and of a part that is merged before.
MOST, _PART = 10_000, 2_000

#: Where nothing else is asked for, a cluster has the rows of so many mean micro-clusters, at least or on average.
_FEWEST = 3

#: The share of the rows without a label above which it is a warning.
_MANY = 0.5


@dataclass(frozen=True, eq=False)
class TreeState(State):
    """What the server knows. Trees are over g groups: the c micro-clusters received, or what these were merged into."""

    received_centroids: FloatArray | None = None  # the micro-clusters' means (c, d)
    received_counts: IntArray | None = None  # their rows (c,)
    received_sse: FloatArray | None = None  # and sums of squares (c,)
    received_site: IntArray | None = None  # the number of the site of each (c,)
    leaf: IntArray | None = None  # its place in the tree (c,)
    linkage: Linkage | None = None  # the tree's merges (g-1,)
    condensed: density_tree.CondensedTree | None = None  # with `shape="density"`
    counts: IntArray | None = None  # the rows behind each cluster (k,)
    chosen_k: int | None = None  # with `cut="longest"`, their number

    def arrays(self) -> Message:
        """Return what goes into the result."""
        trees = {"linkage": self.linkage, "condensed": self.condensed}
        named = {f"{name}_{one}": value for name, of in trees.items() if of for one, value in of._asdict().items()}
        return {**super().arrays(), **named}


class TreeAggregator(ClusteringAggregator):
    """The server of trees of micro-clusters.

    Sent with the result: `received_group` (c,), the cluster of each micro-cluster received, and `group_site` (c,), whose it is.
    """

    params: tree.TreeParams
    executor = tree.TreeExecutor
    state = TreeState

    def limits(self, round_: Round[TreeState]) -> dict[str, int]:
        """Return the most micro-clusters of a site."""
        return {"k": self.params.max_groups}

    def merge(
        self, round_: Round[TreeState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[TreeState]:
        """Build the tree and cut it."""
        sent, site = gathered(replies.values())
        received = _Groups(sent["centroids"], sent["counts"], sent["sse"])
        groups, leaf = _fewer(received)
        linkage, condensed, found = self._tree(groups)
        cluster = found[leaf]
        final = _joined(received, cluster)
        numbers = np.array([site_number(name) for name in replies], dtype=np.int64)[site]
        chosen = len(final.counts) if self.params.cut == "longest" else None
        state = TreeState(*received, site, leaf, linkage, condensed, final.counts, chosen)
        in_none = int(received.counts[cluster < 0].sum())
        diagnostics = {
            "received": float(len(site)),
            "clusters": float(len(final.counts)),
            "unlabelled_rows": float(in_none),
        }
        task = {"centroids": final.means, "received_group": cluster, "group_site": numbers}
        return Round(task, True, diagnostics, state)

    def warnings(self, round_: Round[TreeState], assessed: Mapping[str, Message]) -> list[str]:
        """Say where there are fewer clusters than asked for, or where many rows are in none."""
        counts, numbers, found = round_.state.counts, round_.diagnostics, []
        k, n = int(numbers["clusters"]), 0.0 if counts is None else float(counts.sum())
        smaller = "min_cluster_size, min_samples or group_rows" if self.params.shape == "density" else "group_rows"
        if self.params.cut == "k" and k < self.params.k:
            found.append(
                f"the tree has {k} clusters at most where k={self.params.k} was asked for; give smaller {smaller}"
            )
        if self.params.cut == "longest" and k == 1 < self.params.k:
            found.append(f"the tree has one cluster only; give smaller {smaller} to look for smaller clusters")
        if self.params.cut == "longest" and k == self.params.k:
            found.append(f"the cut that lasts longest has k={k} clusters, the most that were tried; give a larger k")
        share = numbers["unlabelled_rows"] / max(1.0, n + numbers["unlabelled_rows"])
        if share > _MANY:
            found.append(f"{share:.0%} of the rows are in no cluster; give smaller {smaller}, or shape=ward")
        return found

    def _tree(self, groups: "_Groups") -> tuple[Linkage, density_tree.CondensedTree | None, IntArray]:
        """Return the tree over groups, its condensed form if it has one, and the cluster of each group (g,), -1 for none."""
        k, exactly = min(self.params.k, len(groups.counts)), self.params.cut == "k"
        if self.params.shape == "ward":
            linkage = ward_linkage(groups.means, groups.counts)
            most = min(k, len(groups.counts) // _FEWEST)
            return linkage, None, cut(linkage, k if exactly else longest_lived(linkage, most))
        usual = round(_FEWEST * float(groups.counts.mean()))
        size = self.params.min_cluster_size or usual
        linkage, core = density_tree.density_linkage(*groups, self.params.min_samples or size)
        condensed = density_tree.condensed(linkage, core, groups.counts, size)
        return linkage, condensed, density_tree.select_clusters(condensed, k, exactly=exactly)


class _Groups(NamedTuple):
    """Groups of rows: their means (g, d), numbers of rows (g,) and sums of squares (g,)."""

    means: FloatArray
    counts: IntArray
    sse: FloatArray


def _fewer(groups: _Groups) -> tuple[_Groups, IntArray]:
    """Return at most about `MOST` groups, and which of them each group (c,) is in."""
    c = len(groups.counts)
    leaf = np.arange(c)
    if c <= MOST:
        return groups, leaf
    found = 0
    for start in range(0, c, _PART):
        part = slice(start, min(start + _PART, c))
        own = ward_linkage(groups.means[part], groups.counts[part])
        kept = max(1, (part.stop - start) * MOST // c)
        leaf[part] = cut(own, kept) + found
        found += kept
    return _joined(groups, leaf), leaf


def _joined(groups: _Groups, label: IntArray) -> _Groups:
    """Return what the groups with each label (c,) are together; those of -1 are in none."""
    used, k = label >= 0, int(label.max()) + 1
    label, rows = label[used], groups.counts[used]
    near = groups.means[used].mean(axis=0)
    total = np.bincount(label, rows, k)
    means = np.column_stack([np.bincount(label, rows * column, k) / total for column in (groups.means[used] - near).T])
    apart = ((groups.means[used] - near - means[label]) ** 2).sum(axis=1)
    sse: FloatArray = np.bincount(label, groups.sse[used] + rows * apart, k).astype(np.float64)
    return _Groups(means + near, total.astype(np.int64), sse)
