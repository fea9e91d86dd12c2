"""Results of networks: clusters are among embeddings, so pictures show images in the place of rows and centroids."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray


def is_embedded(arrays: Mapping[str, Any]) -> bool:
    """Return whether a result's centroids are among the embeddings of a network, and not among the rows."""
    return "weights" in arrays and "image" in arrays


def image_of(arrays: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return height, width and channels of the images in the rows; None where rows are no images."""
    if not is_embedded(arrays):
        return None
    height, width, channels = (int(size) for size in np.asarray(arrays["image"]).ravel())
    return (height, width, channels) if height else None


def shown_images(
    rows: Mapping[str, FloatArray], labels: Mapping[str, IntArray], arrays: Mapping[str, Any]
) -> dict[str, FloatArray]:
    """Return the rows of the sites whose images a contact sheet can show: they have labels, and the shape of the images."""
    shape = image_of(arrays)
    if shape is None:
        return {}
    d = shape[0] * shape[1] * shape[2]
    return {site: X for site, X in rows.items() if len(X) and X.shape[1] == d and len(labels.get(site, ())) == len(X)}
