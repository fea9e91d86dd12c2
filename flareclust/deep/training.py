"""What a site does with a network: embed its rows, and train the network to tell clusters apart.

Source: Caron et al. 2020, "Unsupervised Learning of Visual Features by Contrasting Cluster Assignments", DeepCluster-v2:
rows and prototypes have length 1, a row's scores are its products with the prototypes over a temperature, and the
prototypes are centroids that training leaves as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray
from flareclust.deep.threads import one_torch_thread, seeded

#: Rows and numbers that go through a network at a time where it is not trained; at least 16 rows.
_CHUNK, _CHUNK_NUMBERS = 1024, 2**20

#: Changes of images that leave what they show as it is.
_AUGMENTATIONS = ("auto", "none", "affine", "natural")


@dataclass(frozen=True)
class Training:
    """How a site trains.

    Attributes:
        momentum: of SGD; it begins anew in every round, and never leaves the site.
        temperature: by which scores are divided.
        augment: a name in `_AUGMENTATIONS`.
        draws: whether the network may draw random numbers itself, as dropout does; ours do not.
    """

    epochs: int
    batch: int
    lr: float
    momentum: float
    temperature: float
    augment: str
    draws: bool = False


def device_of(device: str) -> torch.device:
    """Return where to compute: "auto" takes a GPU if there is one.

    Raises:
        Refusal: there is no GPU where one is asked for.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise Refusal('has no GPU that torch can use, and device is "cuda"; take device="auto", or "cpu"')
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def embed(network: nn.Module, images: FloatArray, device: torch.device) -> FloatArray:
    """Return what a network makes of images (n, ...), a row each, in float64; 0 where that is no finite number.

    A refusal in its place would depend on single rows, which nobody may learn from a site with a policy.
    """
    network.to(device).eval()
    chunk = max(16, min(_CHUNK, _CHUNK_NUMBERS // images[0].size))
    with torch.no_grad(), one_torch_thread():
        parts = [
            network(torch.from_numpy(images[i : i + chunk]).float().to(device)).cpu().numpy()
            for i in range(0, len(images), chunk)
        ]
    return np.nan_to_num(np.concatenate(parts).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def train(
    network: nn.Module,
    images: FloatArray,
    labels: IntArray,
    prototypes: FloatArray,
    how: Training,
    device: torch.device,
    seed: int,
    aborted: AbortCheck,
) -> float:
    """Train a network, in place, to give images (n, ...) the labels (n,) of their prototypes (k, e).

    Returns:
        The mean loss of the last epoch.

    Raises:
        Refusal: the loss is no longer a finite number.
        Aborted: `aborted()` became true.
    """
    with one_torch_thread():
        random = torch.Generator().manual_seed(seed)
        network.to(device).train()
        x, y = torch.from_numpy(images).float(), torch.from_numpy(labels)
        centers = torch.from_numpy(prototypes).float().to(device)
        changed = _augmentation(how.augment, images.shape[1:], random)
        descent, mean = _Descent(network, how), 0.0
        for epoch in range(how.epochs):
            total = 0.0
            for rows in _batches(len(x), how.batch, random):
                if aborted():
                    raise Aborted("stopped while it trained")
                batch = changed(x[rows]).to(device)
                with seeded(_draw(random)) if how.draws else nullcontext():
                    embedded = network(batch)
                scores = embedded @ centers.T / how.temperature
                loss = nn.functional.cross_entropy(scores, y[rows].to(device))
                descent.step(loss)
                total += loss.item() * len(rows)
            mean = total / len(x)
            if not np.isfinite(mean):
                raise Refusal(
                    f"lost the training in epoch {epoch + 1}: the loss is not finite; lower lr (now {how.lr:g})"
                )
        return mean


class _Descent:
    """Stochastic gradient descent as `torch.optim.SGD` does it; that class imports PyTorch's compiler, which takes seconds and is not needed."""

    def __init__(self, network: nn.Module, how: Training) -> None:
        self._network, self._how = network, how
        self._momentum: dict[Tensor, Tensor | None] = {}

    def step(self, loss: Tensor) -> None:
        """Change the weights that the loss depends on."""
        self._network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        moved = {weight: weight.grad for weight in self._network.parameters() if weight.grad is not None}
        momentum = [self._momentum.get(weight) for weight in moved]
        how = {"lr": self._how.lr, "momentum": self._how.momentum, "weight_decay": 0, "dampening": 0}
        with torch.no_grad():
            sgd(list(moved), list(moved.values()), momentum, **how, nesterov=False, maximize=False)  # type: ignore[arg-type]
        self._momentum.update(zip(moved, momentum, strict=True))


def _augmentation(name: str, shape: tuple[int, ...], random: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Return a function that changes images (n, channels, height, width) at random; tables stay as they are."""
    if name == "none" or len(shape) != 3:
        return lambda x: x
    import kornia.augmentation as change

    if name == "natural" or (name == "auto" and shape[0] == 3):
        steps = [change.RandomResizedCrop(shape[1:], scale=(0.4, 1.0)), change.RandomHorizontalFlip()]
        steps.append(change.RandomGaussianBlur((3, 3), (0.1, 1.0), p=0.2))
    else:
        steps = [change.RandomAffine(degrees=15, translate=(0.1, 0.1), scale=(0.85, 1.15), shear=10, p=1.0)]
    changed = change.AugmentationSequential(*steps)

    def at_random(x: Tensor) -> Tensor:
        with seeded(_draw(random)):  # kornia draws from torch's own state
            found: Tensor = changed(x)
        return found

    return at_random


def _draw(random: torch.Generator) -> int:
    return int(torch.randint(2**31, (1,), generator=random))


def _batches(n: int, size: int, random: torch.Generator) -> Iterator[Tensor]:
    """Yield the places of all rows in a random order; a last batch of one row joins the one before, for batch norms."""
    order, ends = torch.randperm(n, generator=random), list(range(size, n, size))
    if ends and n - ends[-1] == 1:
        ends.pop()
    yield from torch.tensor_split(order, ends)
