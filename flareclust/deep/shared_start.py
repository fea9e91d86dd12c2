"""A round of federated averaging of networks with one hidden layer, without a copy of the weights for each device.

Devices of a group start from the same weights, and the server keeps the mean of what they train. So the first layer of
a device need not be held: after some updates it is the start minus a sum over the rows used so far, whose effect on
other rows are inner products of rows. That takes one product of all rows with the start, one with the sums, and little
beside; memory grows with the rows drawn and not with the weights, and the time is a third of that of
`local_training.train` with a hidden layer of 200. Both give the same numbers up to rounding.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from flareclust.deep.devices import Devices
from flareclust.deep.local_training import draw_rows

#: The weights of `nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, c))`.
NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")


def averaged_round(
    models: Mapping[str, Tensor],
    group: Tensor,
    devices: Devices,
    *,
    updates: int,
    lr: float,
    batch: int,
    generator: torch.Generator,
    among: tuple[Sequence[int], int] | None = None,
) -> dict[str, Tensor]:
    """Return the models (k, ...) after a round: the means, weighted by rows, of what their devices train.

    Args:
        models: weights by the names in `NAMES`, each (k, ...).
        group: (m,) the model that each device trains.
        devices: m devices; those without rows do not count.
        updates: local updates of each device.
        lr: step size.
        batch: rows of an update, drawn with replacement as in `local_training.train`.
        generator: draws the rows.
        among: as in `local_training.draw_rows`.
    """
    rows = draw_rows(devices.counts, updates, batch, generator, among).permute(1, 0, 2).reshape(len(devices), -1)
    after = {name: value.clone() for name, value in models.items()}
    with torch.no_grad():
        for j in sorted(set(group[devices.counts > 0].tolist())):
            at = torch.nonzero((group == j) & (devices.counts > 0))[:, 0]
            X, y = devices.X[at[:, None], rows[at]], devices.y[at[:, None], rows[at]]
            share = devices.counts[at] / devices.counts[at].sum()
            start = tuple(models[name][j] for name in NAMES)
            for name, value in zip(NAMES, _mean_after(start, X, y, share, batch, lr), strict=True):
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
