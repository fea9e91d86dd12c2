"""The networks: a backbone, whose features are evaluated, and a head, in whose space clusters are."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

from flareclust._foundation.errors import BadMessage, UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.deep.images import EMBEDDED, described
from flareclust.deep.threads import seeded

#: Below this height images are not halved by the first layer.
_LARGE = 16


class Model(nn.Module):
    """A backbone with a projection head (Caron et al. 2020, DeepCluster-v2).

    The backbone goes from images (n, channels, height, width), or rows of a table (n, d), to features (n, f).
    """

    def __init__(self, backbone: nn.Module, features: int) -> None:
        super().__init__()
        self.backbone = backbone
        norm = nn.BatchNorm1d(EMBEDDED, affine=False)
        self.head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, EMBEDDED), norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows' places among the clusters, of length 1 (n, EMBEDDED)."""
        return nn.functional.normalize(self.head(self.backbone(x)), dim=1)


def _small(shape: IntArray) -> nn.Module:
    """Return a network of three convolutions for small images, about 25,000 weights; its norm keeps no statistics of rows."""
    channels, stride = int(shape[2]), 2 if shape[0] >= _LARGE else 1

    def layer(before: int, after: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1)
        return [convolution, nn.GroupNorm(4, after), nn.ReLU()]

    layers = [*layer(channels, 16, stride), *layer(16, 32, 2), *layer(32, 64, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(min(4, -(-int(shape[0]) // (4 * stride)))), nn.Flatten())


def _resnet18(shape: IntArray) -> nn.Module:
    """Return MONAI's ResNet-18 as it is used for images of 32 x 32: a first convolution of 3 x 3, and no pooling after it."""
    from monai.networks.nets import resnet18 as monai_resnet18  # takes seconds to import

    found: nn.Module = monai_resnet18(
        spatial_dims=2, n_input_channels=int(shape[2]), conv1_t_size=3, no_max_pool=True, feed_forward=False
    )
    return found


def _mlp(shape: IntArray) -> nn.Module:
    """Return a network for tables: two layers of 128, after columns are standardised by running statistics."""
    d = int(shape[2])
    norm = nn.BatchNorm1d(d, affine=False)
    return nn.Sequential(norm, nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())


_NETWORKS: Mapping[str, Callable[[IntArray], nn.Module]] = MappingProxyType(
    {"small": _small, "resnet18": _resnet18, "mlp": _mlp}
)


def build(network: str, shape: IntArray, seed: int) -> Model:
    """Return a network with random weights that follow from the seed.

    Args:
        network: "auto" ("small" for images and "mlp" for tables), a name in `_NETWORKS`, or the import path of a
            `torch.nn.Module` that takes the number of channels and returns features (n, f).
        shape: height, width and channels (3,) as sites report them; see `flareclust.deep.images.shape_array`.
        seed: of the weights.

    Raises:
        UserError: there is no such network, it cannot be imported, or it does not fit the images.
    """
    require("deep", "deep clustering")
    image = bool(shape[0])
    name = network if network != "auto" else "small" if image else "mlp"
    if name in _NETWORKS and (name == "mlp") == image:
        raise UserError(
            f"network={name} is for {'tables' if image else 'images'}, and the sites have {'images' if image else 'tables'}"
        )
    made = _NETWORKS[name] if name in _NETWORKS else _imported(name)
    with seeded(seed):
        try:
            backbone = made(shape)
            if not isinstance(backbone, nn.Module):
                raise TypeError("it is no torch.nn.Module")
            return Model(backbone, features_of(backbone, shape)).float()
        except (RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"network={name} does not work with {described(shape.tolist())}: {type(error).__name__}"
            ) from error


def features_of(backbone: nn.Module, shape: IntArray) -> int:
    """Return how many features a network returns for rows of a shape (3,); ValueError where it returns something else."""
    height, width, channels = (int(size) for size in shape)
    was = backbone.training
    with torch.no_grad():
        found = backbone.eval()(torch.zeros((2, channels, height, width) if height else (2, channels)))
    backbone.train(was)
    if found.ndim != 2 or len(found) != 2:
        raise ValueError("a network must return features (n, f)")
    return int(found.shape[1])


def _imported(path: str) -> Callable[[IntArray], nn.Module]:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, ValueError, AttributeError):
        raise UserError(
            f"network={path!r}: expected auto, {', '.join(_NETWORKS)}, or the import path of a torch.nn.Module that is installed"
        ) from None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UserError(f"network={path!r} is no class of a torch.nn.Module")
    return lambda shape: found(int(shape[2]))


# The weights of a network as one array, in the order of its state.
#
# Numbers that a network counts with, such as batches seen, are no weights, and stay where they are.

#: What the names of a network's arrays begin with in a result.
_PREFIX = "weights."


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
            value.copy_(torch.from_numpy(weights[at : at + value.numel()]).reshape(value.shape))
            at += value.numel()


def named(network: nn.Module) -> Message:
    """Return the weights by name, e.g. `weights.head.0.bias`, in the types and shapes that torch gives them."""
    return {_PREFIX + name: value.detach().cpu().numpy().copy() for name, value in _state(network)}


def _state(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in network.state_dict(keep_vars=True).items():
        if value.is_floating_point():
            yield name, value
