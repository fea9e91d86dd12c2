"""Parts of data sets, for studies that would take too long on all of their rows."""

from dataclasses import replace

import numpy as np

from flareclust.data.datasets import Dataset


def at_most(data: Dataset, n: int) -> Dataset:
    """Return the data set, or a random `n` of its rows under a name that says so; always the same ones."""
    if len(data.X) <= n:
        return data
    rows = np.sort(np.random.default_rng(0).choice(len(data.X), size=n, replace=False))
    return replace(
        data,
        name=f"{data.name} ({n} rows)",
        X=np.ascontiguousarray(data.X[rows]),
        y=None if data.y is None else data.y[rows],
        owners=None if data.owners is None else data.owners[rows],
    )
