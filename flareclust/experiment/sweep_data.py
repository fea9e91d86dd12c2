"""The data of a sweep's trials: what they are called, how they are loaded, and how they are recognised elsewhere."""

import hashlib
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust.data import datasets
from flareclust.data.partition_specs import parse
from flareclust.experiment.config import Experiment
from flareclust.experiment.typed_files import schema_of
from flareclust.experiment.typed_rows import one_table


def is_known(text: str) -> bool:
    """Return whether this names a data set, and not a file or folder."""
    return text.partition(":")[0] in datasets.names()


def data_name(text: str) -> str:
    """Return what a data set is called in tables: its name, or that of its file or folder."""
    return text if is_known(text) else Path(text).name or text


def own_files(experiment: Experiment) -> bool:
    """Return whether each site has a file of its own."""
    return parse(experiment.partition).name == "none"


def load_data(experiment: Experiment) -> tuple[datasets.Dataset | None, str]:
    """Return the data set, None for sites with files of their own, and a fingerprint of what it holds.

    Raises:
        UserError: the data cannot be loaded, or are a folder that is to be split.
    """
    data, digest = experiment.data, hashlib.sha256()
    if experiment.typed:
        digest.update(f"{schema_of(experiment).fingerprint} {experiment.truth}".encode())
    if own_files(experiment):
        folder = Path(data)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():  # without a folder, `prepare` says so
            if path.is_file():
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return None, digest.hexdigest()[:16]
    if Path(data).is_dir() and not is_known(data):
        raise UserError(f'{data} is a folder; for one file per site say partitions = "none"')
    dataset = one_table(experiment)[0] if experiment.typed else datasets.load(data)
    for array in (dataset.X, dataset.y, dataset.centroids, dataset.owners):
        if array is not None:
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
    return dataset, digest.hexdigest()[:16]
