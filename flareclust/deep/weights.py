"""The weights of a network as one array, in the order of its state.

Numbers that a network counts with, such as batches seen, are no weights, and stay where they are.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import FloatArray, Message

#: What the names of a network's arrays begin with in a result.
PREFIX = "weights."


def weights_of(network: nn.Module) -> FloatArray:
    """Return the weights (p,) of a network, and the running statistics of its norms, in float64."""
    return np.concatenate([value.detach().cpu().numpy().ravel() for _, value in _state(network)]).astype(np.float64)


def load_weights(network: nn.Module, weights: FloatArray) -> None:
    """Put weights (p,) into a network.

    Raises:
        BadMessage: there are more or fewer than the network has, or they are no finite numbers.
    """
    p = sum(value.numel() for _, value in _state(network))
    if weights.shape != (p,):
        raise BadMessage(f"weights: expected {p} numbers, got shape {weights.shape}")
    if not (np.abs(weights) <= np.finfo(np.float32).max).all():
        raise BadMessage("weights: holds NaN, infinite values, or values beyond those of float32")
    at = 0
    with torch.no_grad():
        for _, value in _state(network):
            part = torch.from_numpy(weights[at : at + value.numel()]).reshape(value.shape)
            value.copy_(part)
            at += value.numel()


def named(network: nn.Module) -> Message:
    """Return the weights by name, e.g. `weights.head.0.bias`, in the types and shapes that torch gives them."""
    return {PREFIX + name: value.detach().cpu().numpy().copy() for name, value in _state(network)}


def _state(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in network.state_dict(keep_vars=True).items():
        if value.is_floating_point():
            yield name, value
