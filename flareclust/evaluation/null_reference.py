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

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.evaluation.criteria import KSelection, goodness

#: The criteria that say how good a solution is, by themselves; the others compare solutions with each other or take few values.
COMPARABLE = ("calinski-harabasz", "silhouette", "davies-bouldin")

#: What rows without clusters may be.
REFERENCES = ("box", "permuted")

#: Below this p-value there is evidence of clusters; and the fewest runs with which it can be reached.
LEVEL, FEWEST = 0.05, 19


def reference_rows(sites: Mapping[str, FloatArray], kind: str, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return rows (n_i, d) without clusters, as many as each site has.

    Args:
        sites: the real rows (n_i, d), without missing cells.
        kind: "box", uniform over a box with the mean and the covariance of all sites' rows, or "permuted", each column of each
            site in another order.
        rng: of the draws.
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


def best(selection: KSelection, rule: str) -> float:
    """Return the best value of a rule over the solutions, the larger the better; -inf where it is undefined for all."""
    known = goodness(selection, rule)
    return float(np.max(known, initial=-np.inf, where=~np.isnan(known)))


def p_value(observed: float, null: FloatArray) -> float:
    """Return the share of runs (B,) without clusters that are at least as good as the real one, which is counted as well."""
    return float((1 + (null >= observed).sum()) / (1 + len(null)))
