"""Whether rows have clusters at all: rows without any, and how often they score as well.

Sources: Tibshirani, Walther, Hastie 2001, Estimating the number of clusters in a data set via the gap statistic, section 4: rows
without clusters are uniform over a box along the principal axes of the real ones. Phipson, Smyth 2010, Permutation p-values
should never be zero: the p-value counts the real rows, too.

Readings and deviations:
1. The sides of the box give it the variances of the real rows and not their ranges, so that covariances stay the same, however
   columns are scaled, and single far rows do not widen it.
2. The statistic is the best value of a criterion over the numbers of clusters tried, and not the gap of the inertia, so that the
   p-value is about the k that is selected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import kmeans
from flareclust.evaluation.criteria import KSelection, goodness

#: The criteria that say how good a solution is, by themselves; the others compare solutions with each other or take few values.
COMPARABLE = ("calinski-harabasz", "silhouette", "davies-bouldin")

#: What rows without clusters may be.
REFERENCES = ("box", "permuted")

#: Below this p-value there is evidence of clusters; and the fewest runs with which it can be reached.
LEVEL, FEWEST = 0.05, 19

#: Rows of a draw of `explained_by_chance`, and numbers of clusters that it tries at most.
_DRAWN, _TRIED = 1000, 12


@dataclass(frozen=True)
class NullTest:
    """How the rows compare with rows that have no clusters.

    Attributes:
        criterion: what is compared.
        reference: "box" or "permuted".
        k_range: the numbers of clusters tried.
        observed: the best value of the criterion over `k_range`, the larger the better (Davies-Bouldin with a minus).
        null: the same of every run without clusters (B,).
        p: share of runs, the real one included, that are at least as good as the real one.
    """

    criterion: str
    reference: str
    k_range: tuple[int, int]
    observed: float
    p: float
    null: FloatArray = field(repr=False)

    @property
    def evidence(self) -> bool:
        """Return whether the rows have clusters beyond what rows without any show: p of 0.05 or less."""
        return self.p <= LEVEL

    @property
    def sentence(self) -> str:
        """Return the answer in words."""
        first, last = self.k_range
        tried = f"k={first}" if first == last else f"k={first}..{last}"
        answer = "evidence of clusters" if self.evidence else "no evidence of clusters"
        rows = "rows from a uniform box" if self.reference == "box" else "rows with permuted columns"
        as_good = int((self.null >= self.observed).sum())
        return f"{answer}: {as_good} of {len(self.null)} runs on {rows} have as good a {self.criterion} ({tried}, p={self.p:.2g})"

    def to_json(self) -> dict[str, Any]:
        """Return the plain values."""
        null = [value if np.isfinite(value) else None for value in self.null.tolist()]
        own = {"criterion": self.criterion, "reference": self.reference, "k_range": list(self.k_range)}
        return {**own, "observed": self.observed, "null": null, "p": self.p, "evidence": self.evidence}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "NullTest":
        """Return what `to_json` has written."""
        null = np.array([-np.inf if value is None else value for value in values["null"]], dtype=np.float64)
        first, last = map(int, values["k_range"])
        observed, p = float(values["observed"]), float(values["p"])
        return cls(str(values["criterion"]), str(values["reference"]), (first, last), observed, p, null)


def reference_rows(sites: Mapping[str, FloatArray], kind: str, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return rows (n_i, d) without clusters, as many as each site has real ones, which have no missing cells.

    A "box" is uniform with the mean and the covariance of all sites' rows; "permuted" has each site's columns in another order.
    """
    if kind == "permuted":
        return {site: rng.permuted(X, axis=0) for site, X in sites.items()}
    every = np.concatenate(list(sites.values()))
    mean, varies = every.mean(axis=0), np.ptp(every, axis=0) > 0
    variances, axes = np.linalg.eigh(np.cov(every, rowvar=False, bias=True).reshape(len(mean), -1))
    sides = np.sqrt(12 * np.maximum(variances, 0))
    drawn = {}
    for site, X in sites.items():
        inside = (rng.uniform(-0.5, 0.5, X.shape) * sides) @ axes.T
        drawn[site] = mean + np.where(varies, inside, 0.0)
    return drawn


def explained_by_chance(covariance: FloatArray, ks: Sequence[int], rng: np.random.Generator) -> FloatArray:
    """Return how well k-means explains rows without clusters that vary as much: the best of `explained` in each draw (B,).

    Rows are uniform over a box with the covariance (d, d) of the real ones, `FEWEST` times; ks are the numbers of clusters tried,
    of which a dozen are taken. A server can know it without a further exchange.
    """
    d, tried = len(covariance), sorted({ks[i] for i in np.linspace(0, len(ks) - 1, _TRIED).astype(int)})
    variances, axes = np.linalg.eigh(covariance)
    sides, found = np.sqrt(12 * np.maximum(variances, 0)), []
    for _ in range(FEWEST):
        rows = (rng.uniform(-0.5, 0.5, (_DRAWN, d)) * sides) @ axes.T
        total = float(((rows - rows.mean(axis=0)) ** 2).sum())
        within = [kmeans(rows, k, rng).inertia for k in tried]
        found.append(max((explained(k, total, w) for k, w in zip(tried, within, strict=True)), default=0.0))
    return np.array(found)


def explained(k: int, total: float, within: float) -> float:
    """Return the variance ratio of Caliński and Harabasz without the number of rows: (total - within) / within / (k - 1)."""
    return (total - within) / within / (k - 1) if within > 0 else np.inf


def best(selection: KSelection, rule: str) -> float:
    """Return the best value of a rule over the solutions, the larger the better; -inf where it is undefined for all."""
    known = goodness(selection, rule)
    return float(np.max(known, initial=-np.inf, where=~np.isnan(known)))


def p_value(observed: float, null: FloatArray) -> float:
    """Return the share of runs (B,) without clusters that are at least as good as the real one, which is counted as well."""
    return float((1 + (null >= observed).sum()) / (1 + len(null)))
