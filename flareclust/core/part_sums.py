"""What a site computes of rows in parts for others: groups of rows about centroids, and the sums of an assessment.

Each function returns what its namesake for an array of all rows does, but for rounding: sums are added part by part.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core import kernels
from flareclust.core.assessment import assessment_sums
from flareclust.core.disclosure import check_enough, describable_groups
from flareclust.core.group_kernels import evidence_of, rounding_of, rows_of_each, squares_of_each
from flareclust.core.lloyd import labels_of, sums_by_label
from flareclust.core.parts import Parts


class Groups(NamedTuple):
    """Groups of rows, those of them that have any.

    Attributes:
        source: which of the centroids asked about these are (c,).
        counts: rows of each (c,).
        centroids: their means (c, d).
        sse: sum of their squared distances to the centroids asked about (c,).
        first: the first row of each (c, d).
        labels: for each part the labels of its rows in 0..c-1, kept beside it.
    """

    source: IntArray
    counts: IntArray
    centroids: FloatArray
    sse: FloatArray
    first: FloatArray
    labels: Sequence[Any]

    def of(self, mask: BoolArray) -> "Groups":
        """Return those of the groups that a mask (c,) has; labels stay what they are."""
        return self._replace(**{name: getattr(self, name)[mask] for name in self._fields[:-1]})


def nearest(parts: Parts, centroids: FloatArray) -> list[Any]:
    """Return for each part the nearest centroid of its rows, kept beside it."""
    return parts.keep(labels_of, shared=(centroids,))


def groups_about(parts: Parts, centroids: FloatArray, labels: Sequence[Any] | None = None) -> Groups:
    """Return the groups of the rows nearest to each of the centroids (k, d), or of the labels (in 0..k-1) that are given."""
    labels = nearest(parts, centroids) if labels is None else labels
    origin = parts.extent.mean
    found = parts.each(_sums, labels, shared=(centroids, origin))
    counts = np.sum([own.counts for own in found], axis=0)
    source = np.flatnonzero(counts)
    means = origin + np.sum([own.sums for own in found], axis=0)[source] / counts[source][:, None]
    sse, first = np.sum([own.sse for own in found], axis=0)[source], np.empty_like(centroids)
    for own in reversed(found):  # the first part that has a group is written last
        first[own.counts > 0] = own.first[own.counts > 0]
    if len(source) < len(counts):
        labels = parts.keep(_renumbered, labels, shared=(np.cumsum(counts > 0) - 1,))
    return Groups(source.astype(np.int64), counts[source], means, sse, first[source], labels)


def may_be_described(parts: Parts, groups: Groups, min_count: int, *, ones: FloatArray | None = None) -> BoolArray:
    """Return which of the groups may be described to others (`flareclust.core.disclosure.describable`)."""
    extent = parts.extent
    shared = groups.centroids, groups.first, rounding_of(extent.least, extent.largest)
    found = parts.each(_evidence, groups.labels, shared=shared)
    varied, is_row = np.any([own for own, _ in found], axis=0), np.any([own for _, own in found], axis=0)
    return describable_groups(groups.counts, varied, is_row, groups.first, min_count, ones)


def lloyd_update(
    parts: Parts,
    centroids: FloatArray,
    min_count: int,
    reported: BoolArray | None = None,
    *,
    ones: FloatArray | None = None,
) -> tuple[Groups, BoolArray]:
    """Return the groups of the rows nearest to each of the centroids (k, d), and which of them may be described.

    Arguments as for `flareclust.core.local.lloyd_update`. Without a reported centroid there are no groups.
    """
    check_enough(parts, min_count)
    ids = np.arange(len(centroids)) if reported is None else np.flatnonzero(reported)
    if not len(ids):
        none, rows = np.zeros(0, dtype=np.int64), np.zeros((0, parts.d))
        return Groups(none, none, rows, np.zeros(0), rows, []), np.zeros(0, dtype=np.bool_)
    groups = groups_about(parts, np.ascontiguousarray(centroids[ids]))
    mask = np.ones(len(groups.source), dtype=np.bool_)
    if min_count:
        mask = may_be_described(parts, groups, min_count, ones=ones)
    return groups._replace(source=ids[groups.source].astype(np.int64)), mask


def squared_deviations(parts: Parts, groups: Groups) -> FloatArray:
    """Return the sums of the squared deviations (c, d) of the columns from the mean of each group."""
    return np.asarray(np.sum(parts.each(_squares, groups.labels, shared=(groups.centroids,)), axis=0))


def assessed(parts: Parts, centroids: FloatArray) -> Message:
    """Return the sums of `flareclust.core.assessment.assessment_sums`."""
    found = parts.each(_assessed, shared=(centroids,))
    return {name: np.sum([own[name] for own in found], axis=0) for name in found[0]}


class _Sums(NamedTuple):
    counts: IntArray
    sums: FloatArray
    sse: FloatArray
    first: FloatArray


def _sums(X: FloatArray, labels: IntArray, centroids: FloatArray, origin: FloatArray) -> _Sums:
    k, d = centroids.shape
    squared, sums, mass = np.empty(len(X)), np.zeros((k, d)), np.zeros(k)
    kernels.own_distances(X, centroids, labels, squared)
    kernels.add_to_sums(X, np.ones(len(X)), origin, labels, sums, mass)
    counts, first = rows_of_each(labels, k)
    return _Sums(counts, sums, sums_by_label(labels, squared, k), X[first])


def _renumbered(X: FloatArray, labels: IntArray, numbers: IntArray) -> IntArray:
    return np.asarray(numbers[labels])


def _evidence(
    X: FloatArray, labels: IntArray, centroids: FloatArray, examples: FloatArray, rounding: FloatArray
) -> tuple[BoolArray, BoolArray]:
    return evidence_of(X, labels, centroids, examples, rounding)


def _squares(X: FloatArray, labels: IntArray, means: FloatArray) -> FloatArray:
    return squares_of_each(X, labels, means)


def _assessed(X: FloatArray, centroids: FloatArray) -> Message:
    return assessment_sums(X, centroids)[1]
