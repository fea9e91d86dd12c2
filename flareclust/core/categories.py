"""Tables of numbers and categories: Huang's distance as a Euclidean one, and the modes of clusters.

A category is a group of columns of 0 and 1, one for each of its values. Where these columns are divided by sqrt(2 / gamma),
the squared Euclidean distance of a row to a center that has a mode, that is one 1, in each group is the squared distance
of the numbers plus gamma times the number of categories that differ (Huang 1998, Extensions to the k-means algorithm for
clustering large data sets with categorical values, equation 9). So everything that computes with Euclidean distances computes with this one.
"""

from collections.abc import Sequence

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray

#: The columns of each category.
_Groups = Sequence[Sequence[int]]

#: Shares of rows that differ by less are equal: what several sites' shares add up to is rounded.
_SAME = 1e-9


def check_groups(groups: object) -> list[list[int]]:
    """Return groups of columns as lists, or raise UserError unless they are lists of different columns, each in one group only."""
    wanted = "categories must be a list with a list of columns, counted from 0, for each category"
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) and group for group in groups):
        raise UserError(f"{wanted}, such as [[3, 4], [5, 6, 7]]")
    columns = [column for group in groups for column in group]
    if not all(type(column) is int and column >= 0 for column in columns):
        raise UserError(f"{wanted}; got something else than numbers of at least 0")
    if len(set(columns)) < len(columns):
        raise UserError(f"{wanted}; got a column twice")
    return [list(group) for group in groups]


def in_categories(groups: _Groups, d: int) -> BoolArray:
    """Return which of d columns belong to a category (d,)."""
    mask = np.zeros(d, dtype=np.bool_)
    mask[[column for group in groups for column in group]] = True
    return mask


def _category_variance(shares: FloatArray) -> float:
    """Return the variance that the columns of a category are scaled to together, in units of `number_variance`.

    1, or less where the split of one value from the others would explain more variance than the split of normal numbers at
    their mean, 2 / pi: else an uninformative category of two values, all of whose variance a split explains, would decide the
    clusters. Of p equally frequent values the split explains 1 / (p - 1).

    Args:
        shares: of the rows with each value (p,).
    """
    shares = np.maximum(shares, 0.0)
    total = shares.sum()
    if total - shares.max() <= _SAME * total:
        return 1.0
    p = shares / total
    squares, rest = np.square(p).sum(), 1.0 - p
    explained = p * rest * (1.0 + (squares - np.square(p)) / np.square(rest))
    return float(min(1.0, 2.0 / np.pi * (1.0 - squares) / explained.max()))


def number_variance(deviation: FloatArray, divisors: FloatArray) -> float:
    """Return the variance that a number typically has once it is scaled: the median of those that vary; 1 without any.

    Standard deviations (c,) are those of the numeric columns before they are scaled by the divisors (c,).
    """
    varying = deviation > 0
    return float(np.median(np.square(deviation[varying] / divisors[varying]))) if varying.any() else 1.0


def category_divisor(shares: FloatArray, deviation: FloatArray, of_number: float) -> float:
    """Return what the columns of a category are divided by; 1 where it has one value only.

    `shares` are of the rows with each value (p,), with the deviations (p,) of its column, which do not count for values
    that never or always occur; `of_number` is the `number_variance` beside it.
    """
    variances = np.where((shares == 0) | (shares == 1), 0.0, np.square(deviation))
    return float(np.sqrt(variances.sum() / (of_number * _category_variance(shares)))) or 1.0


def usual_gamma(deviations: FloatArray, shares: Sequence[FloatArray]) -> float:
    """Return the mean variance of the numbers over the mean chance that two rows differ in a category; 1 without either.

    On average two rows are then half as far apart in a category as in a number, whatever the units (Szepannek 2018,
    clustMixType: User-Friendly Clustering of Mixed-Type Data in R, `lambdaest`). Constant columns and categories do not count.

    Args:
        deviations: standard deviations of the numeric columns (c,).
        shares: for each category, those of the rows with each value.
    """
    known = [np.maximum(own, 0.0) for own in shares]
    differ = np.array([1.0 - np.square(own / own.sum()).sum() for own in known if own.sum() > 0])
    varying, telling = deviations[deviations > 0], differ[differ > _SAME]
    return float(np.square(varying).mean() / telling.mean()) if varying.size and telling.size else 1.0


def divisor(gamma: float) -> float:
    """Return what columns of 0 and 1 are divided by, so that two values of a category are a squared distance of gamma apart."""
    return float(np.sqrt(2.0 / gamma))


def with_modes(means: FloatArray, groups: _Groups, one: float) -> FloatArray:
    """Return centers: the means (k, d) with 1 for the most frequent value of each category, and 0 for its other values.

    Means of columns of 0 and 1 are the shares of rows with a value; there `one` stands for 1. Of equally frequent values
    the first counts. A category that is missing in all rows of a cluster stays without a mode.
    """
    centers = means.copy()
    for group in map(list, groups):
        shares = means[:, group] / one
        most = shares.max(axis=1)
        mode = np.argmax(shares >= most[:, None] - _SAME, axis=1)
        centers[:, group] = 0.0
        known = np.flatnonzero(most > _SAME)
        centers[known, np.array(group)[mode[known]]] = one
    return centers


def are_one_hot(X: FloatArray, groups: _Groups) -> bool:
    """Return whether the columns of each group hold 0 and 1 only, and at most one 1 in a row of X (n, d)."""
    for group in map(list, groups):
        ones = np.zeros(len(X))
        for column in group:
            cells = X[:, column]
            if not np.isin(cells, (0.0, 1.0)).all():
                return False
            ones += cells
        if (ones > 1).any():
            return False
    return True
