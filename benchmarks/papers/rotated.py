"""Devices with labelled digits: MNIST in four rotations, and MNIST by writer."""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import IntArray
from flareclust.core.lloyd import kmeans
from flareclust.data import published
from flareclust.data.datasets import load
from flareclust.data.npy_files import npz_arrays
from flareclust.evaluation import metrics
from flareclust.personal.rows import Labelled, Split, hold_out, make_split

ROTATIONS = 4
PIXEL = 255.0


def rotated_mnist(devices: int, per_device: int, seed: int, rows: int | None = None) -> Split:
    """Give each device its share of MNIST, in one rotation or in several.

    Every image is used once, training images to train and test images to test. A device with one rotation has that of
    its number modulo 4; one with several has different ones, drawn at random, the same number of images in each.

    Args:
        devices: how many.
        per_device: rotations of a device, 1 to 4.
        seed: of who gets what.
        rows: use so many training images and a sixth as many test images only; None for all.
    """
    file = published.data_folder() / "mnist" / "mnist.npz"
    if not file.is_file():
        raise UserError("mnist is not there; fetch it with: flareclust data get mnist")
    arrays = npz_arrays(file, ("X_train", "y_train", "X_test", "y_test"))
    rng = stream(seed, 0, "rotations")
    own = _rotations(devices, per_device, rng)
    sides = []
    for side, most in (("train", rows), ("test", None if rows is None else rows // 6)):
        X, y = arrays[f"X_{side}"], arrays[f"y_{side}"].astype(np.int64)
        shares = np.array_split(rng.permutation(len(X))[:most], devices)
        sides.append({f"device-{i:03}": _turned(X[at], y[at], own[i]) for i, at in enumerate(shares)})
    return make_split(*sides)


def _rotations(devices: int, per_device: int, rng: np.random.Generator) -> list[IntArray]:
    """Return the rotations of each device, in quarters."""
    order = [rng.permutation(ROTATIONS)[:per_device] for _ in range(devices)]
    return [np.array([i % ROTATIONS]) if per_device == 1 else order[i] for i in range(devices)]


def purity_of_rotations(devices: int, seed: int, rows: int | None = None) -> dict[int, float]:
    """Return how well k-means with two clusters finds the two rotations of each device of `rotated_mnist`.

    Returns:
        Mean purity over the devices, by the quarters between their rotations: 1 or 2.
    """
    split, own = rotated_mnist(devices, 2, seed, rows), _rotations(devices, 2, stream(seed, 0, "rotations"))
    found: dict[int, list[float]] = {1: [], 2: []}
    for device, rotations in zip(split.train.values(), own, strict=True):
        labels = kmeans(device.X, 2, stream(seed, 1, "purity"), n_init=10).labels
        apart = int(abs(rotations[0] - rotations[1])) % 4
        found[2 if apart == 2 else 1].append(metrics.purity(labels, np.arange(len(device)) % 2))
    return {apart: float(np.mean(values)) for apart, values in found.items()}


def _turned(X: np.ndarray, y: np.ndarray, rotations: np.ndarray) -> Labelled:
    """Return a device's rows in no particular order, every image in one of the rotations."""
    turn = rotations[np.arange(len(y)) % len(rotations)]
    flat = np.empty((len(y), X[0].size))
    for quarter in rotations:
        flat[turn == quarter] = np.rot90(X[turn == quarter], quarter, axes=(1, 2)).reshape(np.sum(turn == quarter), -1)
    return Labelled(flat / PIXEL, y)


def mnist_by_writer(writers: int, seed: int) -> Split:
    """Give each of the first writers of MNIST's training digits a device, and hold out a fifth of its digits."""
    data = load("qmnist")
    if data.y is None or data.owners is None:
        raise UserError("qmnist has no digits or no writers here")
    devices: Mapping[str, Labelled] = {
        f"writer-{i:03}": Labelled(data.X[data.owners == writer] / PIXEL, data.y[data.owners == writer])
        for i, writer in enumerate(np.unique(data.owners)[:writers])
    }
    return hold_out(devices, 0.2, seed)
