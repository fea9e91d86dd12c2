"""Local training of many devices side by side, whose rows are one padded tensor, and federated averaging.

Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (2017), Algorithm 1.

Every device has weights of its own, stacked along a first dimension m, and all devices go through the same tensor
program (`torch.func.vmap`). Any network works that `vmap` can map: linear and convolutional layers, embeddings, layer
norms. Those with a state of their own or with random layers do not: batch norms, dropout, `nn.LSTM`.

Reading where the paper is open: an update uses rows drawn with replacement, so that devices of different sizes make
the same number of updates, or all rows of the device.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array
from flareclust._foundation.validation import check_int
from flareclust.personal.learners import Among

#: Rows that the losses of are computed at once, which bounds the memory for what the layers put out.
_ROWS_AT_ONCE = 16_384

#: Weights that are trained at once, which keeps those of an update near the processor: twice as fast as all at once.
_WEIGHTS_AT_ONCE = 3_000_000


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
    arrays, labels = [np.asarray(one) for one in rows], [np.asarray(one) for one in classes]
    for i, (X, y) in enumerate(zip(arrays, labels, strict=True)):
        _check_rows(i, X, y, arrays[0], empty=empty)
    counts = torch.tensor([len(X) for X in arrays])
    longest, whole = int(counts.max()), arrays[0].dtype.kind in "iu"
    padded = torch.zeros((len(arrays), longest, *arrays[0].shape[1:]), dtype=torch.int64 if whole else torch.float32)
    targets = torch.zeros((len(arrays), longest), dtype=torch.int64)
    for i, (X, y) in enumerate(zip(arrays, labels, strict=True)):
        padded[i, : len(X)] = torch.from_numpy(X.astype(np.int64 if whole else np.float32))
        targets[i, : len(y)] = torch.from_numpy(y.astype(np.int64))
    return Devices(padded, targets, counts)


def _check_rows(i: int, X: Array, y: Array, first: Array, *, empty: bool) -> None:
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


def _draw_rows(
    counts: Tensor, updates: int, batch: int, generator: torch.Generator, among: Among | None = None
) -> Tensor:
    """Return which rows each update of each device uses, (updates, m, batch) int64, drawn with replacement.

    What is drawn for a device depends on its place and its count alone, not on the rows of others. With `among`, places and
    a number of devices, these m are drawn for as the ones in those places among so many.
    """
    drawn = torch.rand((updates, among[1] if among else len(counts), batch), generator=generator, dtype=torch.float64)
    own = drawn[:, list(among[0])] if among else drawn
    return (own * counts[:, None]).long()


def train(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    devices: Devices,
    *,
    updates: int,
    lr: float,
    batch: int | None,
    generator: torch.Generator,
    among: Among | None = None,
) -> dict[str, Tensor]:
    """Return each device's weights after `updates` steps of gradient descent on its own rows.

    Args:
        network: gives the layers; its own weights are neither used nor changed. It returns scores (n, classes), and the
            loss is the mean cross-entropy.
        weights: by name of the network's parameters, each (m, ...) with those that a device starts from.
        devices: m devices; one without rows keeps its weights.
        batch: rows of a step; None for all rows of the device.
        generator: draws the rows; not used where `batch` is None.
        among: as in `_draw_rows`.

    Raises:
        UserError: the settings or the weights do not fit.
    """
    _check(network, weights, devices)
    check_int("updates", updates, minimum=1)
    if not 0 < lr < float("inf"):
        raise UserError(f"lr must be a positive number, got {lr}")
    rows = None
    if batch is not None:
        rows = _draw_rows(devices.counts, updates, check_int("batch", batch, minimum=1), generator, among)
    trained = {name: value.detach().clone() for name, value in weights.items()}
    size = sum(value[0].numel() for value in trained.values())
    together = max(_WEIGHTS_AT_ONCE // max(size, 1), 1)
    for first in range(0, len(devices), together):
        some = slice(first, first + together)
        own = {name: value[some] for name, value in trained.items()}  # views, changed in place
        part = Devices(devices.X[some], devices.y[some], devices.counts[some])
        _descend(network, own, part, updates, lr, None if rows is None else rows[:, some])
    return trained


def losses(network: nn.Module, weights: Mapping[str, Tensor], devices: Devices) -> Tensor:
    """Return the mean cross-entropy of each device's rows under its weights, (m,); 0 for a device without rows."""
    sums = _sums(network, weights, devices, _cross_entropies)
    return sums / devices.counts.clamp(min=1)


def correct(network: nn.Module, weights: Mapping[str, Tensor], devices: Devices) -> Tensor:
    """Return how many of each device's rows get their own class, (m,) int64; divide by `devices.counts` for accuracies."""
    return _sums(network, weights, devices, lambda scores, y: (scores.argmax(-1) == y).float()).long()


def average(weights: Mapping[str, Tensor], sizes: Tensor) -> dict[str, Tensor]:
    """Return the mean of stacked weights (m, ...), weighted by `sizes` (m,), the devices' rows: federated averaging.

    Raises:
        UserError: the sizes are not one per device, or add up to nothing.
    """
    if any(len(value) != len(sizes) for value in weights.values()) or sizes.min() < 0 or not sizes.sum() > 0:
        raise UserError(f"sizes must be one positive number per device, got {tuple(sizes.shape)}")
    share = sizes.double() / sizes.double().sum()
    return {
        name: (share.to(value.dtype) @ value.reshape(len(value), -1)).reshape(value.shape[1:])
        for name, value in weights.items()
    }


