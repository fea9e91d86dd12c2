"""Centroids and sums of several sites, some of them perhaps false: which are used, and how much each may count.

1. `filter_outliers` leaves out sites whose centroids are unlike those of most others, and limits how much one site counts. It
   compares sites with each other and knows no truth: an honest site with clusters of its own looks like a lying one and is
   lost, where sites differ much a lying site looks like one more of them, and a false value that most sites send is believed.
2. `_center` joins what several sites say about one cluster: a trimmed mean in each coordinate, or a geometric median.
3. `typical_totals` does the like for sums over rows.

All of it commutes with translations and does not depend on the order of the sites, to rounding. With `PLAIN` nothing is
changed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.core.runtime import kernel

#: Numbers of rows, or what they count.
Weights = FloatArray | IntArray

NONE, TRIMMED, MEDIAN = "none", "trimmed", "median"
ROBUST = (NONE, TRIMMED, MEDIAN)

#: The cap that comes with "trimmed" and "median" where none is set: with more, a minority of sites can outweigh the others.
USUAL_CAP = 1.0

#: A site is left out when the median outlier score of its centroids, or of its rows, is above the first number, and a little
#: more (`_too_strange`), and also farther above that of the median site than so many times that is above the lowest tenth of
#: the sites. The lower half is that of honest sites; where they differ much, more may be strange.
STRANGE, SPREADS = 1.7, 6.0

#: No outlier score is larger in a median over rows, which is not made for infinite ones.
_MOST_STRANGE = 1e100


class Rule(NamedTuple):
    """How far sites are believed.

    Attributes:
        robust: one of `ROBUST`.
        trim: share of the sites that a trimmed mean leaves out at each end.
        cap: the most times the median site's total that the rows of one site may count; None for no cap.
    """

    robust: str = NONE
    trim: float = 0.2
    cap: float | None = None

    @property
    def active(self) -> bool:
        """Return whether positions are judged."""
        return self.robust != NONE

    @property
    def judges(self) -> bool:
        """Return whether what single sites send is looked at: their positions, or how many rows they state."""
        return self.active or self.cap is not None


#: Every site is believed.
PLAIN = Rule()


class _Believed(NamedTuple):
    """Who is believed; None where nobody is judged.

    Attributes:
        left_out: the names of the sites that are not.
        kept: which of all c centroids are (c,).
    """

    left_out: Array | None = None
    kept: BoolArray | None = None


class FilteredCentroids(NamedTuple):
    """What is believed of c centroids of m sites, or all of it.

    Attributes:
        points: centroids (b, d).
        weights: how much each counts (b,), as it was sent or capped.
        site: the number of the site that sent it (b,).
        kept: which of all c are among them (c,).
        left_out: the sites that are not believed (m,).
        rule: by which they were judged.
    """

    points: FloatArray
    weights: Weights
    site: IntArray
    kept: BoolArray
    left_out: BoolArray
    rule: Rule

    def centers(self, centroids: FloatArray, labels: IntArray) -> FloatArray:
        """Return the centers (k, d) of groups of `points` by the rule; the given ones where it is not active."""
        if not self.rule.active:
            return centroids
        return site_centers(centroids, self.points, self.weights, self.site, labels, self.rule)

    def summary(self, names: Iterable[str]) -> tuple[dict[str, float], _Believed]:
        """Return the number of sites left out, and who they are; nothing without an active rule."""
        if not self.rule.active:
            return {}, _Believed()
        answered = np.array(list(names)[: len(self.left_out)], dtype=str)  # the last ones may have sent nothing
        return {"left_out": float(self.left_out.sum())}, _Believed(answered[self.left_out], self.kept)


def filter_outliers(points: FloatArray, weights: Weights, site: IntArray, k: int, rule: Rule) -> FilteredCentroids:
    """Return which of the centroids (c, d) are believed, and what they count.

    Left out are sites whose centroids are mostly outliers, by number or by rows (see `outlier_score`), and single centroids
    that lie farther from those of most other sites than the sites' centroids lie apart at all. Where fewer than k would be
    left, or there are fewer than three sites, all stay: of two, nobody knows which one lies.

    Args:
        points: centroids of all sites (c, d).
        weights: rows of each (c,), or ones.
        site: which site sent each (c,): numbers 0 to m - 1.
        k: number of clusters wanted.
        rule: how far sites are believed.
    """
    m = int(site.max(initial=-1)) + 1
    kept, untrusted = np.ones(len(points), dtype=np.bool_), np.zeros(m, dtype=np.bool_)
    if rule.active and len(np.unique(site)) > 2:
        strange, absurd = outlier_score(points, site)
        odd = np.zeros(m, dtype=np.bool_)
        odd[np.unique(site)] = _odd_sites(strange, weights, site, k, points.shape[1])
        trusted = ~(absurd | odd[site])
        if trusted.sum() >= k:
            kept, untrusted = trusted, odd
    if not kept.all():
        points, weights, site = points[kept], weights[kept], site[kept]
    return FilteredCentroids(points, capped(weights, site, rule.cap), site, kept, untrusted, rule)


def site_centers(
    centroids: FloatArray, points: FloatArray, weights: Weights, site: IntArray, labels: IntArray, rule: Rule
) -> FloatArray:
    """Return for each of k groups of points (c, d) the center of what the sites say of it; the given one where none does.

    A site speaks once for a group, with the weighted mean of its points there, and counts there at most `cap` times as
    much as the median site of the group.
    """
    moved = centroids.copy()
    for group in np.unique(labels[labels >= 0]):
        own = labels == group
        means, total = _by_site(points[own], weights[own].astype(np.float64), site[own])
        moved[group] = _center(means, _limited(total, rule.cap), rule.trim if rule.robust == TRIMMED else None)
    return moved


def capped(weights: Weights, site: IntArray, cap: float | None) -> Weights:
    """Return weights (c,) in which no site has more than `cap` times the median site's total; whole ones stay whole.

    Sites whose weights are all 0 do not count in the median. What was above 0 stays at least 1 where weights are whole.
    """
    if cap is None or not len(weights):
        return weights
    total = np.bincount(site, weights=weights.astype(np.float64)).astype(np.float64)
    share = np.divide(_limited(total, cap), total, out=np.ones(len(total)), where=total > 0)
    if (share >= 1).all():
        return weights
    scaled = weights * share[site]
    return scaled if weights.dtype.kind == "f" else np.minimum(weights, np.maximum(np.rint(scaled), 1)).astype(np.int64)


def medoid(sets: Sequence[FloatArray], apart: FloatArray) -> int:
    """Return which of the sets with most centroids (k_i, d) has the smallest median distance to the others, of these (m, m)."""
    maximum, others = max(map(len, sets)), ~np.eye(len(sets), dtype=np.bool_)
    middle = np.nanmedian(np.where(others, apart, np.nan), axis=0) if len(sets) > 1 else np.zeros(1)
    return int(np.argmin(np.where([len(own) == maximum for own in sets], middle, np.inf)))


def typical_totals(replies: Sequence[Message], names: Iterable[str], rule: Rule) -> dict[str, FloatArray]:
    """Return sums over all rows, made of what the sites with rows send per row; the plain sums where nothing is set.

    Each value per row is split into the site's mean over the entries and the rest. Of both, trimmed means over the sites
    are taken, weighted by rows, and multiplied by the capped number of rows. So few sites can move a total no farther
    than other sites' values reach. Never medians: these overlook a cluster that less than half of the sites have. A total
    below 0 becomes 0.

    Args:
        replies: of each site `rows` and the sums called `names`, which are never below 0 at an honest site.
        names: `rows` may be among them.
        rule: how far sites are believed.
    """
    keys, rows = list(names), np.array([int(reply["rows"]) for reply in replies])
    if (not rule.active and rule.cap is None) or not rows.any():
        return {name: np.sum([reply[name] for reply in replies], axis=0) for name in keys}
    reporting = rows > 0
    weight = capped(rows[reporting], np.arange(int(reporting.sum())), rule.cap).astype(np.float64)
    totals: dict[str, FloatArray] = {}
    for name in keys:
        if name == "rows":
            totals[name] = np.array(weight.sum())
            continue
        each = np.stack([reply[name] / reply["rows"] for reply, one in zip(replies, reporting, strict=True) if one])
        level = each.mean(axis=1, keepdims=True)
        parts = [_trimmed_mean(part, weight, rule.trim if rule.active else 0.0) for part in (level, each - level)]
        totals[name] = np.maximum(parts[0] + parts[1], 0.0) * weight.sum()
    return totals


def _odd_sites(strange: FloatArray, weights: Weights, site: IntArray, k: int, d: int) -> BoolArray:
    """Return which of the sites that sent anything are too strange on the whole.

    Both the median over a site's centroids and that over its rows are judged: with the former alone, a site could put nearly
    all rows on false centroids that are fewer than half of its own, with the latter alone on a single honest one.
    """
    own = [site == i for i in np.unique(site)]
    each, rows = np.minimum(strange, _MOST_STRANGE)[:, None], np.maximum(weights.astype(np.float64), 1e-9)
    middle = np.array([[np.median(strange[i]), _weighted_median(each[i], rows[i])[0]] for i in own])
    usual, low = np.median(middle, axis=0), np.quantile(middle, 0.1, axis=0)
    odd = (middle > _too_strange(k, d)) & (middle > usual + SPREADS * (usual - low))
    return np.asarray(odd.any(axis=1))


def _too_strange(k: int, d: int) -> float:
    """Return the median outlier score up to which a site is left alone: more where it is a median of few numbers.

    Of honest sites that differ by chance, normally, fewer than one in twenty-five are above it with one column and one or
    two clusters, and fewer than one in a hundred with ten columns or five clusters (medians over centroids).
    """
    return STRANGE + 2.0 / (k * d)


def _by_site(points: FloatArray, weights: FloatArray, site: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return each site's weighted mean (s, d), about a point of its own, and its weight (s,)."""
    _, first, of = np.unique(site, return_index=True, return_inverse=True)
    weights = np.maximum(weights, 1e-9)  # a site may say that nobody is there
    total: FloatArray = np.bincount(of, weights=weights).astype(np.float64)
    sums = np.zeros((len(first), points.shape[1]))
    np.add.at(sums, of, (weights / total[of])[:, None] * (points - points[first][of]))
    return points[first] + sums, total


