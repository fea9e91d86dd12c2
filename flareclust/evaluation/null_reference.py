"""Whether rows have clusters at all: rows without any, and how often they score as well.

Sources: Tibshirani, Walther, Hastie 2001, Estimating the number of clusters in a data set via the gap statistic, section 4: rows
without clusters are uniform over a box along the principal axes of the real ones, and what is compared at each k is how far a
criterion is from its mean over such rows. Hartigan, Hartigan 1985, The dip test of unimodality: the nearest distribution with one
mode. Phipson, Smyth 2010, Permutation p-values should never be zero: the p-value counts the real rows, too.

Readings and deviations:
1. The sides of the box give it the variances of the real rows and not their ranges, so that covariances stay the same, however
   columns are scaled, and single far rows do not widen it.
2. A box alone takes skewed columns for clusters, since they are less like it than clusters are. So there is a Gaussian copula, too:
   rows with the rank correlations of the real ones, each column with the nearest distribution of one mode. It keeps skewness and
   tails, and not what clusters along a column make of it.
3. The inertia is not compared: a bent cloud, or a flat one, has less of it than any such rows. The silhouette says how compact
   clusters are beside their distance, and the valleys whether rows are missing between neighbours; far rows count as one in both.
4. Rows have clusters where both are better than on rows of every reference. No level is corrected, since all must agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import kmeans

#: How it is said that a criterion is as good.
_SAID: Mapping[str, str] = {"silhouette": "as high a silhouette", "valleys": "as deep valleys between clusters"}

#: What rows without clusters may be, and how it is said.
REFERENCES: Mapping[str, str] = {
    "box": "rows from a uniform box",
    "copula": "rows from columns of one mode with the same rank correlation",
    "permuted": "rows with permuted columns",
}

#: The references that are compared with unless others are named.
USUAL = "box,copula"

#: Below this p-value there is evidence of clusters; and the fewest runs with which it can be reached.
LEVEL, FEWEST = 0.05, 19

#: Rows of a draw of `explained_by_chance`, and numbers of clusters that it tries at most.
_DRAWN, _TRIED = 1000, 12

#: Of more rows so many are drawn, which show clusters as well; starts of each k-means.
_MOST_ROWS, _STARTS = 5000, 4

#: Rows between two centroids are near one of them, or midway, within this part of the distance of the two.
_NEAR = 0.15

#: So many rows have two centroids as their nearest ones where these are neighbours.
_NEIGHBOURS = 3

#: So many places are tried for the mode of a column.
_MODES = 21

#: Draws rows (n, d) without clusters.
_Draw: TypeAlias = Callable[[np.random.Generator], FloatArray]


@dataclass(frozen=True)
class Comparison:
    """One criterion of the rows beside that of rows from one reference.

    Attributes:
        criterion: "silhouette" or "valleys".
        reference: "box", "copula" or "permuted".
        observed: the criterion over the numbers of clusters tried: of the silhouettes the largest, in standard deviations of all
            runs from their mean; of the valleys the mean.
        null: the same of every run without clusters (B,).
        p: share of runs, the real one included, that are at least as good as the real one.
    """

    criterion: str
    reference: str
    observed: float
    p: float
    null: FloatArray = field(repr=False)

    @property
    def said(self) -> str:
        """Return how many runs are as good, in words."""
        as_good = int((self.null >= self.observed).sum())
        what = _SAID.get(self.criterion, f"as good a {self.criterion}")
        return f"{as_good} of {len(self.null)} runs on {REFERENCES[self.reference]} have {what}"

    def to_json(self) -> dict[str, Any]:
        """Return the plain values."""
        own = {"criterion": self.criterion, "reference": self.reference, "observed": self.observed, "p": self.p}
        return {**own, "null": self.null.tolist()}


@dataclass(frozen=True)
class NullTest:
    """How the rows compare with rows that have no clusters.

    Attributes:
        k_range: the numbers of clusters tried.
        comparisons: of each criterion with each reference.
    """

    k_range: tuple[int, int]
    comparisons: tuple[Comparison, ...]

    @property
    def deciding(self) -> Comparison:
        """Return the comparison with the largest p, the first of equals: all must speak for clusters, so it decides."""
        return max(self.comparisons, key=lambda one: one.p)

    @property
    def p(self) -> float:
        """Return the largest p."""
        return self.deciding.p

    @property
    def evidence(self) -> bool:
        """Return whether the rows have clusters beyond what rows without any show: p of 0.05 or less in every comparison."""
        return self.p <= LEVEL

    @property
    def sentence(self) -> str:
        """Return the answer in words, with the comparison that decided."""
        first, last = self.k_range
        tried = f"k={first}" if first == last else f"k={first}..{last}"
        against, total = sum(one.p > LEVEL for one in self.comparisons), len(self.comparisons)
        answer, rest = "evidence of clusters", f"the closest of {total} comparisons"
        if not self.evidence:
            answer, rest = "no evidence of clusters", f"{against} of {total} comparisons speak against them"
        return f"{answer}: {self.deciding.said} ({tried}, p={self.p:.2g}; {rest})"

    def to_json(self) -> dict[str, Any]:
        """Return the plain values."""
        comparisons = [one.to_json() for one in self.comparisons]
        return {"k_range": list(self.k_range), "p": self.p, "evidence": self.evidence, "comparisons": comparisons}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "NullTest":
        """Return what `to_json` has written, or an earlier version, which had one comparison."""
        first, last = map(int, values["k_range"])
        found = []
        for one in values.get("comparisons", [values]):
            null = np.array([-np.inf if value is None else value for value in one["null"]], dtype=np.float64)
            found.append(
                Comparison(str(one["criterion"]), str(one["reference"]), float(one["observed"]), float(one["p"]), null)
            )
        return cls((first, last), tuple(found))


def sampled(sites: Mapping[str, FloatArray], rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Return the rows (n, d) of all sites, at most 5000 drawn from them, and the number of the site of each (n,)."""
    X = np.concatenate(list(sites.values()))
    site = np.repeat(np.arange(len(sites)), [len(own) for own in sites.values()])
    if len(X) > _MOST_ROWS:
        kept = np.sort(rng.choice(len(X), _MOST_ROWS, replace=False))
        X, site = X[kept], site[kept]
    return X, site


