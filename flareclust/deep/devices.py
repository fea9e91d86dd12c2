"""The labelled rows of many devices as one padded tensor, so that all of them are computed with at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array


@dataclass(frozen=True, eq=False)
class Devices:
    """The rows of m devices, each padded to those of the largest.

    Attributes:
        X: (m, n_max, ...) float32, or int64 for letters and other indices; zeros behind a device's last row.
        y: (m, n_max) int64 classes, numbered from 0; zeros behind a device's last row.
        counts: (m,) int64 rows of each device.
    """

    X: Tensor
    y: Tensor
    counts: Tensor

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def mask(self) -> Tensor:
        """Return which entries are rows of a device and not padding, (m, n_max) bool."""
        return torch.arange(self.y.shape[1]) < self.counts[:, None]

    def take(self, chosen: Tensor | Sequence[int]) -> "Devices":
        """Return the chosen devices, by their positions, in that order; padded to the largest of them."""
        at = torch.as_tensor(chosen, dtype=torch.int64)
        counts = self.counts[at]
        longest = int(counts.max()) if len(at) else 0
        return Devices(self.X[at, :longest], self.y[at, :longest], counts)

    def first(self, rows: int) -> "Devices":
        """Return the devices with at most so many of their rows, the first ones."""
        return Devices(self.X[:, :rows], self.y[:, :rows], self.counts.clamp(max=rows))


def make_devices(rows: Sequence[Array], classes: Sequence[Array], *, empty: bool = False) -> Devices:
    """Return the devices with these rows.

    Args:
        rows: an array (n_i, ...) per device, all of one kind: numbers, which become float32, or integers for an
            embedding, which become int64. Images as bytes are numbers: turn them into floats first.
        classes: an array (n_i,) of integers from 0 per device.
        empty: whether a device may have no rows, as in tests of devices that have none for one of the clusters.

    Raises:
        UserError: no device, a device without rows, rows of different shapes, classes that do not fit, or values that
            are not finite. The device is named by its position.
    """
    if not len(rows):
        raise UserError("no devices: expected the rows of at least one")
    if len(rows) != len(classes):
        raise UserError(f"{len(rows)} devices have rows and {len(classes)} have classes; every device needs both")
    arrays = [np.asarray(one) for one in rows]
    labels = [np.asarray(one) for one in classes]
    for i, (X, y) in enumerate(zip(arrays, labels, strict=True)):
        _check(i, X, y, arrays[0], empty=empty)
    counts = torch.tensor([len(X) for X in arrays])
    longest = int(counts.max())
    whole = arrays[0].dtype.kind in "iu"
    padded = torch.zeros((len(arrays), longest, *arrays[0].shape[1:]), dtype=torch.int64 if whole else torch.float32)
    targets = torch.zeros((len(arrays), longest), dtype=torch.int64)
    for i, (X, y) in enumerate(zip(arrays, labels, strict=True)):
        padded[i, : len(X)] = torch.from_numpy(X.astype(np.int64 if whole else np.float32))
        targets[i, : len(y)] = torch.from_numpy(y.astype(np.int64))
    return Devices(padded, targets, counts)


def _check(i: int, X: Array, y: Array, first: Array, *, empty: bool) -> None:
    kinds = {"f" if one.dtype.kind == "f" else "i" for one in (X, first)}
    if X.dtype.kind not in "iuf" or len(kinds) > 1 or X.shape[1:] != first.shape[1:]:
        raise UserError(
            f"device {i} has rows of shape {X.shape[1:]} and type {X.dtype}, device 0 of {first.shape[1:]} and {first.dtype}; "
            "all devices must have the same columns, as numbers"
        )
    if y.dtype.kind not in "iu" or y.shape != X.shape[:1]:
        raise UserError(
            f"device {i}: expected one integer class for each of its {len(X)} rows, got {y.dtype} of shape {y.shape}"
        )
    if not len(X) and not empty:
        raise UserError(f"device {i} has no rows; leave it out")
    if len(y) and y.min() < 0:
        raise UserError(f"device {i} has the class {y.min()}; classes are numbered from 0")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise UserError(f"device {i} has values that are missing or infinite; replace them first")
