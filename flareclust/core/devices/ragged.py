"""The rows of many small sites in one array, and what they send in one array for each field."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flareclust._foundation.seeding import owner_key
from flareclust._foundation.typing import Array, FloatArray, IntArray


class Ragged(NamedTuple):
    """Rows of m sites, one after the other.

    Attributes:
        values: (n, d) float64.
        starts: where each site's rows begin, and where the last one's end (m + 1,).
        keys: of each site's random stream (m,), see `flareclust._foundation.seeding`.
    """

    values: FloatArray
    starts: IntArray
    keys: IntArray

    @property
    def m(self) -> int:
        """Return the number of sites."""
        return len(self.keys)

    @property
    def d(self) -> int:
        """Return the number of columns."""
        return int(self.values.shape[1])

    def rows(self, i: int) -> FloatArray:
        """Return the rows (n_i, d) of one site."""
        return self.values[self.starts[i] : self.starts[i + 1]]

    def part(self, first: int, last: int) -> "Ragged":
        """Return the sites from one number up to another, without a copy of their rows."""
        starts = self.starts[first : last + 1]
        return Ragged(self.values[starts[0] : starts[-1]], starts - starts[0], self.keys[first:last])

    def those(self, places: IntArray) -> "Ragged":
        """Return the sites with these numbers, in this order; without a copy where they follow one another."""
        if len(places) and (np.diff(places) == 1).all():
            return self.part(int(places[0]), int(places[-1]) + 1)
        rows, values = np.diff(self.starts)[places], self.values[entries_of(places, self.starts)]
        return Ragged(values, np.concatenate([[0], np.cumsum(rows)]), self.keys[places])


class Entries(NamedTuple):
    """What m sites send that may send different numbers of entries.

    Attributes:
        fields: by name, the entries of all sites, one after the other, (c, ...).
        totals: by name, one value of each site, (m,).
        sizes: entries of each site (m,); -1 for one that has to be asked by itself: it has none here.
    """

    fields: Mapping[str, Array]
    totals: Mapping[str, Array]
    sizes: IntArray


def nothing_computed(m: int) -> Entries:
    """Return the entries of m sites that all have to be asked by themselves."""
    return Entries({}, {}, np.full(m, -1))


def entries_of(places: IntArray, starts: IntArray) -> IntArray:
    """Return which entries belong to the sites with these numbers, in their order; those of site i are starts[i]:starts[i + 1]."""
    sizes = np.diff(starts)[places]
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts[places] - before, sizes) + np.arange(int(sizes.sum()))


def keys_of(names: Sequence[str]) -> IntArray:
    """Return the keys of these sites' random streams (m,)."""
    return np.fromiter(map(owner_key, names), np.int64, len(names))
