"""What a hidden cell shows to somebody who knows all other rows: `python -m benchmarks.hidden_cells`.

A cell is hidden where its row is in no group, or where its group has too few known cells in its column. All values that it may
have are tried, and those counted with which the site would show the same table. Made tables, the default floor.
"""

from collections import defaultdict

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.core.microaggregation import grouped, in_order, microaggregate

TABLES, FLOOR, TRIED = 60, 10, 121


def made(rng: np.random.Generator) -> FloatArray:
    """Return a table of values with one decimal, up to two rows far from all others, and gaps."""
    X = np.round(rng.normal(size=(int(rng.choice([60, 150, 300])), int(rng.integers(2, 6)))) * 2 + 10, 1)
    for _ in range(int(rng.integers(0, 3))):
        X[rng.integers(len(X))] *= 20
    X[rng.random(X.shape) < rng.choice([0, 0.3, 0.6, 0.75])] = np.nan
    return in_order(X)


def hidden(X: FloatArray) -> list[tuple[int, int, str]]:
    """Return row, column and reason of each cell whose value no group shows."""
    shown, labels = grouped(X.copy(), FLOOR)
    known = np.argwhere(~np.isnan(X))
    out = [(int(i), int(j), "row in no group") for i, j in known if labels[i] < 0]
    return out + [(int(i), int(j), "few known cells") for i, j in known if labels[i] >= 0 and shown[i, j] != X[i, j]]


def left(X: FloatArray, i: int, j: int) -> int:
    """Return how many of the tried values of a cell give the same table."""
    base = released(X)
    first = X[i, j] - 2 * 60 if abs(X[i, j]) >= 20 else 4.0
    step = 2.0 if abs(X[i, j]) >= 20 else 0.1
    same = 0
    for value in np.round(first + step * np.arange(TRIED), 1):
        other = X.copy()
        other[i, j] = value
        same += int(np.array_equal(released(other), base, equal_nan=True))
    return same


def released(X: FloatArray) -> FloatArray:
    """Return the table that jobs see."""
    return np.concatenate(list(microaggregate(X, FLOOR)))


def main() -> None:
    """Print a line for each kind of cell."""
    rng, found = np.random.default_rng(0), defaultdict(list)
    for _ in range(TABLES):
        X = made(rng)
        cells = hidden(X)
        for number in rng.permutation(len(cells))[:2]:
            i, j, why = cells[number]
            found[f"{why}, {'gaps' if np.isnan(X).any() else 'no gaps'}"].append(left(X, i, j))
    for kind, numbers in sorted(found.items()):
        one = sum(number <= 1 for number in numbers)
        print(f"{kind}: {len(numbers)} cells, {one} with one of {TRIED} values left, median {np.median(numbers):.0f}")


if __name__ == "__main__":
    main()
