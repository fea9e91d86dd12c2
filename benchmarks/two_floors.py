"""What a change of a policy's floor gives away: rows that are the difference of groups with one floor and with another.

    FLARECLUST_DATA=<folder> python -m benchmarks.two_floors

Whoever has the results of jobs under both floors can learn size and mean of every group of both kinds. Where two of them are
the same but for one row, or two unions of them, that row is the difference of their sums. It is exact where no value of these
groups was moved to others (`flareclust.core.microaggregation`).
"""

import numpy as np

from benchmarks.attacks.case import recovered
from benchmarks.attacks.server import group_sums
from benchmarks.attacks.victim import rows_of
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.microaggregation import groups_of, released

DATA = ("digits", "s1", "iris")
FLOORS = ((10, 11), (10, 12), (10, 15), (10, 20))


def of_two_groups(one: IntArray, other: IntArray) -> int:
    """Return how many rows are all that a group of one kind (n,) has beyond a group of the other (n,); -1 is no group."""
    n, m = one.max() + 1, other.max() + 1
    common = np.zeros((n, m), dtype=np.int64)
    both = (one >= 0) & (other >= 0)
    np.add.at(common, (one[both], other[both]), 1)
    sizes = np.bincount(one[one >= 0], minlength=n)[:, None] + np.bincount(other[other >= 0], minlength=m)
    pairs = np.argwhere(sizes - 2 * common == 1)
    return len({int(np.flatnonzero((one == i) != (other == j))[0]) for i, j in pairs})


def of_unions(one: IntArray, other: IntArray) -> int:
    """Return how many rows are all that a union of groups of one kind (n,) has beyond a union of groups of the other (n,).

    Rows join their two groups, and such a row is the only link between two parts: a bridge of that graph.
    """
    n = one.max() + other.max() + 2
    links: dict[int, list[tuple[int, int]]] = {}
    for row, (i, j) in enumerate(zip(one.tolist(), other.tolist(), strict=True)):
        first, second = i if i >= 0 else n, one.max() + 1 + j if j >= 0 else n  # n stands for no group
        if first != second:
            links.setdefault(first, []).append((second, row))
            links.setdefault(second, []).append((first, row))
    return sum(_is_bridge(links, row) for row in range(len(one)))


def _is_bridge(links: dict[int, list[tuple[int, int]]], row: int) -> bool:
    """Return whether the ends of a row's link are not linked otherwise."""
    ends = [place for place, own in links.items() if any(other == row for _, other in own)]
    if not ends:
        return False
    seen, left = {ends[0]}, [ends[0]]
    while left:
        new = {place for place, other in links[left.pop()] if other != row} - seen
        seen |= new
        left += new
    return ends[1] not in seen


def exact(rows: FloatArray, floors: tuple[int, int]) -> int:
    """Return how many of the rows (n, d) are the difference of two sums, to a millionth of a standard deviation."""
    (sums, sizes), (others, counts) = (group_sums(rows, floor) for floor in floors)
    pairs = np.argwhere(np.abs(sizes[:, None] - counts) == 1)
    return recovered([(sizes[i] - counts[j]) * (sums[i] - others[j]) for i, j in pairs], rows)


def line(data: str, floors: tuple[int, int]) -> str:
    """Return a line of the table in docs/policies.md."""
    rows = rows_of(data)
    ordered = rows[np.lexsort(rows.T[::-1])]
    one, other = (released(ordered, groups_of(ordered, floor))[1] for floor in floors)
    found = (of_two_groups(one, other), exact(rows, floors), of_unions(one, other))
    return f"| {data}, {len(rows):,} rows | {floors[0]} and {floors[1]} | {' | '.join(map(str, found))} |"


def main() -> None:
    """Print the table."""
    print("| data | floors | difference of two groups | of these exact | difference of unions of groups |")
    print("| --- | --- | --- | --- | --- |")
    for data in DATA:
        for floors in FLOORS:
            print(line(data, floors), flush=True)


if __name__ == "__main__":
    main()