def _limited(total: FloatArray, cap: float | None) -> FloatArray:
    return total if cap is None or not (total > 0).any() else np.minimum(total, cap * np.median(total[total > 0]))


# The middle of weighted points, some of which may lie anywhere: weighted median, trimmed mean, geometric median.

#: The geometric median is found to this share of the points' median distance from their coordinatewise median.
_TOLERANCE = 1e-9

#: Steps of Weiszfeld's algorithm, at the most; it slows down where the median lies next to a point.
_STEPS = 1000

#: Points farther than this many times the median distance are drawn in to it, on the line to the coordinatewise median:
#: what they pull depends on their direction, and squares of larger numbers would not be finite.
_REACH = 1e6

#: In a group of at least three sites, those farther than this many times the median distance are left out.
_FAR = 4.0


def _center(points: FloatArray, weights: FloatArray, trim: float | None) -> FloatArray:
    """Return the middle (d,) of what s sites say of one cluster, points (s, d) with weights (s,) above 0.

    Of three sites or more, those are left out that lie farther than `_FAR` times the median distance from the coordinates'
    medians; here all sites count equally. Of the others the trimmed mean is taken, or for `trim=None` the geometric median.
    """
    if len(points) > 2:
        distance = _norms(points - np.median(points, axis=0))
        near = distance <= _FAR * np.median(distance)
        points, weights = points[near], weights[near]
    return _geometric_median(points, weights) if trim is None else _trimmed_mean(points, weights, trim)


