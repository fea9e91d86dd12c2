"""Tree, the server's side: one tree over the micro-clusters of all sites, and the clusters where it is cut.

Source: Ward's tree after Ward (1963), `flareclust.core.ward_tree`; with `shape="density"` that of HDBSCAN after Campello, Moulavi,
Sander (2013), `flareclust.core.density_tree`. Both are computed from means, numbers of rows and sums of squares.

1. With `cut="longest"` Ward's tree is cut where the ratio of two successive heights is largest, into 2 to k clusters of three
   micro-clusters on average; HDBSCAN's into the clusters with the largest stability, up to k. With a number, the same from it on.
2. More micro-clusters than `MOST` are merged before, by Ward's tree of part after part of them, in the order of the sites.
3. A final centroid is the mean of the rows of the cluster's micro-clusters.
4. A site gets the clusters of its own micro-clusters, as numbers. The result has no micro-cluster of a site, but for a cluster that is
   one: each cluster has up to `REPRESENTATIVES` means of two micro-clusters or more, the sets of Ward's tree within the cluster
   (`flareclust.core.ward_tree.representatives`). Rows that come later belong to the cluster of the nearest of them.
5. Micro-clusters in no cluster have such representatives, too. A cluster reaches to `FAR` root mean square distances of its rows
   from their representatives; rows that come later and are farther from the nearest one are in none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import density_tree, ward_tree
from flareclust.executors import tree
from flareclust.executors.kfed import site_number
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.preparation.placement import FAR
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

#: Most micro-clusters of a tree, which takes time with their square, and of a part that is merged before.
MOST, _PART = 10_000, 2_000

#: Most representatives of a cluster.
REPRESENTATIVES = 64

#: Rows as near to a representative, in parts of its largest coordinate, are at it.
_ROUNDING = 1e-9

#: Where nothing else is asked for, a cluster has the rows of so many mean micro-clusters, at least or on average.
_FEWEST = 3

#: The share of the rows in no micro-cluster above which it is a warning.
_OUTSIDE = 0.05

#: The share of the rows above which it is a warning that they have no label, or the same one as all rows of their site.
_MANY = 0.5


@dataclass(frozen=True, eq=False)
class TreeState(State):
    """What the server keeps for the result: nothing of single micro-clusters."""

    labelled_rows: int | None = None  # in micro-clusters of a cluster
    noise_rows: int | None = None  # and in others
    chosen_k: int | None = None  # where the cut chooses it, their number
    representatives: FloatArray | None = None  # means of sets of micro-clusters, as rows were clustered (p, d)
    representative_cluster: IntArray | None = None  # the cluster of each (p,), -1 for none
    representative_rows: IntArray | None = None  # the rows behind each (p,)
    representative_reach: FloatArray | None = None  # how far the cluster reaches from it (p,)
    linkage: ward_tree.Linkage | None = None  # with `shape="ward"`, the tree over the representatives
    branches: density_tree.Branches | None = None  # with `shape="density"`, the clusters of HDBSCAN's condensed tree

    def arrays(self) -> Message:
        """Return what goes into the result."""
        trees = {"linkage": self.linkage, "branches": self.branches}
        named = {f"{name}_{one}": value for name, of in trees.items() if of for one, value in of._asdict().items()}
        return {**super().arrays(), **named}


class TreeAggregator(ClusteringAggregator):
    """The server of trees of micro-clusters.

    Sent with the result: `group` (c,), the cluster of each micro-cluster received, and `group_site` (c,), whose it is.
    """

    params: tree.TreeParams
    executor = tree.TreeExecutor
    state = TreeState

    @property
    def _least(self) -> int:
        """Return the fewest clusters that are tried."""
        return self.params.k if self.params.cut == "k" else 0 if self.params.cut == "longest" else self.params.cut

    def limits(self, round_: Round[TreeState]) -> dict[str, int]:
        """Return the most micro-clusters of a site."""
        return {"k": self.params.max_groups}

    def merge(
        self, round_: Round[TreeState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[TreeState]:
        """Build the tree and cut it."""
        sent, site = gathered(replies.values())
        if len(site) == len(replies) and 1 < self.params.k < len(site):
            raise JobFailed(
                "no site has enough rows for two micro-clusters, so that whole sites would be merged; give a smaller group_rows, or have "
                "fewer and larger sites"
            )
        received = _Groups(sent["centroids"], sent["counts"], sent["sse"])
        groups, leaf = _fewer(received)
        found, branches = self._clusters(groups)
        cluster = found[leaf]
        final = _joined(received, cluster)
        state = TreeState(
            labelled_rows=int(final.counts.sum()),
            noise_rows=int(received.counts[cluster < 0].sum()),
            chosen_k=len(final.counts) if self.params.cut != "k" else None,
            branches=branches,
            **self._described(received, cluster),
        )
        single = np.bincount(site)[site] == 1
        numbers = np.array([site_number(name) for name in replies], dtype=np.int64)[site]
        diagnostics = {
            "received": float(len(site)),
            "clusters": float(len(final.counts)),
            "undivided_share": float(received.counts[single].sum() / received.counts.sum()),
        }
        task = {"centroids": final.means, "group": cluster, "group_site": numbers}
        return Round(task, True, diagnostics, state)

    def metrics(self, round_: Round[TreeState]) -> dict[str, float | None]:
        """Return how many rows are in micro-clusters of no cluster, which HDBSCAN calls noise."""
        return {"noise_rows": float(round_.state.noise_rows or 0)} if self.params.shape == "density" else {}

    def warnings(self, round_: Round[TreeState], assessed: Mapping[str, Message]) -> list[str]:
        """Say where there are fewer clusters than asked for, or where many rows are in none, or in no micro-cluster."""
        state, numbers, found = round_.state, round_.diagnostics, []
        k, labelled, noise = int(numbers["clusters"]), state.labelled_rows or 0, state.noise_rows or 0
        smaller = "min_cluster_size, min_samples or group_rows" if self.params.shape == "density" else "group_rows"
        least, most = self._least, self.params.k
        if k < least:
            asked = f"k={least}{' or more' if least < most else ''}"
            found.append(f"the tree has {k} clusters at most where {asked} was asked for; give smaller {smaller}")
        elif least <= k == 1 < most:
            found.append(f"the tree has one cluster only; give smaller {smaller} to look for smaller clusters")
        elif least < most and (k == most > 1 or k == least > 2):
            end = "most that were tried; give a larger k" if k == most else "fewest that were tried; try fewer"
            found.append(f"the cut that lasts longest has k={k} clusters, the {end}")
        if noise > _MANY * (labelled + noise):
            share = noise / (labelled + noise)
            found.append(f"{share:.0%} of the rows are in no cluster; give smaller {smaller}, or shape=ward")
        rows = sum(int(reply["counts"].sum()) for reply in assessed.values())
        if (outside := rows - labelled - noise) > _OUTSIDE * rows:
            found.append(
                f"{outside / rows:.0%} of the rows are in no micro-cluster, and have no label: they are far from others of their site, or a "
                "mean of such few would show them; give a larger group_rows"
            )
        if numbers["undivided_share"] > _MANY:
            found.append(
                f"{numbers['undivided_share']:.0%} of the rows are at sites with a single micro-cluster, all of whose rows are in the same "
                "cluster; give a smaller group_rows"
            )
        return found

    def _clusters(self, groups: "_Groups") -> tuple[IntArray, density_tree.Branches | None]:
        """Return the cluster of each group (g,), -1 for none, and with `shape="density"` the clusters of the tree."""
        k, least = (min(number, len(groups.counts)) for number in (self.params.k, self._least))
        if self.params.shape == "ward":
            linkage = ward_tree.ward_linkage(groups.means, groups.counts)
            most = max(least, min(k, len(groups.counts) // _FEWEST))
            number = k if least == k else ward_tree.longest_lived(linkage, most, max(least, 2))
            return ward_tree.cut(linkage, number), None
        usual = round(_FEWEST * float(groups.counts.mean()))
        size = self.params.min_cluster_size or usual
        linkage, core = density_tree.density_linkage(*groups, self.params.min_samples or size)
        whole = density_tree.condensed(linkage, core, groups.counts, size)
        chosen = density_tree.select_clusters(whole, k, least)
        branches = density_tree.Branches(whole.parent, whole.birth, whole.death, whole.rows, chosen)
        return chosen[whole.cluster], branches

    def _described(self, groups: "_Groups", cluster: IntArray) -> dict[str, Any]:
        """Return what stands for the clusters in the result, by the fields of the state."""
        label = ward_tree.representatives(groups.means, groups.counts, cluster, REPRESENTATIVES)
        sets = _joined(groups, label)
        of = np.empty(len(sets.counts), np.int64)
        of[label[label >= 0]] = cluster[label >= 0]
        k, least = int(of.max()) + 2, _ROUNDING * float(np.abs(sets.means).max())  # k with those in none, the last
        squares = np.bincount(of % k, sets.sse, k) / np.maximum(np.bincount(of % k, sets.counts, k), 1)
        return {
            "representatives": sets.means,
            "representative_cluster": of,
            "representative_rows": sets.counts,
            "representative_reach": np.maximum(FAR * np.sqrt(squares), least)[of % k],
            "linkage": ward_tree.ward_linkage(sets.means, sets.counts) if self.params.shape == "ward" else None,
        }


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
        own = ward_tree.ward_linkage(groups.means[part], groups.counts[part])
        kept = max(1, (part.stop - start) * MOST // c)
        leaf[part] = ward_tree.cut(own, kept) + found
        found += kept
    return _joined(groups, leaf), leaf


def _joined(groups: _Groups, label: IntArray) -> _Groups:
    """Return what the groups with each label (c,) are together; those of -1 are in none."""
    used, k = label >= 0, int(label.max()) + 1
    label, rows = label[used], groups.counts[used]
    near, total = groups.means[used].mean(axis=0), np.bincount(label, rows, k)
    means = np.column_stack([np.bincount(label, rows * column, k) / total for column in (groups.means[used] - near).T])
    apart = ((groups.means[used] - near - means[label]) ** 2).sum(axis=1)
    sse: FloatArray = np.bincount(label, groups.sse[used] + rows * apart, k).astype(np.float64)
    return _Groups(means + near, total.astype(np.int64), sse)
