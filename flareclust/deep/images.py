"""Rows as images: which shape they have, and the tensors that networks take.

A site's table holds one image per row, pixel by pixel: height, width, and last the channels, as NumPy stores images.
"""

from collections.abc import Sequence
from math import isqrt

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray

#: What `image` can be beside sizes: the shape that fits the number of columns, or a table without an image's order.
AUTO, TABLE = "auto", "none"

#: Columns of the space in which networks embed images, and clusters are.
EMBEDDED = 64

#: Values of tables that are larger count as this, so that networks can compute with them in float32.
_MOST = 1e9

#: Images have at least so many pixels a side; smaller squares are tables.
_SMALLEST = 8


def check_image(image: str) -> str:
    """Return a setting of `image` if it can be read.

    Raises:
        UserError: it is none of "auto", "none", "HxW" and "HxWxC".
    """
    if image not in (AUTO, TABLE):
        sizes = image.lower().split("x")
        good = len(sizes) in (2, 3) and all(size.isascii() and size.isdigit() and int(size) > 0 for size in sizes)
        if not good or (len(sizes) == 3 and int(sizes[2]) not in (1, 3)):
            raise UserError(
                f"image={image!r}: expected auto, none, or height x width x channels such as 28x28 or 32x32x3"
            )
    return image


def image_shape(image: str, d: int) -> tuple[int, int, int] | None:
    """Return height, width and channels of rows of d columns; None for a table.

    Args:
        image: "auto" for a square image of one channel, else of three, else a table; or a size such as "28x28x1".
        d: number of columns.

    Raises:
        UserError: the setting cannot be read, or rows of this size have another number of columns.
    """
    if check_image(image) == TABLE:
        return None
    if image != AUTO:
        height, width, *rest = (int(size) for size in image.lower().split("x"))
        channels = rest[0] if rest else 1
        if height * width * channels != d:
            raise UserError(f"image={image} has {height * width * channels} pixels where rows have {d} columns")
        return height, width, channels
    for channels in (1, 3):
        side = isqrt(d // channels)
        if side >= _SMALLEST and side * side * channels == d:
            return side, side, channels
    return None


def shape_array(shape: tuple[int, int, int] | None, d: int) -> IntArray:
    """Return what is sent of a shape: height, width and channels; 0, 0 and the number of columns for a table."""
    return np.array((0, 0, d) if shape is None else shape, dtype=np.int64)


def described(shape: Sequence[int]) -> str:
    """Return a shape as it is sent, in words: "images of 28 x 28 x 1", or "rows of 5 columns"."""
    return f"images of {' x '.join(map(str, shape))}" if shape[0] else f"rows of {shape[2]} columns"


def as_images(rows: FloatArray, shape: IntArray) -> FloatArray:
    """Return rows (n, d) as images (n, channels, height, width) of mean 0 and variance 1 each; tables as they are, within limits.

    Each image is standardised by itself: brightness and contrast of a camera or scanner do not matter, and no statistics
    of all sites are needed.
    """
    height, width, channels = (int(size) for size in shape)
    if not height:
        return np.clip(rows, -_MOST, _MOST)
    flat = rows - rows.mean(axis=1, keepdims=True)
    scale = flat.std(axis=1, keepdims=True)
    flat /= np.where(scale > 0, scale, 1.0)
    return np.ascontiguousarray(flat.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))
