"""Small images in files."""

from pathlib import Path

import numpy as np
from PIL import Image


def write(path: Path, pixels, mode: str | None = None, **how) -> Path:
    """Write pixels (height, width) or (height, width, channels) of 8 bits as an image of the path's format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels))
    (image if mode is None else image.convert(mode)).save(path, **how)
    return path


def grey(seed: int, height: int = 8, width: int = 8) -> np.ndarray:
    """Return random grey pixels (height, width)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def colour(seed: int, height: int = 8, width: int = 8) -> np.ndarray:
    """Return random colours (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def patterns(folder: Path, sites: tuple[str, ...] = ("a", "b", "c"), n: int = 40, side: int = 12) -> np.ndarray:
    """Write n noisy images of four patterns for each site; return the pattern of each, one site after the other."""
    rng = np.random.default_rng(0)
    clean = rng.integers(60, 196, (4, side, side + 4))
    kinds = rng.integers(0, 4, (len(sites), n))
    for site, own in zip(sites, kinds, strict=True):
        for i, kind in enumerate(own):
            noisy = np.clip(clean[kind] + rng.normal(0, 8, clean[kind].shape), 0, 255)
            write(folder / site / f"{i:02d}.png", noisy.astype(np.uint8))
    return kinds.ravel()
