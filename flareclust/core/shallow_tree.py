"""A shallow decision tree that tells clusters apart, grown from counts alone.

CART (Breiman et al. 1984) with the Gini impurity: a leaf is split where the impurity of its rows falls most. Leaves at one
depth are split together, from how many rows of each cluster they have in each bin of each column; rows themselves are not
needed, so sites can add up these counts.

Nodes are numbered as in a heap: those of node i are 2 i + 1 (at or below the edge) and 2 i + 2 (above it).
"""

from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: Levels of splits, and the nodes that can be split: those of all levels.
DEPTH = 4
SPLITS = 2**DEPTH - 1

#: A split must lower the impurity of all rows by so much, as a share of what it is at the root.
_LEAST_GAIN = 0.01

#: No leaf has fewer rows than this share of all.
_LEAST_SHARE = 0.01


@dataclass
class Tree:
    """A tree that grows.

    Attributes:
        column: by which each node is split (15,); -1 for none.
        edge: number of the edge in that column (15,).
        rows: of each cluster in each node (31, k); 0 in nodes that are not there.
    """

    column: IntArray
    edge: IntArray
    rows: IntArray

    @classmethod
    def root(cls, k: int) -> "Tree":
        """Return a tree without a split."""
        none = np.full(SPLITS, -1, dtype=np.int64)
        return cls(none, np.zeros(SPLITS, dtype=np.int64), np.zeros((2 * SPLITS + 1, k), dtype=np.int64))

    def grow(self, nodes: IntArray, counts: IntArray) -> IntArray:
        """Split the leaves that it helps to split; return those of the new leaves that may be split next.

        The leaves (l,) are of one depth, with their rows by cluster, column and bin (l, k, d, h).
        """
        opened = []
        for node, own in zip(nodes.tolist(), counts, strict=True):
            if node == 0:
                self.rows[0] = np.median(own.sum(axis=-1), axis=1)  # whole; rounding may make columns differ
            if (found := self._best(own)) is None:
                continue
            self.column[node], self.edge[node], left, right = found
            self.rows[2 * node + 1], self.rows[2 * node + 2] = left, right
            opened += [2 * node + 1, 2 * node + 2]
        worth = [node for node in opened if node < SPLITS and self.rows[node].max() < self.rows[node].sum()]
        return np.array(worth, dtype=np.int64)

    def prune(self) -> None:
        """Take back splits of a node whose two leaves name the same cluster."""
        for node in range(SPLITS - 1, -1, -1):
            children = [2 * node + 1, 2 * node + 2]
            if self.column[node] >= 0 and all(map(self.is_leaf, children)) and len({*map(self.names, children)}) == 1:
                self.column[node] = -1
                self.rows[children] = 0

    def is_leaf(self, node: int) -> bool:
        """Return whether a node that is there is not split."""
        return node >= SPLITS or bool(self.column[node] < 0)

    def names(self, node: int) -> int:
        """Return the cluster that most rows of a node are of."""
        return int(self.rows[node].argmax())

    def leaves(self) -> list[int]:
        """Return the leaves that have rows."""
        return [node for node in range(len(self.rows)) if self.rows[node].any() and self.is_leaf(node)]

    @property
    def accuracy(self) -> float:
        """Return the share of the counted rows that the tree puts into their cluster; NaN without rows."""
        leaves = self.rows[self.leaves()]
        return float(leaves.max(axis=1).sum() / leaves.sum()) if leaves.sum() else float("nan")

    def _best(self, counts: IntArray) -> tuple[int, int, IntArray, IntArray] | None:
        """Return column, edge and rows on both sides of the best split of a leaf (k, d, h); None where none helps."""
        below, total = np.cumsum(counts, axis=-1)[..., :-1], counts.sum(axis=-1)
        above = total[..., None] - below
        if not total.any() or below.shape[-1] == 0:
            return None
        gain = (_impurity(total)[:, None] - _impurity(below) - _impurity(above)).astype(np.float64)
        fewest = max(1.0, _LEAST_SHARE * float(self.rows[0].sum()))
        gain[(below.sum(axis=0) < fewest) | (above.sum(axis=0) < fewest)] = -np.inf
        least = _LEAST_GAIN * float(_impurity(self.rows[0][:, None])[0])
        j, edge = np.unravel_index(int(gain.argmax()), gain.shape)
        return None if not gain[j, edge] > max(least, 0) else (int(j), int(edge), below[:, j, edge], above[:, j, edge])


def _impurity(rows: IntArray) -> FloatArray:
    """Return the number of rows times their Gini impurity, over the first axis, the clusters."""
    n = rows.sum(axis=0)
    return np.asarray(n - (rows.astype(np.float64) ** 2).sum(axis=0) / np.maximum(n, 1))


def reached(bins: IntArray, column: IntArray, edge: IntArray, labels: IntArray, floor: int) -> IntArray:
    """Return the node (n,) that each row ends in, of the bins of its values (n, d) and a tree's splits (15,).

    Where a split would part fewer than `floor` rows of a cluster from the others in its node, they go with these: counts of
    a node less those of one half are never of fewer. Labels (n,) are -1 for rows that are not counted.
    """
    node = np.zeros(len(bins), dtype=np.int64)
    k = int(labels.max(initial=-1)) + 2  # -1 counts as a cluster of its own
    for _ in range(DEPTH):
        at = np.minimum(node, SPLITS - 1)
        moves = (node < SPLITS) & (column[at] >= 0)
        here = at[moves]
        right, cell = (bins[moves, column[here]] > edge[here]).astype(np.int64), here * k + labels[moves] + 1
        sizes = np.bincount(2 * cell + right, minlength=2 * SPLITS * k).reshape(-1, 2)
        few = (sizes > 0) & (sizes < floor)
        right = np.where(few[cell, 0], 1, np.where(few[cell, 1], 0, right))
        node[moves] = 2 * here + 1 + right
    return node
