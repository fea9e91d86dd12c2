"""Federations that the papers generate: rows by site, with the cluster that each row was drawn from.

n rows, d features, k clusters, m sites; all rows are float64 and every random choice comes from the generator given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.datasets import Dataset
from flareclust.data.partition import partition

#: Coordinates of the 4 x 4 grid of Garst and Reinders 2024, figure 1: 16 means, 5 apart.
GRID = (-7.5, -2.5, 2.5, 7.5)


@dataclass(frozen=True, eq=False)
class Federation:
    """Rows that are spread over sites.

    Attributes:
        sites: rows (n_i, d) by site.
        y: true cluster (n_i,) of each row by site; None where it is not known.
        means: (k, d) true means; None where they are not known.
    """

    sites: Mapping[str, FloatArray]
    y: Mapping[str, IntArray] | None = None
    means: FloatArray | None = None

    @property
    def n(self) -> int:
        """Return the number of rows of all sites together."""
        return sum(len(rows) for rows in self.sites.values())

    @property
    def pooled(self) -> FloatArray:
        """Return the rows (n, d) of all sites, site by site."""
        return np.concatenate(list(self.sites.values()))


def deal(data: Dataset, spec: str, m: int, rng: np.random.Generator) -> Federation:
    """Split a data set over m sites as `flareclust.data.partition` does; sites that get no rows are left out."""
    index = partition(spec, data.X, data.y, m, rng, data.owners)
    index = {site: rows for site, rows in index.items() if len(rows)}
    y = None if data.y is None else {site: data.y[rows] for site, rows in index.items()}
    return Federation({site: data.X[rows] for site, rows in index.items()}, y, data.centroids)


def gaussian_groups(d: int, k: int, k_local: int, m0: int, rows: int, c: float, rng: np.random.Generator) -> Federation:
    """Generate the mixtures of k-FED's section 4.1: groups of k' components, each group's rows on m0 sites of its own.

    Components have sigma = 1 and equal weights. Their means are normal vectors, scaled so that the closest two are c
    apart. Theorem 4.1 asks for more: it multiplies c sigma by powers of k', m0 and 1 / w_min.

    Args:
        d, k: of the mixture.
        k_local: k', components of a group; the last group has fewer where it does not divide k.
        m0: sites per group.
        rows: of each component at each of its sites.
        c: smallest distance of two means, in units of sigma.
        rng: draws means and rows.
    """
    means = rng.normal(size=(k, d))
    means *= c / smallest_distance(means)
    sites, y = {}, {}
    for group, site in product(range(0, k, k_local), range(m0)):
        name = f"site-{group:03}-{site}"
        y[name] = np.repeat(np.arange(group, min(group + k_local, k)), rows)
        sites[name] = means[y[name]] + rng.normal(size=(len(y[name]), d))
    return Federation(sites, y, means)


def grid(noise: float, rows: int, rng: np.random.Generator) -> Dataset:
    """Generate the regular synthetic set of FKM's section 3: `rows` per cluster of a 4 x 4 grid, sigma = noise."""
    means = np.array(list(product(GRID, repeat=2)))
    y = np.repeat(np.arange(16), rows)
    return Dataset("grid", means[y] + noise * rng.normal(size=(len(y), 2)), y, means)


def nested(data: Dataset, numbers: Sequence[int], rng: np.random.Generator) -> Federation:
    """Deal a data set so that site i has rows of the first numbers[i] clusters only, as in FKM's figure 4.

    A cluster's rows are assigned evenly, and at random, to the sites that have it.

    Raises:
        UserError: no site has all clusters, or the data set has no labels.
    """
    if data.y is None or data.n_clusters != max(numbers):
        raise UserError(f"one site must have all {data.n_clusters} clusters of {data.name}; got {list(numbers)}")
    owner = np.empty(len(data.X), dtype=np.int64)
    for cluster in range(max(numbers)):
        members = rng.permutation(np.flatnonzero(data.y == cluster))
        holders = [site for site, number in enumerate(numbers) if number > cluster]
        owner[members] = np.resize(rng.permutation(holders), len(members))
    index = {f"site-{number:02}": np.flatnonzero(owner == site) for site, number in enumerate(numbers)}
    y = {site: data.y[rows] for site, rows in index.items()}
    return Federation({site: data.X[rows] for site, rows in index.items()}, y, data.centroids)


def bounded(
    means: FloatArray, radius: float, rows: int, m: int, rng: np.random.Generator, power: float = 3.0
) -> Federation:
    """Generate bounded clusters that every site has the same number of rows of (Armacki and Kar, Assumptions 1 and 3).

    A row lies in a random direction from its mean, at a distance radius * u^power with u uniform in [0, 1]: most rows
    are near the mean, some are far out. E |x - mu|^2 = radius^2 / (2 power + 1), see `bounded_variance`.

    Args:
        means: (k, d) of the populations.
        radius: R, the largest distance of a row to its mean.
        rows: of each population at each site.
        m: number of sites.
        rng: draws the rows.
        power: the larger, the more rows near the mean.
    """
    k, d = means.shape
    y = np.repeat(np.arange(k), rows)
    sites = {}
    for site in range(m):
        directions = rng.normal(size=(len(y), d))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        sites[f"site-{site:03}"] = means[y] + radius * rng.random((len(y), 1)) ** power * directions
    return Federation(sites, dict.fromkeys(sites, y), means)


def bounded_variance(radius: float, power: float = 3.0) -> float:
    """Return E |x - mu|^2 of the clusters of `bounded`."""
    return radius**2 / (2 * power + 1)


def smallest_distance(points: FloatArray) -> float:
    """Return the smallest distance between two of the points (k, d), k >= 2."""
    from scipy.spatial.distance import pdist

    return float(pdist(points).min())
