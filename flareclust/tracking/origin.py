"""Where a run comes from, for MLflow's columns Source and Dataset: the command, and the data by name and digest."""

import json
import shlex
import sys
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array
from flareclust.data.devices import Devices
from flareclust.data.digest import digest_of
from flareclust.data.tables import Table
from flareclust.experiment.config import OWN_ROWS, Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.tracking.store import settle_mlflow

_SOURCE_NAME, _SOURCE_TYPE = "mlflow.source.name", "mlflow.source.type"

#: What stands for the digest of rows that are not in this process.
_NOT_HERE = "rows-at-the-sites"

#: Devices whose rows are looked at together.
_CHUNK = 4096


def source_tags() -> dict[str, str]:
    """Return the tags with the command that this process runs: of ours in full, of others the program's name."""
    program = Path(sys.argv[0] or "python")
    ours = program.stem == "flareclust" or program.parts[-3:] == ("flareclust", "cli", "__main__.py")
    command = shlex.join(["flareclust", *sys.argv[1:]]) if ours else program.name
    return {_SOURCE_NAME: command, _SOURCE_TYPE: "LOCAL"}


def data_name(data: str) -> str:
    """Return what data are called: of a path its last part."""
    return Path(data).name or data


def data_input(experiment: Experiment, prepared: Prepared) -> Any:
    """Return what an MLflow run says about the data of an experiment, as MLflow's entity; no row is part of it.

    The name is that of the data set, or of the file or folder, which is the source then; the digest is of the rows as they were
    assigned to sites; the profile has the partition and, where they are known here, the numbers of rows, columns and sites.

    """
    settle_mlflow()
    from mlflow.entities import Dataset, DatasetInput, InputTag

    sites: Sized = prepared.sites if prepared.devices is None else prepared.devices
    profile: dict[str, Any] = {"sites": len(sites)} if len(sites) else {}
    profile["partition"] = experiment.partition
    dataset, digest = prepared.dataset, _NOT_HERE
    if (devices := prepared.devices) is not None:
        profile |= {"rows": devices.n, "columns": devices.d}
        digest = digest_of(" ".join(devices.names), _arrays_of(devices))
    elif dataset is not None:
        profile |= {"rows": len(dataset.X), "columns": dataset.X.shape[1]}
        digest = digest_of(f"{experiment.partition}/{experiment.n_sites}/{experiment.seed}", [dataset.X])
    elif prepared.sites:
        found = [rows.X if isinstance(rows, Table) else rows for _, rows in sorted(prepared.sites.items())]
        digest = digest_of(" ".join(sorted(prepared.sites)), found)
        if arrays := [rows for rows in found if not isinstance(rows, Path)]:
            profile |= {"rows": sum(map(len, arrays)), "columns": arrays[0].shape[1]}
    is_file = experiment.data != OWN_ROWS and Path(experiment.data).exists()
    path = {"uri": str(Path(experiment.data).absolute())} if is_file else {"tags": {_SOURCE_NAME: experiment.data}}
    columns = prepared.columns and [{"name": name, "type": "double"} for name in prepared.columns]
    entity = Dataset(
        name=data_name(experiment.data),
        digest=digest,
        source_type="local" if is_file else "code",
        source=json.dumps(path),
        schema=None if columns is None else json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps(profile),
    )
    return DatasetInput(entity, tags=[InputTag("mlflow.data.context", "clustering")])


def _arrays_of(devices: Devices) -> Iterator[Array]:
    """Give the rows of some thousand devices at a time, which may be made only now, and where each device's begin."""
    for first in range(0, len(devices), _CHUNK):
        part = devices.part_of(np.arange(first, min(first + _CHUNK, len(devices))))
        yield from (part.values, part.starts)
