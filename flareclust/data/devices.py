"""The rows of many small sites, here called devices, as one array: up to millions of them on one machine."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import site_name
from flareclust.core.devices.ragged import Ragged, keys_of
from flareclust.data.cells import as_numbers


class Devices(Mapping[str, FloatArray]):
    """Rows by device name: a mapping like that of other sites' rows, without an object for each device.

    A subclass that makes rows when they are needed sets `names`, `n` and `d`, and has its own `part_of`.

    Args:
        X: rows (n, d), those of a device one after the other.
        starts: where each device's rows begin, and where the last one's end (m + 1,).
        names: of the devices (m,), in any order; by default device-0000000, device-0000001, ...

    Attributes:
        names: of the devices (m,), sorted.
        n: rows in all.
        d: columns.

    Raises:
        UserError: the arrays do not fit together, or a name cannot be a site's.
    """

    names: Sequence[str]
    n: int
    d: int

    def __init__(self, X: ArrayLike, starts: ArrayLike, names: Sequence[str] | None = None) -> None:
        values, at = as_numbers(X, None, "X"), np.asarray(starts)
        if at.ndim != 1 or at.dtype.kind not in "iu" or len(at) < 2 or at[0] != 0 or at[-1] != len(values):
            raise UserError(
                f"starts must be integers from 0 to the number of rows, {len(values)}: where each device's rows begin, and where "
                f"the last one's end; got shape {at.shape} of {at.dtype}"
            )
        if (np.diff(at) < 0).any():
            raise UserError("starts must not fall: they say where each device's rows begin")
        m = len(at) - 1
        own = device_names(m) if names is None else [site_name(name) for name in names]
        if len(own) != m or len(set(own)) < m:
            raise UserError(f"names must be {m} different ones, one for each device; got {len(set(own))}")
        order = sorted(range(m), key=own.__getitem__)
        self._rows = Ragged(values, at.astype(np.int64), keys_of(own)).those(np.array(order))
        self.names = [own[i] for i in order]
        self.n, self.d = values.shape

    def part_of(self, places: IntArray) -> Ragged:
        """Return the rows of the devices with these numbers; without a copy where they follow one another."""
        return self._rows.those(places)

    def __getitem__(self, name: str) -> FloatArray:
        return self.part_of(np.array([self.places[name]])).values

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Return the number of each device by name."""
        return {name: i for i, name in enumerate(self.names)}


def device_names(m: int) -> list[str]:
    """Return names for m devices, in the order of their numbers."""
    return [f"device-{i:07d}" for i in range(m)]
