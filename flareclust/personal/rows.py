"""The rows of devices with their classes, some of them held out for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Array, FloatArray, IntArray

#: The column that holds the class, unless the settings name another.
CLASS_COLUMN = "class"


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows and their classes.

    Attributes:
        X: (n, d) float64.
        y: (n,) int64, numbered from 0.
    """

    X: FloatArray
    y: IntArray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, at: Array) -> "Labelled":
        """Return the rows at these positions, or where a mask is true."""
        return Labelled(self.X[at], self.y[at])


@dataclass(frozen=True, eq=False)
class Split:
    """What devices train with and what they are tested with.

    Attributes:
        train: rows to train with by device.
        test: rows held out by device; the same devices.
        classes: how many classes there are over all devices.
    """

    train: Mapping[str, Labelled]
    test: Mapping[str, Labelled]
    classes: int

    @property
    def names(self) -> list[str]:
        """Return the devices' names in their order."""
        return list(self.train)

    @property
    def columns(self) -> int:
        """Return the number of columns d."""
        return int(next(iter(self.train.values())).X.shape[1])


def make_split(train: Mapping[str, Labelled], test: Mapping[str, Labelled]) -> Split:
    """Return the devices' rows, checked.

    Raises:
        UserError: no device, a device without rows for one of the two, different columns, or fewer than two classes.
    """
    if not train:
        raise UserError("no devices: expected the rows of at least one")
    if missing := [name for name in train if not len(train[name]) or not len(test.get(name, ()))]:
        raise UserError(f"{missing[0]} has no rows to train or to test with; every device needs some of both")
    widths = {part.X.shape[1] for side in (train, test) for part in side.values()}
    if len(widths) > 1:
        raise UserError(f"the devices have {min(widths)} to {max(widths)} columns; all need the same")
    present = np.unique(np.concatenate([part.y for part in train.values()]))
    if len(present) < 2:
        raise UserError("all rows are of one class; there is nothing to tell apart")
    return Split(train, test, int(max(part.y.max() for side in (train, test) for part in side.values())) + 1)


def hold_out(devices: Mapping[str, Labelled], share: float, seed: int) -> Split:
    """Hold out a share of each device's rows, at least one, drawn by its own generator.

    Raises:
        UserError: the share is not between 0 and 1, a device has a single row, or as `make_split`.
    """
    if not 0 < share < 1:
        raise UserError(f"the share of rows to test with must be between 0 and 1, got {share}")
    train, test = {}, {}
    for name, rows in devices.items():
        if len(rows) < 2:
            raise UserError(
                f"{name} has {len(rows)} rows; a device needs two, one to train and one to test with; use fewer devices"
            )
        held = drawn(len(rows), share, seed, name)
        test[name], train[name] = rows.take(held), rows.take(~held)
    return make_split(train, test)


def drawn(n: int, share: float, seed: int, name: str) -> Array:
    """Return which of a device's n rows, two or more, are held out, (n,) bool: at least one, and not all."""
    held = np.zeros(n, dtype=bool)
    held[stream(seed, 0, name).permutation(n)[: min(max(round(share * n), 1), n - 1)]] = True
    return held


def numbered(classes: Sequence[object]) -> tuple[IntArray, list[object]]:
    """Return classes as numbers from 0 (n,), in the order of their values, and the values."""
    values, numbers = np.unique(np.asarray(classes), return_inverse=True)
    return numbers.reshape(-1).astype(np.int64), values.tolist()
