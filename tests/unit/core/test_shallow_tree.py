"""A shallow tree grown from counts."""

import numpy as np
import pytest

from flareclust.core.shallow_tree import Tree, reached


def test_a_tree_worked_by_hand():
    """Two columns of three bins: column 0 separates cluster 0 after its first bin, column 1 the others after its second."""
    root = np.zeros((1, 3, 2, 3), dtype=np.int64)
    root[0, 0] = [[10, 0, 0], [4, 3, 3]]
    root[0, 1] = [[0, 6, 4], [5, 5, 0]]
    root[0, 2] = [[1, 4, 5], [0, 1, 9]]
    tree = Tree.root(3)
    # Gini times rows: 30 - 300/30 = 20. Column 0 after bin 0: 11 - 101/11 + 19 - 181/19 = 11.29; all others leave 17 or more.
    nodes = tree.grow(np.array([0]), root)
    assert (tree.column[0], tree.edge[0]) == (0, 0)
    assert tree.rows[1].tolist() == [10, 0, 1]
    assert tree.rows[2].tolist() == [0, 10, 9]
    assert nodes.tolist() == [1, 2]
    level = np.zeros((2, 3, 2, 3), dtype=np.int64)
    level[0, 0], level[0, 2] = [[10, 0, 0], [4, 3, 3]], [[1, 0, 0], [0, 0, 1]]
    level[1, 1], level[1, 2] = [[0, 6, 4], [5, 5, 0]], [[0, 4, 5], [0, 1, 8]]
    nodes = tree.grow(nodes, level)
    assert (tree.column[2], tree.edge[2]) == (1, 1)
    assert tree.rows[5].tolist() == [0, 10, 1]
    assert tree.rows[6].tolist() == [0, 0, 8]
    tree.prune()
    assert tree.leaves() == [1, 5, 6]
    assert tree.accuracy == pytest.approx(28 / 30)


def test_the_accuracy_is_that_of_the_rows_and_rows_reach_the_leaves_that_counted_them():
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 6, (600, 2))
    labels = (bins[:, 0] > 2).astype(np.int64) + (bins[:, 1] > 3)
    tree, nodes = Tree.root(3), np.array([0])
    for _ in range(4):
        at = reached(bins, tree.column, tree.edge, labels, 1)
        counts = np.zeros((len(nodes), 3, 2, 6), dtype=np.int64)
        for i, node in enumerate(nodes):
            for c in range(3):
                own = bins[(at == node) & (labels == c)]
                counts[i, c] = [np.bincount(own[:, j], minlength=6) for j in range(2)]
        nodes = tree.grow(nodes, counts)
    tree.prune()
    leaves = reached(bins, tree.column, tree.edge, labels, 1)
    named = np.array([tree.names(leaf) for leaf in leaves])
    assert tree.accuracy == pytest.approx((named == labels).mean())
    assert tree.accuracy == 1.0


def test_rows_that_nothing_tells_apart_are_not_split():
    tree = Tree.root(2)
    assert len(tree.grow(np.array([0]), np.full((1, 2, 3, 4), 10))) == 0
    assert tree.leaves() == [0]
    assert tree.accuracy == 0.5


def test_counts_of_a_node_less_those_of_one_half_are_of_no_few_rows():
    bins = np.array([[0]] * 39 + [[1]])
    column, edge = np.full(15, -1), np.zeros(15, dtype=np.int64)
    column[0] = 0
    one = np.zeros(40, dtype=np.int64)
    assert set(reached(bins, column, edge, one, 1)) == {1, 2}
    assert set(reached(bins, column, edge, one, 2)) == {1}
    others = np.where(np.arange(40) < 37, 0, 1)  # of the second cluster two rows are left and one is right
    assert reached(bins, column, edge, others, 2).tolist() == [1] * 40
    assert reached(bins[::-1], column, edge, np.full(40, -1), 1)[0] == 2
