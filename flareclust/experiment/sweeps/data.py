"""The data of a sweep's trials: what they are called, how they are loaded, and how they are recognised elsewhere."""

from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust.data import datasets
from flareclust.data.digest import digest_of
from flareclust.data.partition_specs import parse
from flareclust.experiment.config import Experiment
from flareclust.experiment.tables.typed_files import schema_of
from flareclust.experiment.tables.typed_rows import one_table


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
    """Return the data set, None for sites with files of their own, and the digest of what it holds.

    Raises:
        UserError: the data cannot be loaded, or are a folder that is to be split.
    """
    data = experiment.data
    about = f"{schema_of(experiment).fingerprint} {experiment.truth}" if experiment.typed else ""
    if own_files(experiment):
        folder = Path(data)
        return None, digest_of(about, [folder] if folder.is_dir() else [])  # without a folder, `prepare` says so
    if Path(data).is_dir() and not is_known(data):
        raise UserError(f'{data} is a folder; for one file per site say partitions = "none"')
    dataset = one_table(experiment)[0] if experiment.typed else datasets.load(data, gaps=experiment.gaps)
    arrays = (dataset.X, dataset.y, dataset.centroids, dataset.owners)
    return dataset, digest_of(about, [array for array in arrays if array is not None])
