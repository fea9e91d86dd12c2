"""Deployable NVFlare jobs, one folder per algorithm, generated from the registry and kept here to be read and copied.

They look for k = 10 clusters with seed 0; `flareclust jobs export` writes a job with other settings.
"""

from collections.abc import Iterator
from pathlib import Path

#: The number of clusters in the jobs kept here.
K = 10


def write_all(folder: Path) -> Iterator[Path]:
    """Write a job folder for every federated built-in algorithm under `folder`; yield their paths."""
    from flareclust.engines.options import JobOptions
    from flareclust.platform.job import build_job, export_job
    from flareclust.protocol.registry import BUILT_IN

    for algorithm in BUILT_IN:
        if algorithm.federated:
            yield export_job(build_job(algorithm, {}, JobOptions(k=K)), folder / algorithm.name)