def _weighted_median(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the median of each column of values (s, d) with weights (s,): the middle between two where both are one."""
    order = np.argsort(values, axis=0, kind="stable")
    sums = np.cumsum(weights[order], axis=0)
    half, slack = 0.5 * sums[-1], 1e-12 * sums[-1]
    low = np.take_along_axis(values, _at(order, (sums >= half - slack).argmax(axis=0)), axis=0)[0]
    high = np.take_along_axis(values, _at(order, (sums > half + slack).argmax(axis=0)), axis=0)[0]
    return np.asarray(low + 0.5 * (high - low))


def _trimmed_mean(values: FloatArray, weights: FloatArray, trim: float) -> FloatArray:
    """Return the mean of each column of values (s, d) without the share `trim` of the weight (s,) at either end.

    A value at the edge counts with the part of its weight that is inside.
    """
    order = np.argsort(values, axis=0, kind="stable")
    sorted_, own = np.take_along_axis(values, order, axis=0), weights[order]
    upper = np.cumsum(own, axis=0)
    total = upper[-1]
    inside = np.minimum(upper, (1 - trim) * total) - np.maximum(upper - own, trim * total)
    # What rounding leaves of a value outside must not count: it may be huge.
    inside, origin = np.where(inside > 1e-9 * total, inside, 0.0), _weighted_median(values, weights)
    return np.asarray(origin + (inside / inside.sum(axis=0) * (sorted_ - origin)).sum(axis=0))


def _geometric_median(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the point (d,) with the smallest weighted sum of distances to points (s, d), to `_TOLERANCE`.

    Weiszfeld's algorithm from the coordinates' medians, with the step of Vardi and Zhang (2000), The multivariate
    L1-median and associated data depth, where it hits a point: it goes on unless that point is the median. Where the
    points lie on a line and several would do, it is the one nearest to the start.
    """
    start = _weighted_median(points, weights)
    distance = _norms(points - start)
    scale = float(np.median(distance)) or float(distance[distance > 0].min(initial=np.inf))
    if not np.isfinite(scale):
        return start
    offsets = (points - start) / scale
    offsets *= np.minimum(1.0, _REACH / np.maximum(distance / scale, 1.0))[:, None]
    weights, here = weights / weights.max(), np.zeros_like(start)
    for _ in range(_STEPS):
        moved = _step(here, offsets, weights)
        done, here = float(_norms((moved - here)[None])[0]) <= _TOLERANCE, moved
        if done:
            break
    return start + scale * here


def _step(here: FloatArray, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the next point of Weiszfeld's algorithm."""
    distance = _norms(points - here)
    hit = distance <= 1e-14
    if hit.all():
        return here
    pull = weights[~hit] / distance[~hit]
    target: FloatArray = (pull[:, None] * points[~hit]).sum(axis=0) / pull.sum()
    if not hit.any():
        return target
    force = float(_norms((pull[:, None] * (points[~hit] - here)).sum(axis=0)[None])[0])
    weight = float(weights[hit].sum())
    return here if force <= weight else here + (1 - weight / force) * (target - here)


def _norms(vectors: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((vectors**2).sum(axis=1)))


def _at(order: IntArray, row: IntArray) -> IntArray:
    return np.take_along_axis(order, row[None], axis=0)


# How unlike the centroids of one site are those of the others, in blocks: no table of sites times centroids is kept.

#: Distances that are kept at once: 16 MiB, beside what is made of them.
_BLOCK = 1 << 21


def outlier_score(points: FloatArray, site: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return how far each centroid of three sites or more lies from those of the others.

    A centroid's distance is the median, over the other sites, of that to their nearest centroid. It is divided by the same
    figure of those nearest centroids (the median over the other sites, too), so that the centroids of a wide cluster may
    lie farther apart than those of a narrow one. Time O(c^2 d) for c centroids; memory O(c d + m) beside some blocks.

    Returns:
        The quotient (c,), about 1 for centroids that all sites have; and which distances (c,) are larger than the
        largest one between two sites' centroids usually is (the median, over the sites, of the median over the others).
    """
    of = np.unique(site, return_inverse=True)[1].reshape(-1)
    order = np.argsort(of, kind="stable")
    rows, ends = points[order], np.cumsum(np.bincount(of))
    own, usual, extent = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(ends))
    for sites, block, (nearest, _, farthest) in _blocks(rows, ends):
        own[block] = _median_of_others(nearest, of[order[block]])
        first = ends[sites] - np.diff(ends, prepend=0)[sites] - block.start
        extent[sites] = _median_of_others(np.maximum.reduceat(farthest, first, axis=0), np.arange(len(ends))[sites])
    for _, block, (_, matches, _) in _blocks(rows, ends):
        usual[block] = _median_of_others(own[matches], of[order[block]])
    with np.errstate(over="ignore"):  # what is beyond all numbers is strange enough
        quotient = np.divide(own, usual, out=np.where(own > 0, np.inf, 1.0), where=usual > 0)
    back = np.argsort(order)
    return quotient[back], (own > np.median(extent))[back]


def _blocks(rows: FloatArray, ends: IntArray) -> Iterator[tuple[slice, slice, tuple[FloatArray, IntArray, FloatArray]]]:
    """Give sites, their rows (b,), and to each site the nearest distance, the row it is to, and the farthest one (b, m)."""
    from scipy.spatial.distance import cdist

    first, m = 0, len(ends)
    while first < m:
        start = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, start + _BLOCK // len(rows), side="right")))
        block = slice(start, int(ends[last - 1]))
        shape = (block.stop - start, m)
        found = np.empty(shape), np.empty(shape, np.int64), np.empty(shape)
        _nearest_and_farthest(cdist(rows[block], rows), ends, *found)
        yield slice(first, last), block, found
        first = last


@kernel()
def _nearest_and_farthest(
    distances: FloatArray, ends: IntArray, nearest: FloatArray, matches: IntArray, farthest: FloatArray
) -> None:
    """Find the least distance (b, m) among those to each site's rows, the first of equals, and the largest one."""
    for i in range(distances.shape[0]):
        start = 0
        for s in range(ends.shape[0]):
            least, at, most = distances[i, start], start, distances[i, start]
            for j in range(start + 1, ends[s]):
                value = distances[i, j]
                most = max(most, value)
                if value < least:
                    least, at = value, j
            nearest[i, s], matches[i, s], farthest[i, s] = least, at, most
            start = ends[s]


def _median_of_others(values: FloatArray, own: IntArray) -> FloatArray:
    """Return the median of each row's values (b, m) but for the one at its own place (b,); spoils the values."""
    others = values.shape[1] - 1
    values[np.arange(len(values)), own] = np.inf  # behind all others
    low, high = (others - 1) // 2, others // 2
    values.partition(sorted({low, high}), axis=1)
    return (values[:, low] + values[:, high]) / 2 if low < high else values[:, low].copy()