def _descend(
    network: nn.Module, weights: dict[str, Tensor], devices: Devices, updates: int, lr: float, rows: Tensor | None
) -> None:
    """Change the weights of some devices by `updates` steps, on the drawn rows (updates, m, batch) or on all."""

    def loss(weights: dict[str, Tensor], X: Tensor, y: Tensor, weighing: Tensor) -> Tensor:
        return (_cross_entropies(functional_call(network, weights, (X,)), y) * weighing).sum()

    gradient, each = vmap(grad(loss)), torch.arange(len(devices))[:, None]
    weighing = devices.mask.float() / devices.counts.clamp(min=1)[:, None]
    if rows is not None:
        batch = rows.shape[2]
        weighing = (devices.counts > 0).float()[:, None].expand(-1, batch) / batch
    for step in range(updates):
        X, y = (devices.X, devices.y) if rows is None else (devices.X[each, rows[step]], devices.y[each, rows[step]])
        for name, slope in gradient(weights, X, y, weighing).items():
            weights[name].sub_(slope, alpha=lr)


def _cross_entropies(scores: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(scores, y, reduction="none")


def _sums(
    network: nn.Module, weights: Mapping[str, Tensor], devices: Devices, measure: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the sum over each device's rows of a measure of their scores, (m,), some devices and rows at a time."""
    _check(network, weights, devices)

    def one(own: dict[str, Tensor], X: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return (measure(functional_call(network, own, (X,)), y) * mask).sum()

    longest = devices.y.shape[1]
    columns = max(min(longest, _ROWS_AT_ONCE), 1)
    together = max(_ROWS_AT_ONCE // columns, 1)
    sums, mask = torch.zeros(len(devices)), devices.mask.float()
    with torch.no_grad():
        for first in range(0, len(devices), together):
            some = slice(first, first + together)
            own = {name: value[some] for name, value in weights.items()}
            for left in range(0, longest, columns):
                part = (some, slice(left, left + columns))
                sums[some] += vmap(one)(own, devices.X[part], devices.y[part], mask[part])
    return sums


def _check(network: nn.Module, weights: Mapping[str, Tensor], devices: Devices) -> None:
    expected = {name: (len(devices), *value.shape) for name, value in network.named_parameters()}
    given = {name: tuple(value.shape) for name, value in weights.items()}
    if given != expected:
        name = min(name for name in expected.keys() | given.keys() if expected.get(name) != given.get(name))
        raise UserError(
            f"weights of the network and of the devices differ, first {name}: expected {expected.get(name)}, got {given.get(name)}; "
            "each is stacked over the devices"
        )


# A round of federated averaging of networks with one hidden layer, without a copy of the weights for each device.
#
# Devices of a group start from the same weights, and the server keeps the mean of what they train. So the first layer of
# a device need not be held: after some updates it is the start minus a sum over the rows used so far, whose effect on
# other rows are inner products of rows. That takes one product of all rows with the start, one with the sums, and little
# beside; memory grows with the rows drawn and not with the weights, and the time is a third of that of
# `train` with a hidden layer of 200. Both give the same numbers up to rounding.

#: The weights of `nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, c))`.
_NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")


def averaged_round(
    models: Mapping[str, Tensor],
    group: Tensor,
    devices: Devices,
    *,
    updates: int,
    lr: float,
    batch: int,
    generator: torch.Generator,
    among: Among | None = None,
) -> dict[str, Tensor]:
    """Return the models (k, ...) after a round: the means, weighted by rows, of what their devices train.

    Args:
        models: weights by the names in `_NAMES`, each (k, ...).
        group: (m,) the model that each device trains.
        devices: m devices; those without rows do not count.

    Other arguments are those of `train`.
    """
    rows = _draw_rows(devices.counts, updates, batch, generator, among).permute(1, 0, 2).reshape(len(devices), -1)
    after = {name: value.clone() for name, value in models.items()}
    with torch.no_grad():
        for j in sorted(set(group[devices.counts > 0].tolist())):
            at = torch.nonzero((group == j) & (devices.counts > 0))[:, 0]
            X, y = devices.X[at[:, None], rows[at]], devices.y[at[:, None], rows[at]]
            share, start = devices.counts[at] / devices.counts[at].sum(), tuple(models[name][j] for name in _NAMES)
            for name, value in zip(_NAMES, _mean_after(start, X, y, share, batch, lr), strict=True):
                after[name][j] = value
    return after


def _mean_after(
    start: tuple[Tensor, ...], X: Tensor, y: Tensor, share: Tensor, batch: int, lr: float
) -> tuple[Tensor, ...]:
    """Return the mean weights of p devices after updates by their rows (p, r, d), the next `batch` of them in each."""
    W1, b1, W2, b2 = start
    reached = X @ W1.T + b1  # (p, r, h): what the hidden units get under the start
    inner = X @ X.mT + 1  # the 1 is for the intercepts
    slopes = torch.zeros_like(reached)  # of the loss by what the hidden units get
    top, top_bias = W2.expand(len(X), -1, -1).clone(), b2.expand(len(X), 1, -1).clone()
    for first in range(0, X.shape[1], batch):
        now = slice(first, first + batch)
        z = reached[:, now] - lr * (inner[:, now, :first] @ slopes[:, :first])
        hidden = z.clamp(min=0)
        scores = torch.baddbmm(top_bias, hidden, top.mT)
        error = (scores.softmax(-1) - functional.one_hot(y[:, now], scores.shape[-1])) / batch
        slopes[:, now] = (error @ top) * (z > 0)
        top -= lr * (error.mT @ hidden)
        top_bias -= lr * error.sum(dim=1, keepdim=True)
    slopes *= share[:, None, None]
    return (
        W1 - lr * (slopes.flatten(0, 1).T @ X.flatten(0, 1)),
        b1 - lr * slopes.sum(dim=(0, 1)),
        torch.tensordot(share, top, dims=1),
        torch.tensordot(share, top_bias[:, 0], dims=1),
    )