def reference_rows(X: FloatArray, site: IntArray, kind: str, categories: Sequence[Sequence[int]] = ()) -> _Draw:
    """Return what draws rows without clusters in the place of rows (n, d), which have no missing cells, of sites in order (n,).

    A "box" is uniform with the mean and the covariance of the rows; a "copula" has their rank correlations, and columns of one mode;
    "permuted" has each site's columns in another order, and so have the categories,
    each a group of columns that stays together, in all three.
    """
    d, grouped = X.shape[1], [list(group) for group in categories]
    single = sorted(set(range(d)).difference(*grouped))
    numbers = X[:, single]
    drawn = None if kind == "permuted" or not single else _box(numbers) if kind == "box" else _copula(numbers)

    def draw(rng: np.random.Generator) -> FloatArray:
        found = np.empty_like(X)
        if drawn is not None:
            found[:, single] = drawn(rng)
        for group in [*grouped, *([j] for j in single if drawn is None)]:
            found[:, group] = X[np.lexsort((rng.random(len(X)), site))][:, group]
        return found

    return draw


def _box(X: FloatArray) -> _Draw:
    mean, varies = X.mean(axis=0), np.ptp(X, axis=0) > 0
    draw = _uniform(np.cov(X, rowvar=False, bias=True).reshape(len(mean), -1), len(X))
    return lambda rng: mean + np.where(varies, draw(rng), 0.0)


def _uniform(covariance: FloatArray, n: int) -> _Draw:
    """Return what draws n rows about 0 from a box along the principal axes, with this covariance (d, d)."""
    variances, axes = np.linalg.eigh(covariance)
    sides = np.sqrt(12 * np.maximum(variances, 0))
    return lambda rng: (rng.uniform(-0.5, 0.5, (n, len(sides))) * sides) @ axes.T


def _copula(X: FloatArray) -> _Draw:
    from scipy.special import ndtri

    scores = np.empty_like(X)
    for j, column in enumerate(X.T):
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        scores[:, j] = ndtri(((counts.cumsum() - counts / 2) / len(X))[place])
    deviations = scores.std(axis=0)
    scores /= np.where(deviations > 0, deviations, 1.0)
    variances, axes = np.linalg.eigh(scores.T @ scores / len(X))
    sides, values = np.sqrt(np.maximum(variances, 0)), np.column_stack([_one_mode(column) for column in X.T])

    def draw(rng: np.random.Generator) -> FloatArray:
        ranks = ((rng.normal(size=X.shape) * sides) @ axes.T).argsort(axis=0).argsort(axis=0)
        return np.take_along_axis(values, ranks, axis=0)

    return draw


