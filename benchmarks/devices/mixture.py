"""A mixture of Gaussians at many devices, made on the fly: each device has rows of some of the clusters."""

from itertools import product

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.devices.ragged import Ragged, keys_of
from flareclust.data.devices import Devices, device_names

#: Sixteen centers in two columns.
GRID = 6.0 * np.array(list(product(range(4), repeat=2)))

#: Devices whose rows come from one generator.
BLOCK = 256


class Mixture(Devices):
    """Devices with `rows` rows each, of `own` of k clusters with variance 1."""

    def __init__(self, m: int, rows: int, centers: FloatArray, own: int, seed: int = 0) -> None:
        self.names = device_names(m)
        self.d, self.n, self._rows_each = centers.shape[1], m * rows, rows
        self._centers, self._own, self._seed, self._keys = centers, own, seed, keys_of(self.names)

    def part_of(self, places: IntArray) -> Ragged:
        """Make the rows of the devices with these numbers."""
        blocks = places // BLOCK
        values = np.empty((len(places), self._rows_each, self.d))
        for block in np.unique(blocks).tolist():
            here = blocks == block
            values[here] = self._block(block)[places[here] - BLOCK * block]
        starts = np.arange(len(places) + 1) * self._rows_each
        return Ragged(values.reshape(-1, self.d), starts, self._keys[places])

    def _block(self, block: int) -> FloatArray:
        rng = np.random.default_rng([self._seed, block])
        clusters = rng.integers(0, len(self._centers), (BLOCK, self._own))
        cluster = np.take_along_axis(clusters, rng.integers(0, self._own, (BLOCK, self._rows_each)), axis=1)
        rows: FloatArray = self._centers[cluster] + rng.standard_normal((BLOCK, self._rows_each, self.d))
        return rows


def plane(m: int) -> Mixture:
    """Return devices of 50 rows in two columns, of 4 of 16 clusters on a grid."""
    return Mixture(m, 50, GRID, 4)


def kfed(m: int) -> Mixture:
    """Return devices of 30 rows in 16 columns, of 4 of 100 clusters, as in section 4.1 of Dennis, Li, Smith (2021)."""
    return Mixture(m, 30, 10.0 * np.random.default_rng(0).standard_normal((100, 16)), 4)


def plane_in_memory(m: int) -> Devices:
    """Return the devices of `plane` with their rows in memory."""
    made = plane(m).part_of(np.arange(m))
    return Devices(made.values, made.starts, device_names(m))
