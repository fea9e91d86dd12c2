"""How many rows a hospital needs: with fewer, a policy's groups blur the clusters (docs/limits.md).

    python -m benchmarks.rows_needed

Five sites have rows of k round clusters of the same size in d columns, whose centers are drawn with four times the clusters' own
spread. Of `portfolio` with `polish=0` it prints the fewest rows of one site, of those tried, from which on the inertia of its
centroids on all rows is within 5 % of that of k-means on the pooled rows, in the mean of three draws.
"""

from collections.abc import Iterator

import numpy as np
from sklearn.cluster import KMeans

import flareclust
from flareclust._foundation.typing import FloatArray

SITES, DRAWS, WITHIN = 5, 3, 1.05
TRIED = (20, 40, 80, 160, 320)
SHAPES = ((3, 2), (3, 10), (8, 2), (8, 10))
FLOORS = (None, 5, 10, 20)


def main() -> None:
    """Print the table."""
    print(
        "| clusters, columns | "
        + " | ".join("no policy" if floor is None else f"floor {floor}" for floor in FLOORS)
        + " |"
    )
    print("| --- |" + " ---: |" * len(FLOORS))
    for k, d in SHAPES:
        print(f"| {k}, {d} | " + " | ".join(_least(k, d, floor) for floor in FLOORS) + " |", flush=True)


def _least(k: int, d: int, floor: int | None) -> str:
    """Return the fewest rows of a site with which, and with all larger numbers tried, the result is good enough."""
    least = f"more than {TRIED[-1]}"
    for n in reversed(TRIED):
        if np.mean(list(_ratios(k, d, floor, n))) > WITHIN:
            return least
        least = str(n)
    return f"{least} or fewer"


def _ratios(k: int, d: int, floor: int | None, n: int) -> Iterator[float]:
    """Give the inertia of each draw, over that of k-means on the pooled rows; infinity where no site took part."""
    for draw in range(DRAWS):
        sites = _sites(k, d, n, draw)
        rows = np.concatenate(list(sites.values()))
        pooled = KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
        policy = None if floor is None else {"min_count": floor}
        try:
            found = flareclust.run("portfolio", sites, k, policy=policy, profile=False, polish=0)
        except flareclust.JobFailed:
            yield np.inf
            continue
        nearest = ((rows[:, None] - found.centroids[None]) ** 2).sum(axis=2).min(axis=1)
        yield float(nearest.sum() / pooled)


def _sites(k: int, d: int, n: int, draw: int) -> dict[str, FloatArray]:
    rng = np.random.default_rng(draw)
    centers = 4 * rng.normal(size=(k, d))
    return {f"site-{i}": centers[rng.integers(k, size=n)] + rng.normal(size=(n, d)) for i in range(SITES)}


if __name__ == "__main__":
    main()