def _one_mode(column: FloatArray) -> FloatArray:
    """Return as many values (n,) in order, evenly from the distribution of one mode that is nearest to a column's (n,).

    The nearest is the one whose distribution function differs least, of those whose density rises to one of 21 places in the
    column, and falls from there, as isotonic regression fits it. Values are on the grid of the column's, such as integers.
    """
    from sklearn.isotonic import isotonic_regression

    n = len(column)
    at, counts = np.unique(column, return_counts=True)
    if len(at) < 2:
        return column
    gaps = np.diff(at)
    edges = np.concatenate(([at[0] - gaps[0] / 2], at[:-1] + gaps / 2, [at[-1] + gaps[-1] / 2]))
    widths, below = np.diff(edges), counts.cumsum() / n
    density, fits = counts / widths, []
    for mode in np.unique(np.linspace(0, len(at), _MODES).astype(int)):
        sides = [(side, up) for side, up in ((slice(mode), True), (slice(mode, None), False)) if len(at[side])]
        fit = [isotonic_regression(density[own], sample_weight=widths[own], increasing=up) for own, up in sides]
        fits.append((np.concatenate(fit) * widths).cumsum())
    nearest = min(fits, key=lambda fit: float(np.abs(fit / fit[-1] - below).max()))
    values, step = np.interp((np.arange(n) + 0.5) / n, np.append(0.0, nearest / nearest[-1]), edges), float(gaps.min())
    steps = np.rint((values - at[0]) / step).clip(0, np.rint(np.ptp(at) / step))
    return np.asarray(at[0] + step * steps)


def judged(X: FloatArray, k_range: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Return silhouette and valleys (2, c) of k-means on rows (n, d) with every number of clusters."""
    first, last = k_range
    X = X - X.mean(axis=0)  # far from 0, differences of squares would be rounded off
    found = [_judged(X, kmeans(X, k, rng, n_init=_STARTS).centroids) for k in range(first, last + 1)]
    return np.array(found).T


def _judged(X: FloatArray, centroids: FloatArray) -> tuple[float, float]:
    """Return the mean simplified silhouette of rows (n, d), and how deep the valleys between centroids (k, d) are.

    A valley is what rows midway between two neighbours lack beside those near the one of them with fewer, in standard errors of
    the difference. Each cluster has its deepest, and the mean of these is returned.
    """
    k, rows = len(centroids), np.arange(len(X))
    squares = np.maximum((X**2).sum(axis=1)[:, None] - 2 * X @ centroids.T + (centroids**2).sum(axis=1), 0.0)
    own, second = np.argpartition(squares, 1, axis=1)[:, :2].T
    ratio = squares[rows, own] / np.maximum(squares[rows, second], np.finfo(np.float64).tiny)
    silhouette, between = float(np.mean(1 - np.sqrt(ratio))), ((centroids[:, None] - centroids) ** 2).sum(axis=2)
    length = np.where(between > 0, between, np.inf)[own]
    along = (squares[rows, own][:, None] - squares) / (2 * length) + 0.5  # 0 at a row's own centroid, 1 at the other
    belongs = np.equal.outer(np.arange(k), own).astype(np.float64)
    near, midway = belongs @ (np.abs(along) < _NEAR), belongs @ (np.abs(along - 0.5) < _NEAR)
    fewer, midway = np.minimum(near, near.T), midway + midway.T
    pairs = belongs @ np.equal.outer(second, np.arange(k))
    depth = np.where(pairs + pairs.T >= _NEIGHBOURS, (fewer - midway) / np.sqrt(fewer + midway + 1), 0.0)
    return silhouette, float(np.maximum(depth.max(axis=1), 0.0).mean())


def compared(reference: str, runs: FloatArray) -> list[Comparison]:
    """Return the comparisons of the first of some runs (1 + B, 2, c), each as `judged` returns it, with the others.

    Silhouettes are standardised over the runs at every k, since rows without clusters have high ones at some; all runs alike, so
    that any of them is as likely to be the best if there are no clusters.
    """
    silhouettes, valleys = runs[:, 0], runs[:, 1]
    deviations = silhouettes.std(axis=0)
    standard = (silhouettes - silhouettes.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    values = {"silhouette": standard.max(axis=1)}
    if reference != "permuted":  # where clusters differ in several columns, permuted ones are just as far apart
        values["valleys"] = valleys.mean(axis=1)
    return [
        Comparison(name, reference, float(own[0]), float((own >= own[0]).mean()), own[1:])
        for name, own in values.items()
    ]


def explained_by_chance(covariance: FloatArray, ks: Sequence[int], rng: np.random.Generator) -> FloatArray:
    """Return how well k-means explains rows without clusters that vary as much: the best variance ratio of each draw, without the number of rows (B,).

    Rows are uniform over a box with the covariance (d, d) of the real ones, `FEWEST` times; ks are the numbers of clusters tried,
    of which a dozen are taken. A server can know it without a further exchange.
    """
    tried = sorted({ks[i] for i in np.linspace(0, len(ks) - 1, _TRIED).astype(int)})
    draw, found = _uniform(covariance, _DRAWN), []
    for _ in range(FEWEST):
        rows = draw(rng)
        total, within = float(((rows - rows.mean(axis=0)) ** 2).sum()), [kmeans(rows, k, rng).inertia for k in tried]
        # the variance ratio of Caliński and Harabasz without the number of rows
        ratios = [(total - w) / w / (k - 1) if w > 0 else np.inf for k, w in zip(tried, within, strict=True)]
        found.append(max(ratios, default=0.0))
    return np.array(found)
