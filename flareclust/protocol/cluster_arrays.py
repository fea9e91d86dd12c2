"""Which arrays of a result are about single clusters, and how they follow when the clusters get other numbers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from flareclust._foundation.typing import Array, IntArray, Message
from flareclust.protocol import profile_arrays as profile

#: The axis of each array along which its clusters are.
AXES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("centroids", "mask", "anchors", "counts", "radii", "votes", "support", "seen"), 0),
        **dict.fromkeys(("polish_start", "signal_to_noise"), 0),
        "history": 1,
        **dict.fromkeys((profile.ROWS, profile.CELLS, profile.MEANS, profile.SQUARES, profile.BIN_COUNTS), 0),
        **dict.fromkeys((profile.SITE_ROWS, profile.TREE_ROWS), 1),
    }
)

#: Arrays whose entries are numbers of clusters, negative where there is none.
NUMBERS = ("received_group", "matched", "tau", "group")


def renumbered_arrays(arrays: Mapping[str, Array], order: Sequence[int]) -> Message:
    """Return the arrays of a result whose cluster r is what was cluster `order[r]`.

    An axis can be longer than there are clusters, as that of `history` is where fewer were found than asked for; what is
    behind them stays.

    Args:
        arrays: of a result with k clusters.
        order: the numbers 0 to k - 1 in another order.
    """
    places, numbers = np.asarray(order, dtype=np.int64), inverse(order)
    found = dict(arrays)
    for name, axis in AXES.items():
        if name in arrays:
            rest = np.arange(len(places), arrays[name].shape[axis])
            found[name] = np.ascontiguousarray(np.take(arrays[name], np.concatenate([places, rest]), axis))
    for name in NUMBERS:
        if name in arrays:
            found[name] = renumbered_labels(arrays[name], numbers)
    return found


def inverse(order: Sequence[int]) -> IntArray:
    """Return the new number of each old one (k,)."""
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[np.asarray(order, dtype=np.int64)] = np.arange(len(order))
    return numbers


def renumbered_labels(labels: IntArray, numbers: IntArray) -> IntArray:
    """Return labels (n,) under the new numbers (k,); negative ones, and those of no cluster, stay."""
    known = (labels >= 0) & (labels < len(numbers))
    found = labels.copy()
    found[known] = numbers[labels[known]]
    return found
