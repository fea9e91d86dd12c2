"""Rows and splits that the tests of partitions by columns share."""

import numpy as np

from flareclust.data.feature_partition import Split, split_features

SET_UPS = ["har-a1", "har-a2", "qmnist-a1", "qmnist-a2", "dim-a1", "dim-a2"]


def _stand_in(spec: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, classes and owners such as the set-up asks for, of few columns."""
    rng = np.random.default_rng(1)
    if spec.startswith("har"):
        y, owners, d = np.tile(np.arange(6), 90), np.repeat(np.arange(1, 31), 18), 40
    elif spec.startswith("qmnist"):
        y, owners, d = np.tile(np.arange(10), 52), np.repeat(np.arange(13), 40), 30
        y[(owners % 6 == 0) & (y == 7)] = 8  # writers 0, 6 and 12 wrote no 7: ten are left
    else:
        y, owners, d = np.repeat(np.arange(16), 23), np.zeros(368, dtype=np.int64), 25
    return rng.normal(size=(len(y), d)) + 3 * rng.normal(size=(16, d))[y], y, owners


def _set_up(spec: str, seed: int = 0) -> tuple[Split, np.ndarray, np.ndarray, np.ndarray]:
    X, y, owners = _stand_in(spec)
    return split_features(spec, X, y, 1, np.random.default_rng(seed), owners), X, y, owners


def _masks(split: Split, d: int) -> np.ndarray:
    masks = np.zeros((len(split.columns), d), dtype=bool)
    for mask, columns in zip(masks, split.columns.values(), strict=True):
        mask[columns] = True
    return masks


def _clusters(split: Split, y: np.ndarray) -> np.ndarray:
    """Return (m, classes) how many rows of each class each site has."""
    return np.array([np.bincount(y[rows], minlength=y.max() + 1) for rows in split.rows.values()])
